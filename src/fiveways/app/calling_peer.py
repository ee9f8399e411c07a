"""The peer that made a call, for the method that serves it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fiveways.app.responses import Reply

if TYPE_CHECKING:
    from fiveways.app.updates import Updates

# ruff: noqa: ASYNC109  the hub enforces the timeout


class CallingPeer(ABC):
    """The peer that made a call (`context.caller`). It may be used until its session ends, also after the call.

    Its coroutines raise a `CallError` if they fail: `NotExecuted` if the peer has left, or its protocol does not
    support the request; `CallLost` if it leaves before the response.
    """

    peer: str
    """Session of the peer at the hub."""
    protocol: str
    identity: str
    """Authenticated identity; empty for an anonymous peer."""

    @property
    def variables(self) -> Mapping[str, object]:
        """Session variables that the peer has set."""
        return self.vars

    @property
    @abstractmethod
    def vars(self) -> "CallerVars":
        """Session variables of the peer, as a mapping: `context.caller.vars["language"]`. `set` sets one for it."""

    @abstractmethod
    async def call(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call a method that the peer's own program serves on its connection, in that program's spelling."""

    @abstractmethod
    async def call_reply(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Reply:
        """Call a method of the peer as `call` does, and return its result with its attachments."""

    @abstractmethod
    async def callback(
        self, token: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call a callback of the peer by the id or token that it passed. A callback can be called once."""

    @abstractmethod
    def updates(self, topic_id: str) -> "Updates":
        """Subscribe to a topic id of the peer (UMQ `T`).

        `async with context.caller.updates("feed") as updates:`, then `async for update in updates:`. It must be called
        in the event loop, not in a thread.

        Raises:
            NotExecuted: the peer's protocol has no updates, the topic id is in use, or too many are open.
        """

    @abstractmethod
    async def close(self, text: str = "") -> None:
        """Close the session of the peer; its call is cancelled."""


class CallerVars(Mapping[str, object], ABC):
    """Session variables of a caller: a mapping of those that it has set."""

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
        """Set a variable of the hub for the caller: `await context.caller.vars.set("theme", "dark")`."""

    @abstractmethod
    async def unset(self, name: str) -> None:
        """Delete a variable that the hub set for the caller."""
