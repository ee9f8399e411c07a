"""What a method may know of its call, and do besides answering it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

from fiveways.app.attachments import Attachments
from fiveways.app.calling_peer import CallingPeer
from fiveways.app.jobs import JobPull
from fiveways.app.request_elements import ElementCollector, ElementStream
from fiveways.app.responses import Reply
from fiveways.app.values import to_body
from fiveways.errors import Unrepresentable
from fiveways.model.messages import Call, HubMessage, Progress

T = TypeVar("T")
NOTE_KINDS: Final = ("note", "warn", "transient", "debug")
"""What may be told on the way: transient and debug only to callers who want to hear more than usual."""
_DEFAULT_KINDS: Final = frozenset({"note", "warn"})
_VERBOSE_KEY: Final = "v"


def internal_kind(kind: str) -> str:
    """Return the hub's own word for a kind of note; ValueError if there is no such kind."""
    if kind not in NOTE_KINDS:
        raise ValueError(f"there are no notes of kind {kind!r}: it is one of {', '.join(NOTE_KINDS)}")
    return "tmp" if kind == "transient" else kind


class CallerInfo(Protocol):
    """Who made a call, where the runtime knows it."""

    @property
    def peer(self) -> str:
        """The caller's session at the hub."""

    @property
    def protocol(self) -> str:
        """Which protocol it speaks."""

    @property
    def identity(self) -> str:
        """As whom it was let in; empty for the anonymous."""

    @property
    def variables(self) -> Mapping[str, object]:
        """What it has set."""


@dataclass(frozen=True, slots=True)
class UnknownCaller:
    """A caller of whom nothing is known."""

    peer: str = ""
    protocol: str = ""
    identity: str = ""
    variables: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


UNKNOWN_CALLER: Final = UnknownCaller()


