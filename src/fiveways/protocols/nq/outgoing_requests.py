"""The requests of ours that are open: how each of them ends, when it is given up, and what it outlives."""

from collections import OrderedDict, deque
from typing import Any, Final

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.protocols.nq.messages import Ids
from fiveways.protocols.nq.requests import OutgoingRequest
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import OutgoingState, RequestStep

_STATES_TO_CONFIRM: Final = frozenset({OutgoingState.STREAMING, OutgoingState.CANCELLED})
"""In these, the peer is told of a request at once when it is another one since."""


class OutgoingRequests:
    """The lower half of `Outgoing`: the table of our requests."""

    def __init__(self, common: SessionState) -> None:
        self._shared = common
        self._retransmission = common.retransmission
        self._hub_messages = common.hub_messages
        self._requests: dict[str, OutgoingRequest] = {}
        self._by_expiry: OrderedDict[str, OutgoingRequest] = OrderedDict()
        """By r, in the order in which they expire; the cancelled ones are not among them."""
        self._by_id: dict[str, OutgoingRequest] = {}
        self._cancelled: deque[OutgoingRequest] = deque()
        self._event_count = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def find(self, r: str) -> OutgoingRequest | None:
        """Return the open request of this identifier."""
        return self._requests.get(r)

    def _add(self, asking: OutgoingRequest) -> None:
        self._requests[asking.r] = asking
        self._shared.request_budget.used += len(asking.data)
        if asking.state is OutgoingState.CANCELLED:
            self._cancelled.append(asking)
        else:
            self._by_expiry[asking.r] = asking
        if asking.hub_id is not None:
            self._by_id[asking.hub_id] = asking
        self._event_count += asking.message_type is hub.Event

    def _finish(self, asking: OutgoingRequest, step: RequestStep) -> None:
        asking.advance(step)
        asking.close()
        del self._requests[asking.r]
        self._by_expiry.pop(asking.r, None)
        self._event_count -= asking.message_type is hub.Event
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]

    def _cancel(self, asking: OutgoingRequest, now: float) -> None:
        """Tell the peer so again and again, for a while."""
        asking.advance(RequestStep.CANCEL)
        asking.close()
        self._shared.own_subscriptions.pop(asking.topic, None)
        if asking.hub_id is not None:
            del self._by_id[asking.hub_id]
            asking.hub_id = None
        self._by_expiry.pop(asking.r, None)
        asking.expires_at = now + self._shared.options.longest_wait
        self._cancelled.append(asking)
        self._retransmission.resend_now(asking)

    def _fail(self, asking: OutgoingRequest, reason: Reason, text: str, now: float) -> None:
        """Tell the hub that no answer will come, and the peer that none is wanted."""
        hub_id = asking.hub_id
        self._cancel(asking, now)
        if hub_id is not None:
            self._hub_messages.append(hub.Failure(hub_id, reason, text))

    def _report_stray(self, ids: Ids) -> None:
        """Take note, once, of an answer to what was never asked; one that only comes again is none of these."""
        stray = next((r for r in ids if r not in self._requests and not self._shared.is_ours(r)), None)
        if stray is not None:
            self._hub_messages.append(hub.Stray(stray, "an answer to a request that was never made here"))

    # A peer that has begun anew.

    def on_peer_run(self, run: str) -> None:
        """Know what the peer's ids begin with now: what it called by others before, it may have forgotten."""
        common = self._shared
        if run == common.peer_run:
            return
        common.peer_run = run
        for asking in self._requests.values():
            if asking.a and not common.is_of_run(asking.a):
                asking.a = ""  # it may be no name any more by which the request could be cancelled
                if asking.state in _STATES_TO_CONFIRM:
                    asking.has_recent_part = False
                    self._retransmission.resend_now(asking)

    def _check_peer_restart(self, asking: OutgoingRequest, a: str, now: float) -> None:
        """Let a stream go if the peer, which is another one since its beginning, answers on another backchannel now.

        The first run is dead then. What it said is never followed by what the second one says, as nobody can tell
        whether that is the same: either none of it was given on, or it can be forgotten, or the call is lost.
        """
        receiver, common = asking.receiver, self._shared
        if receiver is None or receiver.i == a or asking.state is OutgoingState.CANCELLED:
            return
        if not common.is_of_run(a) or common.is_of_run(receiver.i):
            return
        asking.a, parts = a, receiver.next - 1
        if parts and not self._can_restart_answer(asking.hub_id):
            came = "1 part of it" if parts == 1 else f"{parts} parts of it"
            text = f"the hub has begun anew in the middle of the answer: {came} had come, and the rest is lost"
            self._fail(asking, Reason.LOST, text, now)
            return
        receiver.close()
        asking.receiver = None

    def _can_restart_answer(self, hub_id: str | None) -> bool:
        """Whether nobody minds that parts of an answer were given on; those that are about to be are not known yet."""
        if hub_id is None:
            return True
        return all(
            getattr(message, "id", None) != hub_id for message in self._hub_messages
        ) and self._shared.try_forget_parts(hub_id)

    # Time.

    def expire(self, now: float) -> None:
        """Give up what is too old."""
        while self._cancelled and (
            self._cancelled[0].expires_at <= now or self._cancelled[0].state is OutgoingState.DONE
        ):
            asking = self._cancelled.popleft()
            if asking.state is not OutgoingState.DONE:
                self._finish(asking, RequestStep.EXPIRE)
        while self._by_expiry and (asking := next(iter(self._by_expiry.values()))).expires_at <= now:
            hub_id = asking.hub_id
            self._shared.own_subscriptions.pop(asking.topic, None)
            self._finish(asking, RequestStep.EXPIRE)
            if hub_id is not None:
                self._hub_messages.append(hub.Failure(hub_id, Reason.TIMEOUT, "the peer never answered"))

    def deadline(self) -> float | None:
        """Return when the oldest request is to be given up."""
        while self._cancelled and self._cancelled[0].state is OutgoingState.DONE:
            self._cancelled.popleft()
        oldest = next(iter(self._by_expiry.values())).expires_at if self._by_expiry else None
        if not self._cancelled:
            return oldest
        return self._cancelled[0].expires_at if oldest is None else min(self._cancelled[0].expires_at, oldest)

    def resend_all(self) -> None:
        """Say all of it again, over another link."""
        for asking in self._requests.values():
            self._retransmission.resend_now(asking)
            if asking.sender is not None and asking.sender.parts:
                self._retransmission.resend_now(asking.sender)

    def export(self, now: float) -> list[dict[str, object]]:
        """Return all that is needed to go on elsewhere."""
        return [asking.export(now) for asking in self._requests.values()]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Go on where another has stopped."""
        for each in saved:
            self._add(OutgoingRequest.restore(self._shared, each, now))
        self._by_expiry = OrderedDict(sorted(self._by_expiry.items(), key=lambda item: item[1].expires_at))
        self._cancelled = deque(sorted(self._cancelled, key=lambda asking: asking.expires_at))
