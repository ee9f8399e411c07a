"""The requests that are open, ours and the peer's: what each of them is waiting for, and what is kept for it."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

import msgspec

from fiveways.errors import LocalProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.protocols.nq.bridge import VERBOSE, Extras
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.line import Repeated
from fiveways.protocols.nq.messages import AnswerPart, CancelRequest, Poll, RequestPart
from fiveways.protocols.nq.states import ASKED, TAKEN, Asked, Step, Taken
from fiveways.protocols.nq.streams import Receiver, Sender
from fiveways.protocols.nq.writing import write

CANCELLED: Final = Err("local", True, "cancelled")
_POLLED: Final = frozenset({Asked.ACCEPTED, Asked.STREAMING})


def verbosity(extras: Extras) -> bool | str:
    """Return how much the caller of a call wants to hear on the way."""
    given = extras.get(VERBOSE)
    if given is None:
        return False
    try:
        value = given.value()
    except Unrepresentable:
        return False
    return value if isinstance(value, str) else bool(value)


class Asking(Repeated):
    """A request of ours: repeated until accepted, then polled until answered, or cancelled until the peer is silent."""

    _FIELDS: ClassVar = ("r", "t", "hub_id", "topic", "a", "accepted", "grant", "v")
    common: Common
    r: str
    t: str
    word: type[hub.Word]
    hub_id: str | None
    """None if nobody waits for the answer."""
    a: str = ""
    """The peer's backchannel, once known."""
    accepted: bool = False
    """The hub has heard so."""
    data: bytes = b""
    expires_at: float = 0.0
    grant: str = ""
    """Of an event: which subscription it is for, among several of the same name that follow each other."""
    fresh: bool = False
    """A part has come since the last wait began, so there is no need to poll."""
    receiver: Receiver[AnswerPart] | None = None
    sender: Sender | None = None
    state: Asked = Asked.SENT
    topic: str = ""
    """The subscription of ours that it asks for."""
    v: bool | str = False

    def advance(self, step: Step) -> bool:
        """Go where the step leads; False if it leads nowhere from here."""
        after = ASKED[self.state].get(step)
        if after is None:
            return False
        self.state = after
        return True

    def write(self) -> Sequence[bytes]:
        """Return the request, the poll or the cancellation."""
        if self.state is Asked.SENT and self.sender is None:
            return (self.data,)
        if self.state is Asked.CANCELLED:
            return (write(self._cancellation()),)
        # The parts of a streamed request are repeated by their own stream, until none is left but still no word came.
        if self.fresh or (self.state is Asked.SENT and self.sender is not None and self.sender.parts):
            self.fresh = False
            return ()
        return (write(Poll(self.t, self.r)),)

    @property
    def waits(self) -> Sequence[float]:
        """The waits between repeats, or between polls."""
        return self.common.polls if self.state in _POLLED else self.common.repeats

    def close(self) -> None:
        """Let go what is kept for it, except what a cancellation needs."""
        self.common.line.drop(self)
        self.common.asked.free(len(self.data))
        self.data = b""
        if self.sender is not None:
            self.sender.close()
        if self.receiver is not None:
            self.receiver.close()

    def export(self, now: float) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        return _export(self, self._FIELDS, self.data, now) | {"word": self.word.__name__}

    @classmethod
    def restore(cls, common: Common, saved: dict[str, Any], now: float) -> Self:
        """Go on where another has stopped."""
        asking = cls(common, saved["r"], saved["t"], getattr(hub, saved["word"]), saved["hub_id"])
        asking.state = Asked[saved["state"]]
        asking.data = saved["data"].encode()
        _restore(asking, cls._FIELDS, common, saved, now)
        return asking

    def _cancellation(self) -> CancelRequest:
        return CancelRequest("", (self.a,), CANCELLED) if self.a else CancelRequest(self.t, (self.r,), CANCELLED)


