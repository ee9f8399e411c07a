"""The peer that made a call, as the method reaches it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fiveways.app.responses import Reply

if TYPE_CHECKING:
    from fiveways.app.updates import Updates

# ruff: noqa: ASYNC109  a timeout is the hub's to keep


class CallingPeer(ABC):
    """The peer that made a call. It may be kept: it can be reached until its session ends.

    Every verb raises a `CallError` if it fails: `NotExecuted` if the peer is gone, or its protocol has no such thing;
    `CallLost` if it leaves meanwhile.
    """

    peer: str
    """Its session at the hub."""
    protocol: str
    identity: str
    """Who it has shown to be; empty for the anonymous."""

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that it has set."""
        return self.vars

    @property
    @abstractmethod
    def vars(self) -> "CallerVars":
        """Its variables, to be read: `context.caller.vars["language"]`; and those that are set on it."""

    @abstractmethod
    async def call(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call a method that the caller's own program serves on its connection, as that program writes the name."""

    @abstractmethod
    async def call_reply(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Reply:
        """Call a method likewise, and return its value with its attachments once they have all come."""

    @abstractmethod
    async def callback(
        self, token: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call a callback of the caller, good for one call, by the id or the token that it handed over."""

    @abstractmethod
    def updates(self, topic_id: str) -> "Updates":
        """Take what the caller publishes under a topic id of its own (UMQ `T`), from now on.

        `async with context.caller.updates("feed") as updates:`, then `async for update in updates:`. It is called in
        the event loop, not in a plain function.

        Raises:
            NotExecuted: the caller's protocol has no such updates, the topic id is in use, or too many are open.
        """

    @abstractmethod
    async def close(self, text: str = "") -> None:
        """End the session of the caller; its call is cancelled with it."""


class CallerVars(Mapping[str, object], ABC):
    """Variables of a caller: those that it has set are read like a mapping."""

    def __init__(self, variables: Mapping[str, object]) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> object:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    @abstractmethod
    async def set(self, name: str, value: object) -> None:
        """Set a variable on the caller, as one of the hub's: `await context.caller.vars.set("theme", "dark")`."""

    @abstractmethod
    async def unset(self, name: str) -> None:
        """Take one back that was set on the caller."""
