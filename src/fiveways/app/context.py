"""Context of a call, for the function that serves it."""

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
"""Kinds of progress notes; transient and debug go only to callers that requested verbose progress."""
_DEFAULT_KINDS: Final = frozenset({"note", "warn"})
_VERBOSE_KEY: Final = "v"


def internal_kind(kind: str) -> str:
    """Return the hub's name of a kind of note; ValueError if there is no such kind."""
    if kind not in NOTE_KINDS:
        raise ValueError(f"unknown kind of note {kind!r}: use one of {', '.join(NOTE_KINDS)}")
    return "tmp" if kind == "transient" else kind


class CallerInfo(Protocol):
    """The caller of a method, if the runtime knows it."""

    @property
    def peer(self) -> str:
        """Session of the caller at the hub."""

    @property
    def protocol(self) -> str:
        """Protocol of the caller."""

    @property
    def identity(self) -> str:
        """Authenticated identity of the caller; empty for an anonymous peer."""

    @property
    def variables(self) -> Mapping[str, object]:
        """Session variables of the caller."""


@dataclass(frozen=True, slots=True)
class UnknownCaller:
    """An unknown caller."""

    peer: str = ""
    protocol: str = ""
    identity: str = ""
    variables: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


UNKNOWN_CALLER: Final = UnknownCaller()