class HubApi(Protocol):
    """The hub that an application lives in, as its methods reach it."""

    def call(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Awaitable[object]:
        """Call a method and give its result; CallError if it has none."""

    def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> Awaitable[object]:
        """Give data to all who subscribed to the topic."""

    def call_reply(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Awaitable[Reply]:
        """Call a method and give its result with its attachments."""

    def callback(self, function: Callable[..., object]) -> Awaitable[str]:
        """Make a token by which anybody can call the function once."""

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Wait for a job of a work queue."""


class Cancellable(Protocol):
    """Something that a thread waits for."""

    def cancel(self) -> bool:
        """Let it go on without."""


class ActiveCall(msgspec.Struct, eq=False):
    """One call that is not answered yet."""

    call: Call
    is_over: bool = False
    """Nothing more is to be said about it."""
    is_cancelled: bool = False
    stop: Callable[[], object] | None = None
    """Ends its work early, where that can be done."""
    attachments: Attachments | None = None
    elements: ElementStream | ElementCollector | None = None
    """Where the further elements of a streamed request go."""
    thread_waits: set[Cancellable] | None = None
    """What a thread waits for on its behalf."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self.is_over = self.is_cancelled = True
        if self.stop is not None:
            self.stop()
        # A copy: the thread may be adding one right now.
        for wait in list(self.thread_waits or ()):
            wait.cancel()


class Context:
    """One call, as its method sees it: a parameter with this annotation gets it."""

    __slots__ = ("_active_call", "_hub_api", "_loop", "_send", "_waits", "peer")

    def __init__(
        self, running: ActiveCall, peer: CallerInfo, reach: HubApi | None, say: Callable[[HubMessage], None]
    ) -> None:
        self._active_call = running
        self._hub_api = reach
        self._send = say
        self._loop = asyncio.get_running_loop()
        self._waits: set[Cancellable] = set()
        running.thread_waits = self._waits
        self.peer = peer
        """Who called; its fields are empty where that is not known."""

    @property
    def caller(self) -> CallingPeer:
        """The peer that called, to be called back: `await context.caller.callback(token, value)`.

        RuntimeError where it is not known: outside of a hub, in hooks, and for work of a queue.
        """
        if isinstance(self.peer, CallingPeer):
            return self.peer
        raise RuntimeError("the caller is not known here: only an application in the hub can reach it")

    @property
    def session(self) -> str:
        """The caller's session at the hub."""
        return self.peer.peer

    @property
    def identity(self) -> str:
        """As whom the caller was let in; empty for the anonymous."""
        return self.peer.identity

    @property
    def variables(self) -> Mapping[str, object]:
        """What the caller has set."""
        return self.peer.variables

    @property
    def timeout(self) -> float | None:
        """How many seconds the caller waits from when the call came, where it said so."""
        return self._active_call.call.timeout

    @property
    def cancelled(self) -> bool:
        """Whether the answer is not wanted any more. Async methods are stopped then; a thread can only look here."""
        return self._active_call.is_cancelled

    def attachments(self) -> Attachments:
        """Return what came with the call: `await` it for a list of bytes, or read one by one with `async for`."""
        return self._active_call.attachments or Attachments()

    @property
    def verbose(self) -> bool | str:
        """How much the caller wants to hear on the way: false, true, or a text of its own; only nq can say so."""
        given = (self._active_call.call.extras or {}).get(_VERBOSE_KEY)
        try:
            value = False if given is None else given.value()
        except Unrepresentable:
            return False
        return value if isinstance(value, str) else bool(value)

    def progress(self, value: object = None, text: str = "", *, kind: str = "note", code: str = "") -> None:
        """Tell the caller how far it is, if it wants to know; from any thread.

        `kind` is note, warn, transient or debug; the last two are told only to who asked for them (`verbose`).

        Raises:
            ValueError: there is no such kind.
        """
        said, call = internal_kind(kind), self._active_call.call
        if call.progress and not self._active_call.is_over and (kind in _DEFAULT_KINDS or self.verbose):
            # Beside a code, braces are places to be filled.
            filled, args = ("{1}", (text,)) if code and "{" in text else (text, ())
            word = Progress(call.id, to_body(value), said, code, filled, args)
            if self._is_in_loop():
                self._send_progress(word)
            else:
                self._loop.call_soon_threadsafe(self._send_progress, word)

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the hub keeps the time, and tells the callee
        attachments: Sequence[bytes] = (),
    ) -> object:
        """Call a method of the hub that the application lives in, as the application itself."""
        return await self._require_hub().call(method, body, timeout=timeout, attachments=attachments)

    async def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
        attachments: Sequence[bytes] = (),
    ) -> Reply:
        """Call a method likewise, and return its value with its attachments once they have all come.

        Raises:
            CallFailed: besides its usual sense, an attachment of the answer did not arrive; `data` is the value.
        """
        return await self._require_hub().call_reply(method, body, timeout=timeout, attachments=attachments)

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> None:
        """Publish at the hub that the application lives in, as the application itself."""
        await self._require_hub().publish(topic, data, retain=retain, attachments=attachments)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which anybody, in any protocol, can call the function once, by `callback.<token>`.

        The function is served as a method is, and may take a `Context` of its own.

        Raises:
            TypeError: no call could be served by the function.
        """
        return await self._require_hub().callback(function)

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Wait for a job: `async with context.pull("thumbnails") as job:`, and it is done when the block ends.

        Without a timeout it waits as long as it takes; else CallTimeout when that is over.
        """
        return self._require_hub().pull(queue, timeout=timeout)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait, in a plain function, for what an async one would await: `context.wait(context.call(...))`."""
        if self._is_in_loop():
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError("wait() is for plain functions; await it here")
        future = asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop)
        self._waits.add(future)
        try:
            if self._active_call.is_cancelled:
                future.cancel()
            return future.result()
        finally:
            self._waits.discard(future)

    def _require_hub(self) -> HubApi:
        if self._hub_api is None:
            raise RuntimeError("this application is in no hub")
        return self._hub_api

    def _send_progress(self, word: Progress) -> None:
        if not self._active_call.is_over:
            self._send(word)

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
