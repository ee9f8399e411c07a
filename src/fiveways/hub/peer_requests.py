"""Requests of an application in this process to one of its callers."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from fiveways.errors import LocalProtocolError, Reason
from fiveways.hub.admission import Admission
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.registrations import Registrations
from fiveways.hub.router import Router
from fiveways.hub.session import Session, Stage
from fiveways.hub.updates import Updates
from fiveways.model.messages import Call, Failure, Goodbye, Result, SetVariable, UnsetVariable
from fiveways.model.names import BadName, fold
from fiveways.model.outcomes import unsendable_reason
from fiveways.wire.limits import Limits

_SET_METHOD: Final = "hub.set"
"""The method name under which changes of a peer's variables are counted."""


class PeerRequests:
    """Calls, callbacks, variables and session ends for one peer; a refused request raises Refusal."""

    def __init__(
        self,
        limits: Limits,
        sessions: Mapping[str, Session],
        pending_calls: PendingCalls,
        registrations: Registrations,
        callbacks: Callbacks,
        router: Router,
        admission: Admission,
    ) -> None:
        self._max_variables = limits.max_variables
        self._sessions = sessions
        self._pending_calls = pending_calls
        self._registrations = registrations
        self._callbacks = callbacks
        self._router = router
        self._admission = admission
        self._variables: dict[str, set[str]] = {}
        """Names of the hub's variables on each peer."""

    def call(self, app: str, peer: str, message: Call, now: float) -> Deliveries:
        """Call a method that a peer serves on its connection, registered or not."""
        callee = self._open_session(peer)
        if not callee.traits.is_single_peer:
            text = f"a session of {callee.traits.protocol} may belong to several programs: call registered methods"
            raise Refusal(Reason.UNAVAILABLE, text)
        try:
            name = fold(message.method, callee.traits.names)
        except BadName as exc:
            raise Refusal(Reason.NO_SUCH_METHOD, str(exc)) from exc
        spelling, collects_stream = self._registrations.registered_spelling(callee, name)
        call = replace(message, method=name)
        return self._router.forward(
            self._sessions[app], call, callee, name, spelling or message.method, collects_stream, now
        )

    def callback(self, app: str, peer: str, message: Call, now: float) -> Deliveries:
        """Call a one-shot callback of a peer, by the hub's token or by the peer's own id."""
        callee, token = self._open_session(peer), message.method.lower()
        callback = self._callbacks.find(token)
        if callback is None or callback.owner is not callee:
            return self._router.forward(self._sessions[app], message, callee, message.method, "", False, now)
        deliveries = self._router.forward(self._sessions[app], message, callee, callback.id, "", False, now)
        self._callbacks.consume(token)
        return deliveries

    def set_variable(self, app: str, peer: str, message: SetVariable | UnsetVariable, now: float) -> Deliveries:
        """Set or unset a variable of the hub on one peer; the hub stores only its name."""
        callee = self._open_session(peer)
        if not callee.traits.has_variables:
            raise Refusal(Reason.UNAVAILABLE, f"{callee.traits.protocol} has no variables that the hub could set")
        if not message.name or any(character < " " for character in message.name):
            raise bad_arguments("a variable's name is a text without control characters")
        names = self._variables.setdefault(peer, set())
        if isinstance(message, UnsetVariable):
            names.discard(message.name)
        elif message.name not in names and len(names) >= self._max_variables:
            raise overloaded(f"more than {self._max_variables} variables")
        else:
            names.add(message.name)
        request_id = message.id or ""
        pending = self._pending_calls.open(
            self._sessions[app], request_id, callee, _SET_METHOD, self._pending_calls.default_timeout, now
        )
        self._pending_calls.close(pending, now)
        delivery = Delivery(peer, replace(message, id=None), pending.op, pending)
        return [delivery, Delivery(app, Result(request_id), pending.op, pending)]

    def handle_undelivered(
        self, message: SetVariable | UnsetVariable, pending: PendingCall, error: LocalProtocolError, now: float
    ) -> Deliveries:
        """Fail the request of an application after its variable could not be sent."""
        self._variables.get(pending.callee.peer, set()).discard(message.name)
        reason, text = unsendable_reason(error), str(error)
        self._pending_calls.fail_closed(pending, reason, text, now)
        return [Delivery(pending.caller.peer, Failure(pending.id, reason, text), pending.op)]

    def take_updates(self, updates: Updates, app: str, peer: str, name: str, _now: float) -> Deliveries:
        """Subscribe an application to the updates of a peer on a topic id."""
        updates.accept(self._sessions[app], self._open_session(peer), name)
        return []

    def close(self, peer: str, text: str) -> Deliveries:
        """End the session of a peer, with a reason in its own protocol."""
        callee = self._open_session(peer)
        if not callee.traits.is_single_peer or callee.credentials.is_trusted:
            text = f"a session of {callee.traits.protocol} may belong to several programs, so it cannot be closed"
            raise Refusal(Reason.UNAVAILABLE, text)
        return self._admission.send_away(callee, Goodbye(text))

    def leave(self, session: Session) -> None:
        """Forget the variables on a peer."""
        self._variables.pop(session.peer, None)

    def _open_session(self, peer: str) -> Session:
        session = self._sessions.get(peer)
        if session is None or session.stage is not Stage.OPEN:
            raise Refusal(Reason.UNAVAILABLE, "the caller is gone")
        return session
