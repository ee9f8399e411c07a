"""The table of our open requests: their ends, expiry and restoration."""

from collections import OrderedDict, deque
from typing import Any, Final

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.protocols.nq.messages import Ids
from fiveways.protocols.nq.requests import OutgoingRequest
from fiveways.protocols.nq.session_state import SessionState
from fiveways.protocols.nq.states import OutgoingState, RequestStep

_STATES_TO_CONFIRM: Final = frozenset({OutgoingState.STREAMING, OutgoingState.CANCELLED})
"""In these states a request is retransmitted at once after a restart of the peer."""


class OutgoingRequests:
    """The base class of `Outgoing` with the table of our requests."""

    def __init__(self, shared: SessionState) -> None:
        self._shared = shared
        self._retransmission = shared.retransmission
        self._hub_messages = shared.hub_messages
        self._requests: dict[str, OutgoingRequest] = {}
        self._by_expiry: OrderedDict[str, OutgoingRequest] = OrderedDict()
        """By r, ordered by expiry, without the cancelled ones."""
        self._by_id: dict[str, OutgoingRequest] = {}
        self._cancelled: deque[OutgoingRequest] = deque()
        self._event_count = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, hub_id: str | None) -> bool:
        return hub_id in self._by_id

    def find(self, r: str) -> OutgoingRequest | None:
        """Return the open request with this identifier, if any."""
        return self._requests.get(r)

    def _add(self, request: OutgoingRequest) -> None:
        self._requests[request.r] = request
        self._shared.request_budget.used += len(request.data)
        if request.state is OutgoingState.CANCELLED:
            self._cancelled.append(request)
        else:
            self._by_expiry[request.r] = request
        if request.hub_id is not None:
            self._by_id[request.hub_id] = request
        self._event_count += request.message_type is hub.Event

    def _finish(self, request: OutgoingRequest, step: RequestStep) -> None:
        request.advance(step)
        request.close()
        del self._requests[request.r]
        self._by_expiry.pop(request.r, None)
        self._event_count -= request.message_type is hub.Event
        if request.hub_id is not None:
            del self._by_id[request.hub_id]

    def _cancel(self, request: OutgoingRequest, now: float) -> None:
        """Cancel a request and retransmit the cancellation for a while."""
        request.advance(RequestStep.CANCEL)
        request.close()
        self._shared.own_subscriptions.pop(request.topic, None)
        if request.hub_id is not None:
            del self._by_id[request.hub_id]
            request.hub_id = None
        self._by_expiry.pop(request.r, None)
        request.expires_at = now + self._shared.options.longest_wait
        self._cancelled.append(request)
        self._retransmission.resend_now(request)

    def _fail(self, request: OutgoingRequest, reason: Reason, text: str, now: float) -> None:
        """Send the hub a failure, and the peer a cancellation."""
        hub_id = request.hub_id
        self._cancel(request, now)
        if hub_id is not None:
            self._hub_messages.append(hub.Failure(hub_id, reason, text))

    def _report_stray(self, ids: Ids) -> None:
        """Report an answer to a request that was never made, once per message. Repeated answers are not reported."""
        stray = next((r for r in ids if r not in self._requests and not self._shared.is_ours(r)), None)
        if stray is not None:
            self._hub_messages.append(hub.Stray(stray, "an answer to a request that was never sent"))

    # Restarts of the peer.

    def on_peer_run(self, run: str) -> None:
        """Store the new prefix of the peer's ids; the peer may not know earlier ids any more."""
        shared = self._shared
        if run == shared.peer_run:
            return
        shared.peer_run = run
        for request in self._requests.values():
            if request.a and not shared.is_of_run(request.a):
                request.a = ""  # the peer may not accept a cancellation by this id any more
                if request.state in _STATES_TO_CONFIRM:
                    request.has_recent_part = False
                    self._retransmission.resend_now(request)

    def _check_peer_restart(self, request: OutgoingRequest, a: str, now: float) -> None:
        """Drop a stream if the peer restarted after its beginning and now answers on another backchannel.

        The first run cannot continue. Its parts must not be mixed with those of the second run, because they may
        differ. So either no part was delivered, or the parts are revoked, or the call fails.
        """
        receiver, shared = request.receiver, self._shared
        if receiver is None or receiver.i == a or request.state is OutgoingState.CANCELLED:
            return
        if not shared.is_of_run(a) or shared.is_of_run(receiver.i):
            return
        request.a, parts = a, receiver.next - 1
        if parts and not self._can_restart_answer(request.hub_id):
            received = "1 part of it" if parts == 1 else f"{parts} parts of it"
            text = f"the hub restarted in the middle of the answer: {received} arrived, the rest is lost"
            self._fail(request, Reason.LOST, text, now)
            return
        receiver.close()
        request.receiver = None

    def _can_restart_answer(self, hub_id: str | None) -> bool:
        """Return whether no part was delivered, or all were revoked; parts in the hub's queue cannot be revoked."""
        if hub_id is None:
            return True
        return all(
            getattr(message, "id", None) != hub_id for message in self._hub_messages
        ) and self._shared.try_forget_parts(hub_id)

    # Time.

    def expire(self, now: float) -> None:
        """Fail expired requests and drop expired cancellations."""
        while self._cancelled and (
            self._cancelled[0].expires_at <= now or self._cancelled[0].state is OutgoingState.DONE
        ):
            request = self._cancelled.popleft()
            if request.state is not OutgoingState.DONE:
                self._finish(request, RequestStep.EXPIRE)
        while self._by_expiry and (request := next(iter(self._by_expiry.values()))).expires_at <= now:
            hub_id = request.hub_id
            self._shared.own_subscriptions.pop(request.topic, None)
            self._finish(request, RequestStep.EXPIRE)
            if hub_id is not None:
                self._hub_messages.append(
                    hub.Failure(hub_id, Reason.TIMEOUT, "the peer did not answer before the request expired")
                )

    def deadline(self) -> float | None:
        """Return the expiry of the oldest request."""
        while self._cancelled and self._cancelled[0].state is OutgoingState.DONE:
            self._cancelled.popleft()
        oldest = next(iter(self._by_expiry.values())).expires_at if self._by_expiry else None
        if not self._cancelled:
            return oldest
        return self._cancelled[0].expires_at if oldest is None else min(self._cancelled[0].expires_at, oldest)

    def resend_all(self) -> None:
        """Retransmit everything on another connection."""
        for request in self._requests.values():
            self._retransmission.resend_now(request)
            if request.sender is not None and request.sender.parts:
                self._retransmission.resend_now(request.sender)

    def export(self, now: float) -> list[dict[str, object]]:
        """Return the state for `restore`."""
        return [request.export(now) for request in self._requests.values()]

    def restore(self, saved: list[dict[str, Any]], now: float) -> None:
        """Restore the exported requests."""
        for entry in saved:
            self._add(OutgoingRequest.restore(self._shared, entry, now))
        self._by_expiry = OrderedDict(sorted(self._by_expiry.items(), key=lambda item: item[1].expires_at))
        self._cancelled = deque(sorted(self._cancelled, key=lambda request: request.expires_at))
