"""The requests of ours that are open: how each of them ends, when it is given up, and what it outlives."""

from collections import OrderedDict, deque
from typing import Any, Final

from fiveways.model import messages as hub
from fiveways.model.failures import Reason
from fiveways.protocols.nq.common import Common
from fiveways.protocols.nq.messages import Ids
from fiveways.protocols.nq.requests import Asking
from fiveways.protocols.nq.states import Asked, Step

_DOUBTFUL: Final = frozenset({Asked.STREAMING, Asked.CANCELLED})
"""In these, the peer is told of a request at once when it is another one since."""


class OpenRequests:
    """The lower half of `Outgoing`: the table of our requests."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._line = common.line
        self._words = common.words
        self._asking: dict[str, Asking] = {}
        self._ages: OrderedDict[str, Asking] = OrderedDict()
        """By r, in the order in which they expire; the cancelled ones are not among them."""
        self._by_id: dict[str, Asking] = {}
        self._cancelled: deque[Asking] = deque()
        self._events = 0

    def __len__(self) -> int:
        return len(self._asking)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def find(self, r: str) -> Asking | None:
        """Return the open request of this identifier."""
        return self._asking.get(r)

    def _open(self, asking: Asking) -> None:
        self._asking[asking.r] = asking
        self._common.asked.used += len(asking.data)
        if asking.state is Asked.CANCELLED:
            self._cancelled.append(asking)
        else:
            self._ages[asking.r] = asking
        if asking.hub_id is not None:
            self._by_id[asking.hub_id] = asking
        self._events += asking.word is hub.Event

    def _finish(self, asking: Asking, step: Step) -> None:
        asking.advance(step)
        asking.close()
        del self._asking[asking.r]
        self._ages.pop(asking.r, None)
        self._events -= asking.word is hub.Event
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]

    def _cancel(self, asking: Asking, now: float) -> None:
        """Tell the peer so again and again, for a while."""
        asking.advance(Step.CANCEL)
        asking.close()
        self._common.following.pop(asking.topic, None)
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]
            asking.hub_id = None
        self._ages.pop(asking.r, None)
        asking.expires_at = now + self._common.options.longest_wait
        self._cancelled.append(asking)
        self._line.renew(asking)

    def _fail(self, asking: Asking, reason: Reason, text: str, now: float) -> None:
        """Tell the hub that no answer will come, and the peer that none is wanted."""
        hub_id = asking.hub_id
        self._cancel(asking, now)
        if hub_id is not None:
            self._words.append(hub.Failure(hub_id, reason, text))

    def _nobody(self, ids: Ids) -> None:
        """Take note, once, of an answer to what was never asked; one that only comes again is none of these."""
        stray = next((r for r in ids if r not in self._asking and not self._common.is_ours(r)), None)
        if stray is not None:
            self._words.append(hub.Stray(stray, "an answer to a request that was never made here"))

    # A peer that has begun anew.

    def told_run(self, run: str) -> None:
        """Know what the peer's ids begin with now: what it called by others before, it may have forgotten."""
        common = self._common
        if run == common.run:
            return
        common.run = run
        for asking in self._asking.values():
            if asking.a and not common.is_of_run(asking.a):
                asking.a = ""  # it may be no name any more by which the request could be cancelled
                if asking.state in _DOUBTFUL:
                    asking.fresh = False
                    self._line.renew(asking)

    def _begun_anew(self, asking: Asking, a: str, now: float) -> None:
        """Let a stream go if the peer, which is another one since its beginning, answers on another backchannel now.

        The first run is dead then. What it said is never followed by what the second one says, as nobody can tell
        whether that is the same: either none of it was given on, or it can be forgotten, or the call is lost.
        """
        receiver, common = asking.receiver, self._common
        if receiver is None or receiver.i == a or asking.state is Asked.CANCELLED:
            return
        if not common.is_of_run(a) or common.is_of_run(receiver.i):
            return
        asking.a, parts = a, receiver.next - 1
        if parts and not self._is_forgotten(asking.hub_id):
            came = "1 part of it" if parts == 1 else f"{parts} parts of it"
            text = f"the hub has begun anew in the middle of the answer: {came} had come, and the rest is lost"
            self._fail(asking, Reason.LOST, text, now)
            return
        receiver.close()
        asking.receiver = None

    def _is_forgotten(self, hub_id: str | None) -> bool:
        """Whether nobody minds that parts of an answer were given on; those that are about to be are not known yet."""
        if hub_id is None:
            return True
        return all(getattr(word, "id", None) != hub_id for word in self._words) and self._common.forget(hub_id)

    # Time.

    def expire(self, now: float) -> None:
        """Give up what is too old."""
        while self._cancelled and (self._cancelled[0].expires_at <= now or self._cancelled[0].state is Asked.DONE):
            asking = self._cancelled.popleft()
            if asking.state is not Asked.DONE:
                self._finish(asking, Step.EXPIRE)
        while self._ages and (asking := next(iter(self._ages.values()))).expires_at <= now:
            hub_id = asking.hub_id
            self._common.following.pop(asking.topic, None)
            self._finish(asking, Step.EXPIRE)
            if hub_id is not None:
                self._words.append(hub.Failure(hub_id, Reason.TIMEOUT, "the peer never answered"))

    def deadline(self) -> float | None:
        """Return when the oldest request is to be given up."""
        while self._cancelled and self._cancelled[0].state is Asked.DONE:
            self._cancelled.popleft()
        oldest = next(iter(self._ages.values())).expires_at if self._ages else None
        if not self._cancelled:
            return oldest
        return self._cancelled[0].expires_at if oldest is None else min(self._cancelled[0].expires_at, oldest)

    def renew(self) -> None:
        """Say all of it again, over another link."""
        for asking in self._asking.values():
            self._line.renew(asking)
            if asking.sender is not None and asking.sender.parts:
                self._line.renew(asking.sender)

    def export(self, now: float) -> list[dict[str, object]]:
        """Return all that is needed to go on elsewhere."""
        return [asking.export(now) for asking in self._asking.values()]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Go on where another has stopped."""
        for each in saved:
            self._open(Asking.restore(self._common, each, now))
        self._ages = OrderedDict(sorted(self._ages.items(), key=lambda item: item[1].expires_at))
        self._cancelled = deque(sorted(self._cancelled, key=lambda asking: asking.expires_at))
