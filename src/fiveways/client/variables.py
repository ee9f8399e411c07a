"""Session variables: those of the client, which other peers can read, and those that the hub set for it."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from fiveways.app.context import HubApi
from fiveways.client.restore_requests import Requester, RestoreRequest
from fiveways.client.session import Session
from fiveways.errors import CallError, Unrepresentable
from fiveways.model.messages import SetVariable, UnsetVariable
from fiveways.wire.payload import Value


class VariableState:
    """All variables of one client. The hub limits the number of the client's, the conversation that of the hub's."""

    def __init__(self, requester: Requester, initial: Mapping[str, object] = MappingProxyType({})) -> None:
        """Create the state; the `initial` variables are set on the first connection."""
        self._requester = requester
        self._own: dict[str, object] = dict(initial)
        self._from_hub: dict[str, object] = {}
        self.from_hub: Mapping[str, object] = MappingProxyType(self._from_hub)

    async def set(self, name: str, value: object) -> None:
        """Set a variable, now and after each reconnect."""
        await self._requester.request_idempotent(partial(_set_message, name, value))
        self._own[name] = value

    async def unset(self, name: str) -> None:
        """Delete a variable."""
        self._own.pop(name, None)
        await self._requester.request_idempotent(lambda _, call_id: UnsetVariable(call_id, name))

    def restore_requests(self) -> list[RestoreRequest]:
        """Return the requests that restore the variables in a new session."""
        return [
            RestoreRequest(f"variable {name}", partial(_set_message, name, value), _ignore_refusal)
            for name, value in self._own.items()
        ]

    def handle_message(self, message: SetVariable | UnsetVariable) -> None:
        """Apply a change by the hub."""
        if isinstance(message, UnsetVariable):
            self._from_hub.pop(message.name, None)
            return
        try:
            self._from_hub[message.name] = message.body.value()
        except Unrepresentable:
            self._from_hub[message.name] = None

    def clear_hub_variables(self) -> None:
        """Forget the hub's variables, which a new session does not have."""
        self._from_hub.clear()


class Vars:
    """Variables of a session, `peer.vars`. All peers can read them at the hub. They are restored after a reconnect.

    `set`, `unset` and `get` raise a `CallError` if the hub refuses or does not answer in time, and `ConnectionLost` if
    the connection is closed for good.
    """

    def __init__(self, variables: VariableState, hub: HubApi) -> None:
        self._variables = variables
        self._hub = hub

    @property
    def theirs(self) -> Mapping[str, object]:
        """Read-only view of the variables that the hub set for this session."""
        return self._variables.from_hub

    async def set(self, name: str, value: object) -> None:
        """Set a variable: `await peer.vars.set("language", "cs")`."""
        await self._variables.set(name, value)

    async def unset(self, name: str) -> None:
        """Delete a variable."""
        await self._variables.unset(name)

    async def get(self, name: str, *, peer: str = "") -> object:
        """Return a variable of this session, or of another one: `await peer.vars.get("language", peer=session)`."""
        return await self._hub.call("hub.get", {"name": name, **({"peer": peer} if peer else {})})


def _set_message(name: str, value: object, _: Session, call_id: str) -> SetVariable:
    return SetVariable(call_id, name, Value(value))


def _ignore_refusal(_: CallError | None) -> None:
    """Do nothing: the refusal is logged, and the next connection retries."""
