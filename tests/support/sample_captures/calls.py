"""A group of calls with the same course, and the planned messages of each leg."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.support.sample_captures.options import ENCODINGS
from tests.support.sample_captures.script import CALL_OP, CALLEE, CALLER, Column, LineKind, Script
from tests.support.sample_captures.world import World

NQ: Final = ENCODINGS.index("nq")
LRPM: Final = (ENCODINGS.index("lrpm-json"), ENCODINGS.index("lrpm-cbor"))
MQTT: Final = ENCODINGS.index("mqtt-rpc")
UMQS: Final = (ENCODINGS.index("umq"), ENCODINGS.index("umq36"))
_MICRO: Final = 1000
MILLI: Final = 1_000_000


@dataclass
class CallGroup:
    """Calls of one scenario: participants, method, times and ids, one array entry per call."""

    script: Script
    world: World
    call: Column
    at: Column
    caller: Column
    callee: Column
    method: Column
    num: Column
    """The request id on the caller's leg; the callee's leg uses `hub_num`."""
    duration: Column
    """Nanoseconds that the callee takes."""
    odd: Column

    def select(self, chosen: Column) -> "CallGroup":
        """Return a subset of the calls, chosen by a boolean mask or by row numbers."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        columns = (self.call, self.at, self.caller, self.callee, self.method, self.num, self.duration, self.odd)
        return CallGroup(self.script, self.world, *(column[rows] for column in columns))

    def __len__(self) -> int:
        return len(self.call)

    def random_delay(self, low: float, high: float) -> Column:
        """Return a random delay in nanoseconds for each call, between two numbers of microseconds."""
        return (self.script.rng.uniform(low, high, len(self)) * _MICRO).astype(np.int64)

    @property
    def caller_protocol(self) -> Column:
        """Protocol numbers of the callers."""
        return self.world.protocol_of(self.caller)

    @property
    def callee_protocol(self) -> Column:
        """Protocol numbers of the callees."""
        return self.world.protocol_of(self.callee)

    # Messages on each leg at the time `at`. All of them carry the operation id.

    def send_request(self, at: Column, **more: Any) -> None:  # noqa: ANN401
        """Plan the caller's request."""
        columns: dict[str, Any] = {"session": self.caller, "odd": self.odd, "detail": 0, **more}
        self.add_lines(LineKind.CALL, at, CALLER, out=False, num=self.num, **columns)

    def forward(self, at: Column, leg: int = CALLEE, callee: Column | None = None, detail: int = 0) -> None:
        """Plan the request from the hub to the callee; an NQ callee accepts it."""
        callee = self.callee if callee is None else callee
        num = self.hub_num(leg)
        self.add_lines(LineKind.CALL, at, leg, out=True, num=num, session=callee, detail=detail)
        nq = np.flatnonzero(self.world.protocol_of(callee) == NQ)
        some = self.select(nq)
        some.add_lines(
            LineKind.ACCEPTED, at[nq] + some.random_delay(50, 200), leg, out=False, num=num[nq], session=callee[nq]
        )

    def return_answer(
        self, at: Column, what: LineKind, leg: int = CALLEE, callee: Column | None = None, **more: object
    ) -> None:
        """Plan the callee's response; the hub acknowledges it in NQ."""
        callee = self.callee if callee is None else callee
        num = self.hub_num(leg)
        self.add_lines(what, at, leg, out=False, num=num, session=callee, **more)
        nq = np.flatnonzero(self.world.protocol_of(callee) == NQ)
        some = self.select(nq)
        some.add_lines(LineKind.ACK, at[nq] + some.random_delay(5, 50), leg, out=True, num=num[nq], session=callee[nq])

    def answer(
        self, at: Column, what: LineKind, *, session: Column | None = None, acked: bool = True, **more: object
    ) -> None:
        """Plan the hub's response to the caller; an NQ caller acknowledges it."""
        session = self.caller if session is None else session
        self.add_lines(what, at, CALLER, out=True, num=self.num, session=session, **more)
        if acked:
            nq = np.flatnonzero(self.caller_protocol == NQ)
            some = self.select(nq)
            some.add_lines(
                LineKind.ACK, at[nq] + some.random_delay(100, 900), CALLER, out=False, num=some.num, session=session[nq]
            )

    def accept(self, at: Column, *, session: Column | None = None) -> None:
        """Plan the hub's acceptance, which only NQ callers receive."""
        nq = np.flatnonzero(self.caller_protocol == NQ)
        some = self.select(nq)
        link = some.caller if session is None else session[nq]
        some.add_lines(LineKind.ACCEPTED, at[nq], CALLER, out=True, num=some.num, session=link)

    def hub_num(self, leg: int) -> Column:
        """Return the request ids that the hub uses on a callee's leg."""
        return self.call * 4 + leg

    def add_lines(
        self,
        what: LineKind,
        at: Column,
        leg: int,
        *,
        out: bool,
        num: Column,
        session: Column,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """Plan one message per call; `more` sets further columns of the plan."""
        self.script.add(
            what,
            at,
            call=self.call,
            leg=leg,
            out=out,
            num=num,
            aux=self.call * 4 + leg,
            session=session,
            **{"method": self.method, "op": CALL_OP, **more},
        )

    def request_and_forward(self, detail: int = 0) -> tuple[Column, Column]:
        """Plan request, acceptance and forwarding; return the times of forwarding and of the callee's end."""
        self.send_request(self.at, detail=detail)
        self.accept(self.at + self.random_delay(10, 30))
        forwarded = self.at + self.random_delay(35, 200)
        self.forward(forwarded, detail=detail)
        return forwarded, forwarded + self.random_delay(205, 300) + self.duration

    def send_part(self, at: Column, nth: int, takes_parts: Column) -> None:
        """Plan one element of a streamed result, and its copy to callers that take parts."""
        self.add_lines(LineKind.PART, at, CALLEE, out=False, num=self.hub_num(CALLEE), session=self.callee, nth=nth)
        some = self.select(takes_parts)
        later = at[takes_parts] + some.random_delay(10, 20)
        some.add_lines(LineKind.PART, later, CALLER, out=True, num=some.num, session=some.caller, nth=nth)

    def end_stream(self, at: Column, what: LineKind, nth: Column, takes_parts: Column) -> None:
        """Plan the end of a streamed result; callers that do not take parts receive one array."""
        self.return_answer(at, what, nth=nth)
        for which, kind in ((takes_parts, what), (~takes_parts, LineKind.RESULT)):
            some = self.select(which)
            some.answer(at[which] + some.random_delay(10, 100), kind, nth=nth[which])