class Serving(Repeated):
    """A request of the peer. Once answered, its answer (`always`) is said again until acknowledged.

    Before it has been `said`, nothing can acknowledge it. One in parts is repeated by its own stream.
    """

    _FIELDS: ClassVar = ("a", "key", "r", "v", "topic", "grant", "accepted", "cancelled", "said", "unheard")
    a: str
    key: str
    """From t and r; the hub knows it by this, too."""
    r: str
    accepted: bool = False
    cancelled: bool = False
    excuse: Err | None = None
    """Why we ended it ourselves, where the hub only hears that it is cancelled."""
    expires_at: float = 0.0
    grant: str = ""
    """What an unsubscription ends, see `topic`."""
    receiver: Receiver[RequestPart] | None = None
    repeats: int = 0
    sender: Sender | None = None
    state: Taken = Taken.RECEIVED
    topic: str = ""
    """The subscription that lives, or lives no more, once the request is granted."""
    unheard: bool = False
    """The hub never heard of it."""
    v: bool | str = False

    def advance(self, step: Step) -> None:
        """Go where the step leads; LocalProtocolError if it leads nowhere from here."""
        after = TAKEN[self.state].get(step)
        if after is None:
            raise LocalProtocolError(f"no {step.value} now: request {self.key} is {self.state.value}")
        self.state = after

    def export(self, now: float) -> dict[str, object]:
        """Return all that is needed to go on elsewhere."""
        excuse = None if self.excuse is None else msgspec.to_builtins(self.excuse)
        return _export(self, self._FIELDS, self.always, now) | {"excuse": excuse}

    @classmethod
    def restore(cls, common: Common, saved: dict[str, Any], now: float) -> Self:
        """Go on where another has stopped."""
        serving = cls(saved["a"], saved["key"], saved["r"])
        serving.state = Taken[saved["state"]]
        serving.excuse = None if saved["excuse"] is None else msgspec.convert(saved["excuse"], Err)
        _restore(serving, cls._FIELDS, common, saved, now)
        serving.always = saved["data"].encode()
        return serving


def _export(request: Asking | Serving, fields: tuple[str, ...], data: bytes, now: float) -> dict[str, object]:
    sender, receiver = request.sender, request.receiver
    saved: dict[str, object] = {field: getattr(request, field) for field in fields}
    saved |= {"state": request.state.name, "data": data.decode()}
    saved |= {"ttl": request.expires_at - now, "sender": None if sender is None else sender.export()}
    return saved | {"receiver": None if receiver is None else receiver.export()}


def _restore(
    request: Asking | Serving, fields: tuple[str, ...], common: Common, saved: dict[str, Any], now: float
) -> None:
    for field in fields:
        setattr(request, field, saved[field])
    request.expires_at = now + saved["ttl"]
    if saved["sender"] is not None:
        request.sender = Sender.restore(common, saved["sender"])
    if saved["receiver"] is not None:
        request.receiver = Receiver.restore(common, saved["receiver"])


class Requests:
    """The requests of the peer that are not finished: by key, by backchannel, and the answered ones by age."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self.by_key: dict[str, Serving] = {}
        self.by_backchannel: dict[str, Serving] = {}
        self.answered: OrderedDict[str, Serving] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def all(self) -> list[Serving]:
        """Return them all."""
        return list(self.by_key.values())

    def get(self, key: str) -> Serving | None:
        """Return the request of that key."""
        return self.by_key.get(key)

    def on(self, backchannel: str) -> Serving | None:
        """Return the request that is answered on this backchannel."""
        return self.by_backchannel.get(backchannel)

    def unanswered(self, key: str) -> Serving:
        """Return the request that the hub wants to say something about; LocalProtocolError if it is not open."""
        serving = self.by_key.get(key)
        if serving is None or serving.state is Taken.ANSWERED:
            raise LocalProtocolError(f"no request {key} is open")
        return serving

    def is_full(self) -> bool:
        """Whether the peer must take some of its answers before it asks for more."""
        common = self._common
        return len(self.by_key) >= common.limits.max_pending or common.kept.is_full()

    def take_over(self, key: str, r: str) -> None:
        """Know of a request that is accepted already."""
        serving = Serving(self._common.mint(), key, r)
        serving.state, serving.accepted = Taken.ACCEPTED, True
        self.add(serving)

    def add(self, serving: Serving) -> None:
        """Take a request that the hub has heard of, or will."""
        self.by_key[serving.key] = self.by_backchannel[serving.a] = serving

    def keep(self, serving: Serving, expires_at: float) -> None:
        """Keep the answer, which is complete now."""
        serving.expires_at = expires_at
        self._common.kept.used += len(serving.always)
        self.answered[serving.a] = serving
        if serving.receiver is not None:
            serving.receiver.close()
            serving.receiver = None

    def forget(self, serving: Serving) -> None:
        """Let a request and all that was kept for it go."""
        a, common = serving.a, self._common
        del self.by_key[serving.key], self.by_backchannel[a]
        if self.answered.pop(a, None) is not None:
            common.kept.free(len(serving.always))
        serving.always = b""
        common.line.drop(serving)
        if serving.sender is not None:
            serving.sender.close()
        if serving.receiver is not None:
            serving.receiver.close()

    def oldest(self) -> Serving | None:
        """Return the answer that has been kept longest."""
        return next(iter(self.answered.values()), None)
