"""The caller of a method of an application in the hub's process."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Protocol

from fiveways.app import tracing
from fiveways.app.calling_peer import CallerVars, CallingPeer
from fiveways.app.responses import Reply
from fiveways.app.updates import Updates
from fiveways.app.values import to_body
from fiveways.hub.session import Caller
from fiveways.model.messages import Call, HubMessage, Result, SetVariable, UnsetVariable
from fiveways.model.outcomes import value_of_result
from fiveways.wire.payload import Payload

# ruff: noqa: ASYNC109  the hub enforces the timeout


class PeerRequester(Protocol):
    """The application's participant in the hub."""

    ids: "count[int]"

    async def request_peer(self, peer: str, message: HubMessage, attachments: Sequence[bytes] = ()) -> Result:
        """Send a request to one peer; CallError if it fails."""

    async def request_peer_reply(self, peer: str, message: Call, attachments: Sequence[bytes] = ()) -> Reply:
        """Call one peer, and wait for the attachments of its response, too; CallError if it fails."""

    def open_updates(self, caller: CallingPeer, topic_id: str) -> Updates:
        """Receive a peer's updates under a topic id; NotExecuted if that is impossible."""

    def close_peer(self, peer: str, text: str) -> None:
        """End the session of one peer; NotExecuted if that is impossible."""


class LocalCaller(CallingPeer):
    """One caller."""

    def __init__(self, caller: Caller, requester: PeerRequester) -> None:
        self.peer, self.protocol, self.identity = caller.peer, caller.protocol, caller.identity
        self._caller = caller
        self._requester = requester

    @property
    def vars(self) -> CallerVars:
        """Its variables."""
        return LocalVars(self._caller, self._requester)

    async def call(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call one of its methods."""
        return value_of_result(
            await self._requester.request_peer(self.peer, self._call(method, body, timeout), attachments)
        )

    async def call_reply(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Reply:
        """Call one of its methods, and wait for the attachments of the response."""
        return await self._requester.request_peer_reply(self.peer, self._call(method, body, timeout), attachments)

    async def callback(
        self, token: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> object:
        """Call one of its callbacks."""
        call = self._call(token, body, timeout, is_callback=True)
        return value_of_result(await self._requester.request_peer(self.peer, call, attachments))

    def _call(self, name: str, body: object, timeout: float | None, *, is_callback: bool = False) -> Call:
        number = str(next(self._requester.ids))
        return Call(
            number,
            name,
            to_body(body),
            callback=is_callback,
            timeout=timeout,
            traceparent=tracing.current_traceparent(),
        )

    def updates(self, topic_id: str) -> Updates:
        """Receive its updates under a topic id."""
        return self._requester.open_updates(self, topic_id)

    async def close(self, text: str = "") -> None:
        """End its session."""
        self._requester.close_peer(self.peer, text)


class LocalVars(CallerVars):
    """The variables of one caller."""

    def __init__(self, caller: Caller, requester: PeerRequester) -> None:
        super().__init__(DecodedVariables(caller.variables))
        self._peer = caller.peer
        self._requester = requester

    async def set(self, name: str, value: object) -> None:
        """Set a variable of the caller."""
        await self._requester.request_peer(
            self._peer, SetVariable(str(next(self._requester.ids)), name, to_body(value))
        )

    async def unset(self, name: str) -> None:
        """Unset a variable of the caller."""
        await self._requester.request_peer(self._peer, UnsetVariable(str(next(self._requester.ids)), name))


class DecodedVariables(Mapping[str, object]):
    """Variables as Python values, decoded on access."""

    def __init__(self, variables: Mapping[str, Payload]) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> object:
        return self._variables[name].value()

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)
