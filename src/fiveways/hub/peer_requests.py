"""Requests of an application in this process that are for one certain peer: the one that called it."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from fiveways.errors import LocalProtocolError
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.gate import Gate
from fiveways.hub.offers import Offers
from fiveways.hub.refusal import Refusal, bad, busy
from fiveways.hub.router import Router
from fiveways.hub.session import Session, Stage
from fiveways.hub.updates import Updates
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure, Goodbye, Result, SetVariable, UnsetVariable
from fiveways.model.names import BadName, fold
from fiveways.model.outcomes import reason_unsaid
from fiveways.wire.limits import Limits

_SET: Final = "hub.set"
"""The name under which it is counted when a variable is set on a peer, or unset."""


class PeerRequests:
    """Calls, callbacks, variables and the end of a session, toward one peer. A Refusal says why not."""

    def __init__(
        self,
        limits: Limits,
        sessions: Mapping[str, Session],
        calls: Calls,
        offers: Offers,
        callbacks: Callbacks,
        router: Router,
        gate: Gate,
    ) -> None:
        self._max_variables = limits.max_variables
        self._sessions = sessions
        self._calls = calls
        self._offers = offers
        self._callbacks = callbacks
        self._router = router
        self._gate = gate
        self._variables: dict[str, set[str]] = {}
        """Names that are set on each peer."""

    def call(self, app: str, to: str, word: Call, now: float) -> Deliveries:
        """Call a method that a peer serves on its connection, whether or not it has registered it."""
        callee = self._peer(to)
        if not callee.traits.is_one_peer:
            text = f"a session of {callee.traits.protocol} is not one peer's alone: call its services as everybody does"
            raise Refusal(Reason.UNAVAILABLE, text)
        try:
            name = fold(word.method, callee.traits.names)
        except BadName as exc:
            raise Refusal(Reason.NO_METHOD, str(exc)) from exc
        spelling, gives_array = self._offers.own(callee, name)
        call = replace(word, method=name)
        return self._router.forward(self._sessions[app], call, callee, name, spelling or word.method, gives_array, now)

    def callback(self, app: str, to: str, word: Call, now: float) -> Deliveries:
        """Call a one-shot callback of a peer: by a token that the hub made for it, else by the peer's own id."""
        callee, token = self._peer(to), word.method.lower()
        callback = self._callbacks.find(token)
        if callback is None or callback.owner is not callee:
            return self._router.forward(self._sessions[app], word, callee, word.method, "", False, now)
        deliveries = self._router.forward(self._sessions[app], word, callee, callback.id, "", False, now)
        self._callbacks.use(token)
        return deliveries

    def set_variable(self, app: str, to: str, word: SetVariable | UnsetVariable, now: float) -> Deliveries:
        """Set or unset a variable of the hub's own that one peer can read; what the hub knows of it is the name."""
        callee = self._peer(to)
        if not callee.traits.variables:
            raise Refusal(Reason.UNAVAILABLE, f"{callee.traits.protocol} has no variables that the hub could set")
        if not word.name or any(character < " " for character in word.name):
            raise bad("a variable's name is a text without control characters")
        names = self._variables.setdefault(to, set())
        if isinstance(word, UnsetVariable):
            names.discard(word.name)
        elif word.name not in names and len(names) >= self._max_variables:
            raise busy(f"more than {self._max_variables} variables")
        else:
            names.add(word.name)
        request = word.id or ""
        pending = self._calls.open(self._sessions[app], request, callee, _SET, self._calls.default, now)
        self._calls.close(pending, now)
        told = Delivery(to, replace(word, id=None), pending.op, pending)
        return [told, Delivery(app, Result(request), pending.op, pending)]

    def unsaid(
        self, word: SetVariable | UnsetVariable, done: Pending, error: LocalProtocolError, now: float
    ) -> Deliveries:
        """Tell the application that a variable could not be set after all."""
        self._variables.get(done.callee.peer, set()).discard(word.name)
        reason, text = reason_unsaid(error), str(error)
        self._calls.fail(done, reason, text, now)
        return [Delivery(done.caller.peer, Failure(done.id, reason, text), done.op)]

    def take_updates(self, updates: Updates, app: str, to: str, name: str, _now: float) -> Deliveries:
        """Have an application take what a peer publishes under a topic id."""
        updates.open(self._sessions[app], self._peer(to), name)
        return []

    def close(self, to: str, text: str) -> Deliveries:
        """End the session of a peer, with a word in its own protocol."""
        callee = self._peer(to)
        if not callee.traits.is_one_peer or callee.credentials.is_trusted:
            text = f"a session of {callee.traits.protocol} is not one peer's alone, and cannot be closed"
            raise Refusal(Reason.UNAVAILABLE, text)
        return self._gate.part(callee, Goodbye(text))

    def leave(self, session: Session) -> None:
        """Forget what was set on a peer."""
        self._variables.pop(session.peer, None)

    def _peer(self, peer: str) -> Session:
        session = self._sessions.get(peer)
        if session is None or session.stage is not Stage.OPEN:
            raise Refusal(Reason.UNAVAILABLE, "the peer that called is gone")
        return session
