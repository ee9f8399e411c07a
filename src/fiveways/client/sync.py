"""The blocking face of the client, for scripts and notebooks: the same verbs, without `await`.

The connection lives in an event loop of its own, in a thread of its own. Every verb waits there, so that a running loop
in the caller's thread, as in a notebook, does not matter; and an interrupt ends the wait, not the connection.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from fiveways.app.answers import Reply
from fiveways.app.app import App
from fiveways.app.events import Event
from fiveways.client.attachments import Attachable
from fiveways.client.background import Background
from fiveways.client.connect import Connecting, connect
from fiveways.client.jobs import Job
from fiveways.client.peer import Listing, Peer
from fiveways.client.settings import HUB_TIMEOUT
from fiveways.client.states import State, Status
from fiveways.client.subscriptions import Subscription
from fiveways.wire.limits import Limits

_AT_ONCE: Final = 100
"""Events that are fetched together, if they are there."""


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """One publication."""

    topic: str
    data: object
    missed: int
    _source: Event
    _loop: Background

    def attachments(self) -> list[bytes]:
        """Return what came with it, when all of it is there; AttachmentError if it did not arrive whole."""
        return self._loop.run(_all_of(self._source))


async def _all_of(source: Event | Job) -> list[bytes]:
    return await source.attachments()


class SyncSubscription:
    """Events of one topic or pattern: `with peer.subscribe("sensors.*") as events:` and `for event in events:`."""

    def __init__(self, loop: Background, subscribe: Callable[[], Subscription]) -> None:
        self._loop = loop
        self._fetched: deque[Event] = deque()
        self._events = loop.run(_opened(subscribe))

    @property
    def restored(self) -> int:
        """How often it was asked for again on a new connection; events may be missing each time."""
        return self._events.restored

    def next(self, timeout: float | None = None) -> SyncEvent | None:
        """Return the next event; None if none came in time, or, as `is_over` tells, none will come."""
        if not self._fetched:
            self._loop.run(self._fetch(timeout))
        if not self._fetched:
            return None
        event = self._fetched.popleft()
        return SyncEvent(event.topic, event.data, event.missed, event, self._loop)

    @property
    def is_over(self) -> bool:
        """Whether the topic was closed, or we have unsubscribed, and nothing waits."""
        return not self._fetched and self._events.is_over

    async def _fetch(self, timeout: float | None) -> None:  # noqa: ASYNC109  a user's own
        # Put away here, not returned: an interrupt of whoever waits must not lose them.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                self._fetched.extend(await self._events.some(_AT_ONCE))

    def close(self) -> None:
        """Unsubscribe."""
        self._loop.run(self._events.close())

    def __iter__(self) -> Iterator[SyncEvent]:
        while (event := self.next()) is not None:
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _opened(subscribe: Callable[[], Subscription]) -> Subscription:
    return await subscribe()


class SyncJob:
    """One piece of work: `with peer.pull("thumbnails") as job:`, and it is done when the block ends."""

    def __init__(self, loop: Background, job: Job) -> None:
        self._loop = loop
        self._job = job
        self.data = job.data

    def attachments(self) -> list[bytes]:
        """Return what came with it."""
        return self._loop.run(_all_of(self._job))

    def done(self, value: object = None) -> None:
        """It is done."""
        self._loop.run(self._job.done(value))

    def fail(self, text: str = "") -> None:
        """It could not be done: somebody else may try."""
        self._loop.run(self._job.fail(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._job.__aexit__(kind, error, trace))


class SyncPeer:
    """One connection to a hub, opened by `connect_sync`; the verbs are those of `Peer`, and raise the same errors.

    It may be used from several threads. Functions that it serves run in threads of their own, or, if they are async, in
    the connection's loop.
    """

    def __init__(self, connecting: Callable[[], Connecting]) -> None:
        """Connect; Refused or ConnectionLost if that fails."""
        self._loop = loop = Background()
        try:
            self._peer = peer = loop.run(_connected(connecting))
        except BaseException:
            loop.stop(_nothing)
            raise
        # A notebook forgets a peer by making another one in its place.
        self._finalizer = weakref.finalize(self, loop.stop, peer.close)
        self.vars = SyncVars(loop, peer)
        """Our variables at the hub, and the hub's for us."""

    def __repr__(self) -> str:
        return f"<SyncPeer {self.url} {self.state.value}>"

    @property
    def url(self) -> str:
        """Where it is connected to."""
        return self._peer.url

    @property
    def protocol(self) -> str:
        """What it speaks."""
        return self._peer.protocol

    @property
    def session(self) -> str:
        """What the hub calls this connection; another name after a reconnect."""
        return self._peer.session

    @property
    def state(self) -> State:
        """How the connection is."""
        return self._peer.state

    def states(self) -> Iterator[Status]:
        """Follow the connection, the present state first."""
        return self._loop.items(self._peer.states())

    def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
    ) -> object:
        """Call a method and return its value: `peer.call("math.add", [2, 3], timeout=1.0)`."""
        return self._loop.run(
            self._peer.call(
                method, body, timeout=timeout, attachments=attachments, progress=progress, idempotent=idempotent
            )
        )

    def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
    ) -> Reply:
        """Call a method and return its value with its attachments."""
        return self._loop.run(
            self._peer.call_reply(
                method, body, timeout=timeout, attachments=attachments, progress=progress, idempotent=idempotent
            )
        )

    def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        max_waiting: int = 10_000,
    ) -> Iterator[object]:
        """Call a method and give the parts of its answer as they come: `for part in peer.stream("log.tail"):`."""
        parts = self._peer.stream(method, body, timeout=timeout, attachments=attachments, max_waiting=max_waiting)
        return self._loop.items(parts)

    def publish(
        self,
        topic: str,
        data: object = None,
        *,
        retain: bool = False,
        attachments: Sequence[Attachable] = (),
        confirm: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Give `data` to all who subscribed: `peer.publish("sensors.roof.temperature", 21.5)`."""
        self._loop.run(
            self._peer.publish(topic, data, retain=retain, attachments=attachments, confirm=confirm, timeout=timeout)
        )

    def subscribe(
        self, pattern: str, *, when_full: str = "", envelope: bool | None = None, max_waiting: int = 1000
    ) -> SyncSubscription:
        """Follow a topic, or all that fit: `with peer.subscribe("sensors.*.temperature") as events:`."""
        return SyncSubscription(
            self._loop,
            lambda: self._peer.subscribe(pattern, when_full=when_full, envelope=envelope, max_waiting=max_waiting),
        )

    def close_topic(self, topic: str) -> None:
        """End a topic for all who subscribed to it."""
        self._loop.run(self._peer.close_topic(topic))

    def register(
        self, method: str, function: Callable[..., object], *, doc: str | None = None, share: str = ""
    ) -> None:
        """Offer a function to all: `peer.register("math.add", add)`."""
        self._loop.run(self._peer.register(method, function, doc=doc, share=share))

    def unregister(self, method: str) -> None:
        """Offer it no longer."""
        self._loop.run(self._peer.unregister(method))

    def serve(self, app: App) -> None:
        """Offer all of an application; return when the hub has taken it. `wait_closed()` then keeps a script alive."""
        self._loop.run(self._peer.serve(app))

    def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which somebody, in any protocol, can call the function once."""
        return self._loop.run(self._peer.callback(function))

    def discover(self, name: str = "") -> Listing:
        """Ask what there is: all, what is below a route, or the documentation of a method."""
        return self._loop.run(self._peer.discover(name))

    def push(self, queue: str, data: object = None) -> int:
        """Put work into a queue; return how many pieces wait there now."""
        return self._loop.run(self._peer.push(queue, data))

    def pull(self, queue: str, *, timeout: float | None = None) -> SyncJob:
        """Wait for a piece of work: `with peer.pull("thumbnails") as job:`; CallTimeout if none comes in time."""
        return SyncJob(self._loop, self._loop.run(_pulled(self._peer, queue, timeout)))

    def close(self) -> None:
        """Part from the hub, and end the thread."""
        self._finalizer()

    def wait_closed(self) -> Status:
        """Wait until the connection is over for good, and return why."""
        return self._loop.run(self._peer.wait_closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncVars:
    """Variables of our session, `peer.vars`."""

    def __init__(self, loop: Background, peer: Peer) -> None:
        self._loop = loop
        self._vars = peer.vars

    @property
    def theirs(self) -> Mapping[str, object]:
        """What the hub has set for us."""
        return self._vars.theirs

    def set(self, name: str, value: object) -> None:
        """Set one: `peer.vars.set("language", "cs")`."""
        self._loop.run(self._vars.set(name, value))

    def unset(self, name: str) -> None:
        """Take one back."""
        self._loop.run(self._vars.unset(name))

    def get(self, name: str, *, peer: str = "") -> object:
        """Read one of ours, or of another session."""
        return self._loop.run(self._vars.get(name, peer=peer))


async def _connected(connecting: Callable[[], Connecting]) -> Peer:
    return await connecting()


async def _pulled(peer: Peer, queue: str, timeout: float | None) -> Job:  # noqa: ASYNC109  it is passed on
    return await peer.pull(queue, timeout=timeout)


async def _nothing() -> None:
    """There is nothing to close."""


def connect_sync(  # noqa: PLR0913  as `connect`
    url: str,
    *,
    token: str = "",
    identity: str = "",
    secret: str = "",
    timeout: float = HUB_TIMEOUT,
    reconnect: bool = True,
    backoff: tuple[float, float] = (0.1, 5.0),
    keepalive: float = 20.0,
    app: App | None = None,
    limits: Limits = Limits(),
) -> SyncPeer:
    """Open a connection for code that does not `await`: `with fiveways.connect_sync(url) as peer:`.

    The arguments, and what it raises, are those of `connect`.
    """
    connecting = connect(
        url,
        token=token,
        identity=identity,
        secret=secret,
        timeout=timeout,
        reconnect=reconnect,
        backoff=backoff,
        keepalive=keepalive,
        app=app,
        limits=limits,
    )
    return SyncPeer(lambda: connecting)