class HubApi(Protocol):
    """Access to the hub for the methods of an application."""

    def call(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Awaitable[object]:
        """Call a method and return its result; CallError if it fails."""

    def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> Awaitable[object]:
        """Publish an event."""

    def call_reply(
        self, method: str, body: object = None, *, timeout: float | None = None, attachments: Sequence[bytes] = ()
    ) -> Awaitable[Reply]:
        """Call a method and return its result with its attachments."""

    def callback(self, function: Callable[..., object]) -> Awaitable[str]:
        """Return a token with which any peer can call the function once."""

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Pull a job of a work queue."""


class Cancellable(Protocol):
    """A wait of a thread."""

    def cancel(self) -> bool:
        """Cancel the wait."""


class ActiveCall(msgspec.Struct, eq=False):
    """One call in progress."""

    call: Call
    is_over: bool = False
    """Whether the response was sent, or is no longer needed."""
    is_cancelled: bool = False
    stop: Callable[[], object] | None = None
    """Cancels the task of the function, if it runs in one."""
    attachments: Attachments | None = None
    elements: ElementStream | ElementCollector | None = None
    """Receiver of the elements of a streamed request."""
    thread_waits: set[Cancellable] | None = None
    """Waits of the function's thread."""

    def cancel(self) -> None:
        """Cancel the call: its caller no longer needs the response."""
        self.is_over = self.is_cancelled = True
        if self.stop is not None:
            self.stop()
        # A copy, because the thread may add a wait concurrently.
        for wait in list(self.thread_waits or ()):
            wait.cancel()


class Context:
    """Context of a call: a parameter of a method with this annotation gets it.

    Hooks and workers may take one as well.
    """

    __slots__ = ("_active_call", "_hub_api", "_loop", "_send", "_waits", "peer")

    def __init__(
        self, active_call: ActiveCall, peer: CallerInfo, hub: HubApi | None, send: Callable[[HubMessage], None]
    ) -> None:
        self._active_call = active_call
        self._hub_api = hub
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waits: set[Cancellable] = set()
        active_call.thread_waits = self._waits
        self.peer = peer
        """The caller; its fields are empty if it is unknown."""

    @property
    def caller(self) -> CallingPeer:
        """The peer that made the call: `await context.caller.callback(token, value)`.

        Raises:
            RuntimeError: the caller is unknown: the application is not in a hub, or this is a hook or a worker.
        """
        if isinstance(self.peer, CallingPeer):
            return self.peer
        raise RuntimeError("the caller is unknown: only a method of an application in the hub can reach it")

    @property
    def session(self) -> str:
        """Session of the caller at the hub; empty if it is unknown."""
        return self.peer.peer

    @property
    def identity(self) -> str:
        """Authenticated identity of the caller; empty for an anonymous or unknown caller."""
        return self.peer.identity

    @property
    def variables(self) -> Mapping[str, object]:
        """Session variables of the caller."""
        return self.peer.variables

    @property
    def timeout(self) -> float | None:
        """Timeout of the call in seconds, as the caller sent it; None if it did not send one."""
        return self._active_call.call.timeout

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled. Async methods are cancelled too; a function in a thread can only check it."""
        return self._active_call.is_cancelled

    def attachments(self) -> Attachments:
        """Return the attachments of the call: `await` them for a list of bytes, or read them with `async for`."""
        return self._active_call.attachments or Attachments()

    @property
    def verbose(self) -> bool | str:
        """Requested level of progress notes: false, true, or a string of the caller. Only nq callers can request it."""
        level = (self._active_call.call.extras or {}).get(_VERBOSE_KEY)
        try:
            value = False if level is None else level.value()
        except Unrepresentable:
            return False
        return value if isinstance(value, str) else bool(value)

    def progress(self, value: object = None, text: str = "", *, kind: str = "note", code: str = "") -> None:
        """Send a progress note to the caller, if it requested progress; may be called from any thread.

        Args:
            value: any value.
            text: text for people.
            kind: note, warn, transient or debug; the last two are sent only if the caller requested them (`verbose`).
            code: machine-readable code of the note.

        Raises:
            ValueError: there is no such kind.
            Unsendable: `value` cannot be encoded.
        """
        hub_kind, call = internal_kind(kind), self._active_call.call
        if call.progress and not self._active_call.is_over and (kind in _DEFAULT_KINDS or self.verbose):
            # In a note with a code, braces are placeholders.
            template, args = ("{1}", (text,)) if code and "{" in text else (text, ())
            note = Progress(call.id, to_body(value), hub_kind, code, template, args)
            if self._is_in_loop():
                self._send_progress(note)
            else:
                self._loop.call_soon_threadsafe(self._send_progress, note)

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the hub enforces the timeout
        attachments: Sequence[bytes] = (),
    ) -> object:
        """Call a method as the application itself; CallError if it fails, RuntimeError if there is no hub."""
        return await self._require_hub().call(method, body, timeout=timeout, attachments=attachments)

    async def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the hub enforces the timeout
        attachments: Sequence[bytes] = (),
    ) -> Reply:
        """Call a method as the application itself, and return its result with its attachments.

        Raises:
            CallError: the call failed.
            CallFailed: also if an attachment of the result did not arrive; `data` is then the result.
        """
        return await self._require_hub().call_reply(method, body, timeout=timeout, attachments=attachments)

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> None:
        """Publish an event as the application itself; CallError if the hub refuses it."""
        await self._require_hub().publish(topic, data, retain=retain, attachments=attachments)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token with which any peer, in any protocol, can call the function once, as `callback.<token>`.

        The function is served like a method, and may take a `Context` of its own.

        Raises:
            TypeError: the function cannot be called as a method.
        """
        return await self._require_hub().callback(function)

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Pull a job: `async with context.pull("thumbnails") as job:`. The job is done when the block ends.

        Without a timeout the wait has no limit.

        Raises:
            CallTimeout: on entry, if no job arrived within the timeout.
        """
        return self._require_hub().pull(queue, timeout=timeout)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in a function that runs in a thread: `context.wait(context.call(...))`.

        Raises:
            RuntimeError: the caller is an async function, which must use `await`.
            CancelledError: the call was cancelled (`concurrent.futures.CancelledError`).
        """
        if self._is_in_loop():
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError("wait() is for functions that run in a thread; use `await` here")
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
            raise RuntimeError("this application is not served: there is no hub to reach")
        return self._hub_api

    def _send_progress(self, note: Progress) -> None:
        if not self._active_call.is_over:
            self._send(note)

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
