"""The blocking face of the client, for scripts and notebooks: the same verbs, without `await`.

The connection lives in an event loop of its own, in a thread of its own. Every verb waits there, so that a running loop
in the caller's thread, as in a notebook, does not matter; and an interrupt ends the wait, not the connection.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar, overload

from fiveways.app.app import App
from fiveways.app.attachment_sources import Attachable
from fiveways.app.conversion import decode
from fiveways.app.jobs import Job
from fiveways.app.responses import Reply
from fiveways.client.connect import Connector, connect
from fiveways.client.connection_state import ConnectionState, ConnectionStatus
from fiveways.client.listing import Listing
from fiveways.client.loop_thread import LoopThread
from fiveways.client.peer import Peer
from fiveways.client.pending_call import MAX_WAITING, PendingCall
from fiveways.client.settings import HUB_TIMEOUT
from fiveways.client.sync_handles import SyncJob, SyncPendingCall, SyncSubscription, SyncVars
from fiveways.client.urls import BadUrl, is_mqtt
from fiveways.wire.limits import Limits

T = TypeVar("T")


class SyncPeer:
    """One connection to a hub, opened by `connect_sync`; the verbs are those of `Peer`, and raise the same errors.

    It may be used from several threads. Functions that it serves run in threads of their own, or, if they are async, in
    the connection's loop.
    """

    def __init__(self, connecting: Callable[[], Connector]) -> None:
        """Connect; Refused or ConnectionLost if that fails."""
        self._loop_thread = loop = LoopThread()
        try:
            self._peer = peer = loop.run(_connect(connecting))
        except BaseException:
            loop.stop(_close_nothing)
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
    def state(self) -> ConnectionState:
        """How the connection is."""
        return self._peer.state

    def states(self) -> Iterator[ConnectionStatus]:
        """Follow the connection, the present state first."""
        return self._loop_thread.iterate(self._peer.states())

    @overload
    def call(
        self,
        method: str,
        body: object = None,
        *,
        type: type[T],
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
        verbose: bool | str = False,
    ) -> T: ...

    @overload
    def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
        verbose: bool | str = False,
    ) -> Any: ...  # noqa: ANN401  only the caller knows what a method returns

    def call(
        self,
        method: str,
        body: object = None,
        *,
        type: type[T] | None = None,  # noqa: A002  the word that users expect
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
        verbose: bool | str = False,
    ) -> Any:
        """Call a method and return its value, as `type` if that is given: `peer.call("math.add", [2, 3])`."""
        value = self._loop_thread.run(
            self._peer.call(
                method,
                body,
                timeout=timeout,
                attachments=attachments,
                progress=progress,
                idempotent=idempotent,
                verbose=verbose,
            )
        )
        return value if type is None else decode(value, type)

    def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        progress: Callable[[object, str], object] | None = None,
        idempotent: bool = False,
        verbose: bool | str = False,
    ) -> Reply:
        """Call a method and return its value with its attachments."""
        return self._loop_thread.run(
            self._peer.call_reply(
                method,
                body,
                timeout=timeout,
                attachments=attachments,
                progress=progress,
                idempotent=idempotent,
                verbose=verbose,
            )
        )

    def begin(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        verbose: bool | str = False,
        max_waiting: int = MAX_WAITING,
    ) -> SyncPendingCall:
        """Begin a call and go on: `call = peer.begin("report.build")`, then `for note in call.progress():`."""

        async def begun() -> PendingCall:
            return self._peer.begin(
                method, body, timeout=timeout, attachments=attachments, verbose=verbose, max_waiting=max_waiting
            )

        return SyncPendingCall(self._loop_thread, self._loop_thread.run(begun()))

    def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        max_waiting: int = 10_000,
    ) -> Iterator[Any]:
        """Call a method and give the parts of its answer as they come: `for part in peer.stream("log.tail"):`."""
        parts = self._peer.stream(method, body, timeout=timeout, attachments=attachments, max_waiting=max_waiting)
        return self._loop_thread.iterate(parts)

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
        self._loop_thread.run(
            self._peer.publish(topic, data, retain=retain, attachments=attachments, confirm=confirm, timeout=timeout)
        )

    def subscribe(
        self, pattern: str, *, when_full: str = "", envelope: bool | None = None, max_waiting: int = 1000
    ) -> SyncSubscription:
        """Follow a topic, or all that fit: `with peer.subscribe("sensors.*.temperature") as events:`."""
        return SyncSubscription(
            self._loop_thread,
            lambda: self._peer.subscribe(pattern, when_full=when_full, envelope=envelope, max_waiting=max_waiting),
        )

    def close_topic(self, topic: str) -> None:
        """End a topic for all who subscribed to it."""
        self._loop_thread.run(self._peer.close_topic(topic))

    def register(
        self, method: str, function: Callable[..., object], *, doc: str | None = None, share: str = ""
    ) -> None:
        """Offer a function to all: `peer.register("math.add", add)`."""
        self._loop_thread.run(self._peer.register(method, function, doc=doc, share=share))

    def unregister(self, method: str) -> None:
        """Offer it no longer."""
        self._loop_thread.run(self._peer.unregister(method))

    def serve(self, app: App) -> None:
        """Offer all of an application; return when the hub has taken it. `wait_closed()` then keeps a script alive."""
        self._loop_thread.run(self._peer.serve(app))

    def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which somebody, in any protocol, can call the function once."""
        return self._loop_thread.run(self._peer.callback(function))

    def discover(self, name: str = "") -> Listing:
        """Ask what there is: all, what is below a route, or the documentation of a method."""
        return self._loop_thread.run(self._peer.discover(name))

    def push(self, queue: str, data: object = None) -> int:
        """Put work into a queue; return how many pieces wait there now."""
        return self._loop_thread.run(self._peer.push(queue, data))

    def pull(self, queue: str, *, timeout: float | None = None) -> SyncJob:
        """Wait for a piece of work: `with peer.pull("thumbnails") as job:`; CallTimeout if none comes in time."""
        return SyncJob(self._loop_thread, self._loop_thread.run(_pull(self._peer, queue, timeout)))

    def jobs(self, queue: str) -> Iterator[SyncJob]:
        """Give one job of a queue after the other; a job is done when the loop asks for the next one."""
        while True:
            with self.pull(queue) as job:
                yield job

    def pause(self) -> None:
        """Stop all traffic until `resume()`; LocalProtocolError in protocols other than nq."""
        self._loop_thread.run(_call_in_loop(self._peer.pause))

    def resume(self) -> None:
        """Go on after `pause()`, and get what is due."""
        self._loop_thread.run(_call_in_loop(self._peer.resume))

    def close(self) -> None:
        """Part from the hub, and end the thread."""
        self._finalizer()

    def wait_closed(self) -> ConnectionStatus:
        """Wait until the connection is over for good, and return why."""
        return self._loop_thread.run(self._peer.wait_closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _connect(connecting: Callable[[], Connector]) -> Peer:
    return await connecting()


async def _pull(peer: Peer, queue: str, timeout: float | None) -> Job:  # noqa: ASYNC109  it is passed on
    return await peer.pull(queue, timeout=timeout)


async def _call_in_loop(function: Callable[[], None]) -> None:
    function()


async def _close_nothing() -> None:
    """There is nothing to close."""


def connect_sync(  # noqa: PLR0913  as `connect`
    url: str,
    *,
    token: str = "",
    identity: str = "",
    secret: str = "",
    timeout: float = HUB_TIMEOUT,
    reconnect: bool = True,
    wait: float = 0.0,
    backoff: tuple[float, float] = (0.1, 5.0),
    keepalive: float = 20.0,
    idle_close: float | None = None,
    app: App | None = None,
    limits: Limits = Limits(),
    show_errors: bool = False,
    name: str | None = None,
) -> SyncPeer:
    """Open a connection for code that does not `await`: `with fiveways.connect_sync(url) as peer:`.

    The arguments, and what it raises, are those of `connect`.
    """
    if is_mqtt(url):
        raise BadUrl("a broker has no blocking client: `fiveways.connect` goes there")
    connecting = connect(
        url,
        token=token,
        identity=identity,
        secret=secret,
        timeout=timeout,
        reconnect=reconnect,
        wait=wait,
        backoff=backoff,
        keepalive=keepalive,
        idle_close=idle_close,
        app=app,
        limits=limits,
        show_errors=show_errors,
        name=name,
    )
    return SyncPeer(lambda: connecting)
