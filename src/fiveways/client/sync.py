"""The blocking client, for scripts and notebooks: the methods of `Peer` without `await`.

The connection runs in the event loop of a separate thread. The caller's thread may have a running loop of its own, as
in a notebook. A `KeyboardInterrupt` cancels one wait, not the connection.
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
    """A blocking client of one hub, opened by `connect_sync`.

    Its methods are those of `Peer`, with the same arguments and exceptions. In addition, all raise `RuntimeError` if an
    async function that this client serves calls them: it would block its own event loop. A client may be shared by
    threads. Functions that it serves run in threads; async functions run in the event loop of the connection.
    """

    def __init__(self, connector_factory: Callable[[], Connector]) -> None:
        """Connect; Refused or ConnectionLost if that fails."""
        self._loop_thread = loop = LoopThread()
        try:
            self._peer = peer = loop.run(_connect(connector_factory))
        except BaseException:
            loop.stop(_close_nothing)
            raise
        # In a notebook, a peer is garbage collected when its variable is assigned again.
        self._finalizer = weakref.finalize(self, loop.stop, peer.close)
        self.vars = SyncVars(loop, peer)
        """Session variables: those of this client at the hub, and those that the hub set."""

    def __repr__(self) -> str:
        return f"<SyncPeer {self.url} {self.state.value}>"

    @property
    def url(self) -> str:
        """URL of the hub, as it was passed to `connect_sync`."""
        return self._peer.url

    @property
    def protocol(self) -> str:
        """Protocol of the connection: umq, umq36, lrpm-json, lrpm-cbor or nq."""
        return self._peer.protocol

    @property
    def session(self) -> str:
        """Name of the session at the hub. It changes after a reconnect, except when an NQ session is resumed."""
        return self._peer.session

    @property
    def state(self) -> ConnectionState:
        """Current state of the connection."""
        return self._peer.state

    def states(self) -> Iterator[ConnectionStatus]:
        """Yield the current state of the connection, then each change."""
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
        """Call a method and return its result: `peer.call("math.add", [2, 3])`. See `Peer.call`.

        Raises:
            BadValue: the result does not fit `type`.
        """
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
        """Call a method and return its result with its attachments. See `Peer.call_reply`."""
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
        """Start a call without waiting: `call = peer.begin("report.build")`, then `call.result()`. See `Peer.begin`."""

        async def start() -> PendingCall:
            return self._peer.begin(
                method, body, timeout=timeout, attachments=attachments, verbose=verbose, max_waiting=max_waiting
            )

        return SyncPendingCall(self._loop_thread, self._loop_thread.run(start()))

    def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        max_waiting: int = 10_000,
    ) -> Iterator[Any]:
        """Call a method and yield the parts of its result: `for part in peer.stream("log.tail"):`.

        See `Peer.stream`.
        """
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
        """Publish an event on a topic: `peer.publish("sensors.roof.temperature", 21.5)`. See `Peer.publish`."""
        self._loop_thread.run(
            self._peer.publish(topic, data, retain=retain, attachments=attachments, confirm=confirm, timeout=timeout)
        )

    def subscribe(
        self, pattern: str, *, when_full: str = "", envelope: bool | None = None, max_waiting: int = 1000
    ) -> SyncSubscription:
        """Subscribe to a topic or a pattern: `with peer.subscribe("sensors.*.temperature") as events:`.

        It returns when the hub has confirmed the subscription. The arguments are those of `Peer.subscribe`.
        """
        return SyncSubscription(
            self._loop_thread,
            lambda: self._peer.subscribe(pattern, when_full=when_full, envelope=envelope, max_waiting=max_waiting),
        )

    def close_topic(self, topic: str) -> None:
        """Close a topic: end all its subscriptions and delete its retained value."""
        self._loop_thread.run(self._peer.close_topic(topic))

    def register(
        self, method: str, function: Callable[..., object], *, doc: str | None = None, share: str = ""
    ) -> None:
        """Register a function as a method: `peer.register("math.add", add)`. See `Peer.register`."""
        self._loop_thread.run(self._peer.register(method, function, doc=doc, share=share))

    def unregister(self, method: str) -> None:
        """Remove the registration of a method; calls in progress continue."""
        self._loop_thread.run(self._peer.unregister(method))

    def serve(self, app: App) -> None:
        """Serve an application; return when the hub has confirmed it. See `Peer.serve`.

        A script that only serves stays alive with `peer.wait_closed()`.
        """
        self._loop_thread.run(self._peer.serve(app))

    def callback(self, function: Callable[..., object]) -> str:
        """Return a token with which any peer, in any protocol, can call the function once. See `Peer.callback`."""
        return self._loop_thread.run(self._peer.callback(function))

    def discover(self, name: str = "") -> Listing:
        """List available methods: all, those below a route, or the documentation of one method."""
        return self._loop_thread.run(self._peer.discover(name))

    def push(self, queue: str, data: object = None) -> int:
        """Push a job to a work queue; return the number of jobs that wait."""
        return self._loop_thread.run(self._peer.push(queue, data))

    def pull(self, queue: str, *, timeout: float | None = None) -> SyncJob:
        """Pull a job: `with peer.pull("thumbnails") as job:`. The job is done when the block ends.

        Without a timeout the wait has no limit.

        Raises:
            CallTimeout: no job arrived within the timeout.
        """
        return SyncJob(self._loop_thread, self._loop_thread.run(_pull(self._peer, queue, timeout)))

    def jobs(self, queue: str) -> Iterator[SyncJob]:
        """Yield jobs of a work queue one by one; a job is done when the loop requests the next one."""
        while True:
            with self.pull(queue) as job:
                yield job

    def pause(self) -> None:
        """Close the link until `resume()`; LocalProtocolError in protocols other than nq. See `Peer.pause`."""
        self._loop_thread.run(_call_in_loop(self._peer.pause))

    def resume(self) -> None:
        """Open the link again after `pause()`; otherwise do nothing."""
        self._loop_thread.run(_call_in_loop(self._peer.resume))

    def close(self) -> None:
        """Close the connection and end its thread."""
        self._finalizer()

    def wait_closed(self) -> ConnectionStatus:
        """Wait until the connection is closed for good, and return the last status with the reason."""
        return self._loop_thread.run(self._peer.wait_closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _connect(connector_factory: Callable[[], Connector]) -> Peer:
    return await connector_factory()


async def _pull(peer: Peer, queue: str, timeout: float | None) -> Job:  # noqa: ASYNC109  the hub client's own
    return await peer.pull(queue, timeout=timeout)


async def _call_in_loop(function: Callable[[], None]) -> None:
    function()


async def _close_nothing() -> None:
    """Do nothing: there is no connection."""


def connect_sync(  # noqa: PLR0913  the arguments of `connect`
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
    """Open a connection for code without `await`: `with fiveways.connect_sync(url) as peer:`.

    Arguments and exceptions are those of `connect`, without `schema`: there is no blocking client for an MQTT broker.

    Raises:
        BadUrl: also if the URL is for an MQTT broker.
    """
    if is_mqtt(url):
        raise BadUrl("there is no blocking client for an MQTT broker: use `fiveways.connect`")
    connector = connect(
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
    return SyncPeer(lambda: connector)
