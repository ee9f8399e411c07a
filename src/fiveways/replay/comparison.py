"""What came back beside what came back then: the same, or how it differs."""

import math
from collections import Counter, deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fiveways.errors import FivewaysError
from fiveways.model.text_redaction import REDACTED
from fiveways.model.value_redaction import redact_value
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.replay.frame_decoder import body_value
from fiveways.wire import strict_json
from fiveways.wire.payload import Payload

if TYPE_CHECKING:
    from fiveways.replay.replay_session import ReplaySession

VARYING_METHODS: Final = frozenset(
    {"hub.callback", "hub.peers", "hub.publish", "hub.results", "hub.rights", "hub.stats", "hub.time", "hub.traffic"}
)
"""Methods of the hub whose answers are another each time: of these only the outcome counts."""
EQUAL, DIFFERENT_BODY, DIFFERENT_STATUS, MISSING, EXTRA = (
    "equal",
    "different body",
    "different status",
    "missing",
    "extra",
)
VERDICTS: Final = (EQUAL, DIFFERENT_BODY, DIFFERENT_STATUS, MISSING, EXTRA)
_MAX_DIFFERENCES: Final = 10
"""Differences that are told in full."""
_MAX_SESSIONS: Final = 1000
_HEX: Final = 16


class ResponsePart(NamedTuple):
    """An element of an answer, or the end of it. `body` is None where nobody knows it any more."""

    kind: str
    status: str | None = None
    reason: str | None = None
    code: str | None = None
    body: Payload | None = None
    is_complete: bool = True

    @property
    def is_final(self) -> bool:
        """Whether no other follows."""
        return self.kind != "part"

    def as_dict(self) -> dict[str, object]:
        """Return it for people and programs."""
        row: dict[str, object] = {"status": self.status or self.kind}
        row |= {key: value for key, value in (("reason", self.reason), ("code", self.code)) if value is not None}
        return {**row, "body": body_value(self.body)} if self.is_complete else row


def response_part(message: MessageRow, body: Payload | None, *, is_known: bool = True) -> ResponsePart:
    """Return what a message is to the request that it answers."""
    return ResponsePart(message.kind, message.status, message.reason, message.code, body, is_known)


class Difference(msgspec.Struct, frozen=True):
    """One thing that is not as it was."""

    what: str
    """call, request, event or session."""
    verdict: str
    session: str
    name: str = ""
    id: str = ""
    seq: int | None = None
    """The record it began with."""
    recorded: object = None
    live: object = None


