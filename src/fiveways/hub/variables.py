"""Session variables, which other peers can read."""

from typing import Final

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.admission import Admission
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.session import Session
from fiveways.hub.sizes import size_of
from fiveways.model.bidi_controls import find_bidi_control
from fiveways.model.messages import Result, SetVariable, UnsetVariable
from fiveways.wire.limits import Limits

TOKEN_VARIABLE: Final = "token"  # noqa: S105  the name of a variable
"""Never stored: setting it authenticates the session."""


class Variables:
    """The variables of all sessions."""

    def __init__(self, limits: Limits, admission: Admission) -> None:
        self._limits = limits
        self._admission = admission
        self._bytes: dict[str, int] = {}
        """Bytes of each session's variables, names included."""

    def handle_set(self, session: Session, message: SetVariable, now: float) -> Deliveries:
        """Set a variable; raise Refusal if it is too large, or if there are too many."""
        if message.attachments:
            raise bad_arguments("a variable cannot have attachments")
        if message.name == TOKEN_VARIABLE:
            return self._admission.handle_token(session, message, now)
        name = message.name.encode(errors="surrogatepass")
        if not 0 < len(name) <= self._limits.max_name:
            raise bad_arguments(f"a variable's name has 1 to {self._limits.max_name} bytes")
        if control := find_bidi_control(message.name):
            raise bad_arguments(f"a variable's name may not contain {control!r}")
        variables = session.variables
        if message.name not in variables and len(variables) >= self._limits.max_variables:
            raise overloaded(f"more than {self._limits.max_variables} variables")
        try:
            size = len(name) + size_of(message.body)
        except Unrepresentable as exc:
            raise bad_arguments(str(exc)) from exc
        total = self._bytes.get(session.peer, 0) - self._size(session, message.name) + size
        if total > self._limits.max_text:
            raise Refusal(Reason.TOO_LARGE, f"more than {self._limits.max_text} bytes of variables")
        variables[message.name] = message.body
        self._bytes[session.peer] = total
        return [] if message.id is None else [Delivery(session.peer, Result(message.id))]

    def handle_unset(self, session: Session, message: UnsetVariable, _now: float) -> Deliveries:
        """Unset a variable, if it is set."""
        if message.name in session.variables:
            self._bytes[session.peer] -= self._size(session, message.name)
            del session.variables[message.name]
        return [] if message.id is None else [Delivery(session.peer, Result(message.id))]

    def leave(self, session: Session) -> None:
        """Stop counting the variables of a session; the holder of its table may still read them."""
        self._bytes.pop(session.peer, None)

    def _size(self, session: Session, name: str) -> int:
        body = session.variables.get(name)
        return 0 if body is None else len(name.encode(errors="surrogatepass")) + size_of(body)
