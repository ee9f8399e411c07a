"""Variables: ours, which the hub and others can read, and those that the hub set for us."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from fiveways.app.context import Reach
from fiveways.client.session import Session
from fiveways.client.wanted import Asker, Wanted
from fiveways.errors import CallError, Unrepresentable
from fiveways.model.messages import SetVariable, UnsetVariable
from fiveways.wire.payload import Value


class Variables:
    """All of one client. How many there may be, the hub decides for ours, and the conversation for the hub's."""

    def __init__(self, asker: Asker, ours: Mapping[str, object] = MappingProxyType({})) -> None:
        """Make it; `ours` are set on the first connection already."""
        self._asker = asker
        self._ours: dict[str, object] = dict(ours)
        self._theirs: dict[str, object] = {}
        self.theirs: Mapping[str, object] = MappingProxyType(self._theirs)

    async def set(self, name: str, value: object) -> None:
        """Set one, and keep it set over a lost connection."""
        await self._asker.settle(partial(_set, name, value))
        self._ours[name] = value

    async def unset(self, name: str) -> None:
        """Take one back."""
        self._ours.pop(name, None)
        await self._asker.settle(lambda _, call_id: UnsetVariable(call_id, name))

    def wanted(self) -> list[Wanted]:
        """Return what a new session must be asked for."""
        return [Wanted(f"variable {name}", partial(_set, name, value), _ignore) for name, value in self._ours.items()]

    def heard(self, word: SetVariable | UnsetVariable) -> None:
        """Take what the hub sets."""
        if isinstance(word, UnsetVariable):
            self._theirs.pop(word.name, None)
            return
        try:
            self._theirs[word.name] = word.body.value()
        except Unrepresentable:
            self._theirs[word.name] = None

    def forget_theirs(self) -> None:
        """Know that a new connection has begun, on which the hub has set nothing yet."""
        self._theirs.clear()


class Vars:
    """Variables of our session, `peer.vars`: everyone can read them at the hub, and they survive a reconnect."""

    def __init__(self, variables: Variables, reach: Reach) -> None:
        self._variables = variables
        self._reach = reach

    @property
    def theirs(self) -> Mapping[str, object]:
        """What the hub has set for us."""
        return self._variables.theirs

    async def set(self, name: str, value: object) -> None:
        """Set one: `await peer.vars.set("language", "cs")`."""
        await self._variables.set(name, value)

    async def unset(self, name: str) -> None:
        """Take one back."""
        await self._variables.unset(name)

    async def get(self, name: str, *, peer: str = "") -> object:
        """Read one of ours, or of another session: `await peer.vars.get("language", peer=session)`."""
        return await self._reach.call("hub.get", {"name": name, **({"peer": peer} if peer else {})})


def _set(name: str, value: object, _: Session, call_id: str) -> SetVariable:
    return SetVariable(call_id, name, Value(value))


def _ignore(_: CallError | None) -> None:
    """A refusal has been logged, and the next connection may grant it."""