class ReplayStats:
    """Counts what is equal and what is not; the first differences are kept."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {"call": Counter(), "request": Counter(), "event": Counter()}
        self.sessions: dict[str, Counter[str]] = {}
        """Sessions in which something differs, and what."""
        self.differences: list[Difference] = []
        self.open_at_end = 0
        """Calls of which the recording does not tell how they ended."""
        self.lost: Counter[str] = Counter()
        """Sessions that could not be opened, or ended too early, by the reason."""

    def count_equal(self, what: str, count: int = 1) -> None:
        """Count things that are as they were."""
        self.counts[what][EQUAL] += count

    def add_difference(self, difference: Difference, count: int = 1) -> None:
        """Count things that are not, and keep what is known of the first."""
        if difference.what == "session":
            self.lost[difference.verdict] += 1
        else:
            self.counts[difference.what][difference.verdict] += count
            if difference.session in self.sessions or len(self.sessions) < _MAX_SESSIONS:
                self.sessions.setdefault(difference.session, Counter())[difference.verdict] += count
        if len(self.differences) < _MAX_DIFFERENCES:
            recorded, live = redact_value(difference.recorded), redact_value(difference.live)
            self.differences.append(msgspec.structs.replace(difference, recorded=recorded, live=live))

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        others = sum(count for each in self.counts.values() for verdict, count in each.items() if verdict != EQUAL)
        return not others and not self.lost


class ReplayedRequest:
    """A request of a recorded peer, what it was answered, and what it is answered now."""

    __slots__ = (
        "_differing_parts",
        "_live",
        "_recorded",
        "id",
        "is_late",
        "is_sent",
        "kind",
        "live_ended",
        "name",
        "recorded_ended",
        "seq",
        "session",
        "targets",
        "tokens",
        "verdict",
    )

    def __init__(self, talk: "ReplaySession", seq: int, message: MessageRow, *, is_sent: bool) -> None:
        self.session = talk
        self.seq = seq
        self.id = message.id or ""
        self.kind = message.kind
        self.name = message.method or message.topic or message.target or message.kind
        self.is_sent = is_sent
        self.is_late = False
        """It was waited for in vain."""
        self.targets: list[str | None] = [None, None]
        """What the recorded and the present answer name: in NQ the hub's backchannel, in LRPM its subscription."""
        self.tokens = ["", ""]
        """The callback's token that the recorded and the present answer give."""
        self._recorded: deque[ResponsePart] = deque()
        self._live: deque[ResponsePart] = deque()
        self.recorded_ended = self.live_ended = False
        self.verdict = EQUAL
        self._differing_parts: tuple[ResponsePart | None, ResponsePart | None] = (None, None)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected, on either side."""
        return self.recorded_ended and (self.live_ended or not self.is_sent)

    @property
    def is_awaited(self) -> bool:
        """Whether it had been answered then, at the place where we are, and is not now."""
        return self.is_sent and self.recorded_ended and not self.live_ended and not self.is_late

    def add(self, answer: ResponsePart, *, live: bool) -> None:
        """Take an answer, or an element of one."""
        if live:
            self._live.append(answer)
            self.live_ended = self.live_ended or answer.is_final
        else:
            self._recorded.append(answer)
            self.recorded_ended = self.recorded_ended or answer.is_final
        while self._recorded and self._live:
            self._compare(self._recorded.popleft(), self._live.popleft())

    def _compare(self, recorded: ResponsePart, live: ResponsePart) -> None:
        if self.verdict == DIFFERENT_STATUS:
            return
        found = EQUAL
        if (recorded.kind, recorded.status, recorded.reason, recorded.code) != (
            live.kind,
            live.status,
            live.reason,
            live.code,
        ):
            found = DIFFERENT_STATUS
        elif (
            recorded.is_complete
            and self.name not in VARYING_METHODS
            and not values_equal(body_value(recorded.body), body_value(live.body))
        ):
            found = DIFFERENT_BODY
        if found != EQUAL and (self.verdict == EQUAL or found == DIFFERENT_STATUS):
            self.verdict, self._differing_parts = found, (recorded, live)

    def report(self, tally: ReplayStats, *, is_cut: bool = False) -> None:
        """Say what it came to; with `is_cut` the recording ends in the middle of the session."""
        if not self.is_sent:
            return
        if is_cut and not self.recorded_ended:
            tally.open_at_end += 1
            return
        if not self.live_ended and self.recorded_ended:
            self.verdict, self._differing_parts = MISSING, (self._recorded[-1] if self._recorded else None, None)
        elif not self.recorded_ended and self.live_ended:
            self.verdict, self._differing_parts = EXTRA, (None, self._live[-1] if self._live else None)
        elif not self.live_ended:
            return  # nobody had answered it, and nobody does
        elif self.verdict == EQUAL and (self._recorded or self._live):
            # Longer on one side than on the other.
            self.verdict = DIFFERENT_BODY
            self._differing_parts = (
                self._recorded[-1] if self._recorded else None,
                self._live[-1] if self._live else None,
            )
        if self.verdict == EQUAL:
            tally.count_equal("call")
            return
        recorded, live = (None if each is None else each.as_dict() for each in self._differing_parts)
        tally.add_difference(
            Difference("call", self.verdict, self.session.session_id, self.name, self.id, self.seq, recorded, live)
        )


def values_equal(recorded: object, live: object) -> bool:
    """Say whether two values are one; what was redacted may be anything."""
    if recorded == REDACTED:
        return True
    if isinstance(recorded, dict) and isinstance(live, dict):
        return recorded.keys() == live.keys() and all(values_equal(each, live[key]) for key, each in recorded.items())
    if isinstance(recorded, list) and isinstance(live, list):
        return len(recorded) == len(live) and all(map(values_equal, recorded, live))
    if isinstance(recorded, bool) or isinstance(live, bool):
        return recorded is live
    if isinstance(recorded, float) and isinstance(live, float) and math.isnan(recorded):
        return math.isnan(live)
    return recorded == live


def digest(value: object) -> str:
    """Return a short name of a value, the same for all that are equal."""
    if isinstance(value, bytes):
        raw = value
    else:
        try:
            raw = strict_json.write(_normalized(value))
        except (FivewaysError, ValueError, TypeError):
            raw = repr(value).encode()
    return blake2b(raw, digest_size=_HEX).hexdigest()


def _normalized(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _normalized(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [_normalized(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_redacted(value: object) -> bool:
    """Say whether something in a value was redacted."""
    if isinstance(value, dict):
        return any(map(is_redacted, value.values()))
    return any(map(is_redacted, value)) if isinstance(value, list) else value == REDACTED
