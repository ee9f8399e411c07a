"""Variables: ours, which the hub and others can read, and those that the hub set for us."""

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
    """All of one client. How many there may be, the hub decides for ours, and the conversation for the hub's."""

    def __init__(self, asker: Requester, ours: Mapping[str, object] = MappingProxyType({})) -> None:
        """Make it; `ours` are set on the first connection already."""
        self._requester = asker
        self._own: dict[str, object] = dict(ours)
        self._from_hub: dict[str, object] = {}
        self.from_hub: Mapping[str, object] = MappingProxyType(self._from_hub)

    async def set(self, name: str, value: object) -> None:
        """Set one, and keep it set over a lost connection."""
        await self._requester.request_idempotent(partial(_set_message, name, value))
        self._own[name] = value

    async def unset(self, name: str) -> None:
        """Take one back."""
        self._own.pop(name, None)
        await self._requester.request_idempotent(lambda _, call_id: UnsetVariable(call_id, name))

    def restore_requests(self) -> list[RestoreRequest]:
        """Return what a new session must be asked for."""
        return [
            RestoreRequest(f"variable {name}", partial(_set_message, name, value), _ignore_refusal)
            for name, value in self._own.items()
        ]

    def handle_message(self, word: SetVariable | UnsetVariable) -> None:
        """Take what the hub sets."""
        if isinstance(word, UnsetVariable):
            self._from_hub.pop(word.name, None)
            return
        try:
            self._from_hub[word.name] = word.body.value()
        except Unrepresentable:
            self._from_hub[word.name] = None

    def clear_hub_variables(self) -> None:
        """Know that a new connection has begun, on which the hub has set nothing yet."""
        self._from_hub.clear()


class Vars:
    """Variables of our session, `peer.vars`: everyone can read them at the hub, and they survive a reconnect."""

    def __init__(self, variables: VariableState, reach: HubApi) -> None:
        self._variables = variables
        self._hub = reach

    @property
    def theirs(self) -> Mapping[str, object]:
        """What the hub has set for us."""
        return self._variables.from_hub

    async def set(self, name: str, value: object) -> None:
        """Set one: `await peer.vars.set("language", "cs")`."""
        await self._variables.set(name, value)

    async def unset(self, name: str) -> None:
        """Take one back."""
        await self._variables.unset(name)

    async def get(self, name: str, *, peer: str = "") -> object:
        """Read one of ours, or of another session: `await peer.vars.get("language", peer=session)`."""
        return await self._hub.call("hub.get", {"name": name, **({"peer": peer} if peer else {})})


def _set_message(name: str, value: object, _: Session, call_id: str) -> SetVariable:
    return SetVariable(call_id, name, Value(value))


def _ignore_refusal(_: CallError | None) -> None:
    """A refusal has been logged, and the next connection may grant it."""
