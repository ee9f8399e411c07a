"""The client of a hub: one connection, and the same methods in every protocol."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Self, TypeVar, overload

from fiveways.app.app import App
from fiveways.app.attachment_sources import Attachable
from fiveways.app.attachments import AttachmentError
from fiveways.app.conversion import decode
from fiveways.app.jobs import Job, JobPull, pull_job
from fiveways.app.responses import Reply
from fiveways.client import names
from fiveways.client.connection_state import ConnectionState, ConnectionStatus
from fiveways.client.core import ClientCore, iterate_parts, wait_result
from fiveways.client.hub_reconnector import OpenLink
from fiveways.client.listing import Listing
from fiveways.client.pending_call import MAX_WAITING, PendingCall, progress_callback
from fiveways.client.pending_requests import PartQueue, RequestOptions
from fiveways.client.settings import BAD_TIMEOUT, ClientSettings
from fiveways.client.subscriptions import SubscribeOptions, Subscription
from fiveways.client.variables import Vars
from fiveways.errors import CallFailed, CallLost, ConnectionLost
from fiveways.model.messages import CloseTopic, Description, Discover, Publish
from fiveways.model.outcomes import value_of_result
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.payload import Value

# ruff: noqa: ASYNC109  a timeout is sent to the hub, and divided between waiting for a connection and for an answer

T = TypeVar("T")


class Peer:
    """A client of one hub, opened by `connect`. It reconnects automatically, unless `connect` got `reconnect=False`.

    Coroutines of this class that send a request raise these exceptions:

    Raises:
        NotExecuted: the request was certainly not carried out: a name or value is invalid, permission is denied, no
            callee is available, a limit is exceeded, or there was no connection in time. `reason` says which.
        CallFailed: the method ran and failed, or its response cannot be decoded.
        CallTimeout: no response within the timeout; the method may have run.
        CallLost: the callee or the connection was lost before the response; the method may have run.
        Cancelled: the call was cancelled; the method may have run.
        ConnectionLost: the connection is closed for good.
        ValueError: the timeout is not positive. Nothing was sent.
        TypeError: an attachment is neither bytes nor a `Path`. Nothing was sent.
        OSError: the file of an attachment cannot be read. Nothing was sent.

    All but `ConnectionLost`, `ValueError`, `TypeError` and `OSError` are subclasses of `CallError`.
    """

    def __init__(self, settings: ClientSettings, open_link: OpenLink = open_websocket) -> None:
        """Create a client that is not connected; use `connect` instead."""
        self._core = ClientCore(settings, self, open_link)
        self._reconnector = self._core.reconnector
        self._default_timeout = settings.timeout
        self.vars = Vars(self._core.variables, self)
        """Session variables: those of this client at the hub, and those that the hub set."""

    def __repr__(self) -> str:
        return f"<Peer {self.url} {self.state.value}>"

    @property
    def url(self) -> str:
        """URL of the hub, as it was passed to `connect`."""
        return self._core.settings.address.original_url

    @property
    def protocol(self) -> str:
        """Protocol of the connection: umq, umq36, lrpm-json, lrpm-cbor or nq."""
        return self._core.settings.address.protocol

    @property
    def session(self) -> str:
        """Name of the session at the hub. It changes after a reconnect, except when an NQ session is resumed."""
        return self._reconnector.session_name

    @property
    def state(self) -> ConnectionState:
        """Current state of the connection."""
        return self._reconnector.states.current.state

    def states(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Yield the current state of the connection, then each change: `async for status in peer.states():`.

        It ends after the state `closed`. A reader that is more than 100 changes behind misses the oldest.
        """
        return self._reconnector.states.follow()

    # Calls.

    @overload
    async def call(
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
    async def call(
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

    async def call(
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
        """Call a method and return its result: `await peer.call("math.add", [2, 3], timeout=1.0)`.

        Args:
            method: name of the method in any spelling, or `callback.<token>`.
            body: arguments: a mapping holds named arguments, a list positional ones; any other value is the only
                argument.
            type: convert and check the result: `await peer.call("ticket.get", [7], type=Ticket)`.
            timeout: seconds for the call, including the wait for a connection; by default the `timeout` of `connect`.
            attachments: bytes, or paths of files that are read while they are sent.
            progress: called with the value and text of each progress note, where the protocol carries progress.
            idempotent: repeat the call if the connection is lost before the response.
            verbose: request all progress notes, such as that the call is still queued; nq only, ignored elsewhere. A
                string also turns on NQ's own debugging.

        Raises:
            BadValue: the result does not fit `type`.
            TypeError: no value can be converted to `type`.
        """
        if idempotent or progress is not None or verbose:
            options = RequestOptions(progress=progress_callback(progress), verbose=verbose)
            value = (await self._call(method, body, timeout, attachments, options, idempotent)).value
            return value if type is None else decode(value, type)
        session = self._reconnector.session
        if session is None or session.is_full:
            session, timeout = await self._reconnector.wait_ready(self._default_timeout if timeout is None else timeout)
        pending = session.call(method, body, timeout, attachments)
        try:
            result = await pending.future
        except asyncio.CancelledError:
            session.abandon(pending)
            raise
        return value_of_result(result) if type is None else decode(value_of_result(result), type)

    async def call_reply(
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
        """Call a method; return its result and attachments: `(await peer.call_reply("photo.get")).attachments`.

        The arguments are those of `call`.

        Raises:
            CallFailed: also if an attachment of the result did not arrive; `data` is then the result.
        """
        options = RequestOptions(progress=progress_callback(progress), wants_attachments=True, verbose=verbose)
        return await self._call(method, body, timeout, attachments, options, idempotent)

    def begin(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        verbose: bool | str = False,
        max_waiting: int = MAX_WAITING,
    ) -> PendingCall:
        """Start a call without waiting: `call = peer.begin("report.build", {"year": 2026})`, then `await call`.

        `async for note in call.progress():` yields its progress notes, `call.cancel()` cancels it, and `await
        call.reply()` returns its result with attachments. The call runs in a task: its exceptions are raised by `await
        call`.

        Args:
            method: as for `call`.
            body: as for `call`.
            timeout: as for `call`.
            attachments: as for `call`.
            verbose: as for `call`.
            max_waiting: progress notes to keep for readers; after that the oldest are dropped.

        Raises:
            ValueError: the timeout is not positive.
        """
        if timeout is not None and timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        run = partial(self._call, method, body, timeout, attachments, is_idempotent=False)
        return PendingCall(run, verbose, max_waiting)

    async def _call(
        self,
        method: str,
        body: object,
        timeout: float | None,
        attachments: Sequence[Attachable],
        options: RequestOptions,
        is_idempotent: bool,
    ) -> Reply:
        left = self._default_timeout if timeout is None else timeout
        while True:
            session, left = await self._reconnector.wait_ready(left)
            pending = session.call(method, body, left, attachments, options)
            try:
                result = await wait_result(session, pending)
            except CallLost:
                if is_idempotent and session.ended.done() and self._core.settings.reconnect:
                    continue
                raise
            value = value_of_result(result)
            if pending.attachments is None:
                return Reply(value)
            try:
                return Reply(value, await pending.attachments)
            except AttachmentError as exc:
                raise CallFailed(f"an attachment of the result did not arrive: {exc}", data=value) from exc

    async def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        max_waiting: int = 10_000,
    ) -> AsyncGenerator[Any, None]:
        """Call a method and yield the parts of its result: `async for part in peer.stream("log.tail"):`.

        If the result is a single array, because the method or the protocol does not stream, its elements are the parts.
        Any other result is the only part. Leaving the loop early cancels the call. In nq, a restart of the hub during
        the stream ends it with `CallLost` after the last part that arrived.

        Args:
            method: as for `call`.
            body: as for `call`.
            timeout: as for `call`.
            attachments: as for `call`.
            max_waiting: parts that may wait for the reader.

        Raises:
            Cancelled: also if more than `max_waiting` parts wait; the call is cancelled.
        """
        session, left = await self._reconnector.wait_ready(self._default_timeout if timeout is None else timeout)
        parts = PartQueue(max_waiting)
        pending = session.call(method, body, left, attachments, RequestOptions(parts))
        async with aclosing(iterate_parts(session, pending, parts)) as iterator:
            async for part in iterator:
                yield part

    # Topics.

    async def publish(
        self,
        topic: str,
        data: object = None,
        *,
        retain: bool = False,
        attachments: Sequence[Attachable] = (),
        confirm: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Publish an event on a topic: `await peer.publish("sensors.roof.temperature", 21.5)`.

        Args:
            topic: name of the topic, with dots between its segments.
            data: any value that the protocol can encode.
            retain: store the value as the retained value of the topic, which later subscribers get as their first
                event.
            attachments: as for `call`.
            confirm: wait until the hub has accepted the event. Without it, a refusal by the hub is not reported.
            timeout: as for `call`.
        """
        parsed_topic = names.parse_topic(topic)
        wait = self._default_timeout if timeout is None else timeout
        if confirm:
            await self._core.request(
                lambda name, attached: Publish(name, parsed_topic, Value(data), attached, retain), wait, attachments
            )
            return
        session = self._reconnector.session
        if session is None or session.is_full:
            session, _ = await self._reconnector.wait_ready(wait)
        session.notify(lambda attached: Publish(None, parsed_topic, Value(data), attached, retain), attachments)

    def subscribe(
        self, pattern: str, *, when_full: str = "", envelope: bool | None = None, max_waiting: int = 1000
    ) -> Subscription:
        """Subscribe to a topic or a pattern: `async with peer.subscribe("sensors.*.temperature") as events:`.

        The subscription is made when the block is entered, or at the first event without a block.

        Args:
            pattern: a topic; `*` matches one or more characters within a segment.
            when_full: overflow policy of the hub if this client reads too slowly: skip, close or unsubscribe. The
                default is the hub's.
            envelope: in the dialects of UMQ, request the topic and the number of skipped events with each event. By
                default only for patterns.
            max_waiting: events that may wait in this client. After that the oldest is dropped, and counted in `missed`
                of the next event.

        Raises:
            NotExecuted: the pattern is invalid.
        """
        options = SubscribeOptions(pattern, names.parse_pattern(pattern), when_full, envelope, max_waiting)
        return Subscription(self._core.subscriptions, self._core.subscriptions.create(options))

    async def close_topic(self, topic: str) -> None:
        """Close a topic: end all its subscriptions and delete its retained value."""
        parsed_topic = names.parse_topic(topic)
        await self._core.request(lambda name, _: CloseTopic(name, parsed_topic))

    # Methods on offer.

    async def register(
        self, method: str, function: Callable[..., object], *, doc: str | None = None, share: str = ""
    ) -> None:
        """Register a function as a method: `await peer.register("math.add", add)`.

        Async functions run as tasks, other functions in threads, and async generators stream their results. The
        arguments of calls are checked against the annotations, as for an `App`. The registration is restored after a
        reconnect.

        Args:
            method: name of the method, such as `account.get_balance`.
            function: a function or another callable.
            doc: documentation; by default the docstring.
            share: how the hub chooses among several callees of this method: round_robin, random, first or open.

        Raises:
            TypeError: the function cannot be called as a method; the message says why.
            ValueError: this client has registered the name already, or `share` is invalid.
        """
        await self._core.registrations.register(method, function, doc, share)

    async def unregister(self, method: str) -> None:
        """Remove the registration of a method; calls in progress continue."""
        await self._core.registrations.unregister(method)

    async def serve(self, app: App) -> None:
        """Serve an application: run its startup functions, then register, subscribe and start its workers.

        If the hub refuses a registration or subscription, all of them are withdrawn. `close` stops the application. An
        exception of a startup function is raised here.

        Raises:
            ValueError: this client has registered one of the names already, or the application has routes or update
                handlers, which work only in the hub.
        """
        await self._core.registrations.serve(app)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token with which any peer, in any protocol, can call the function once.

        Another fiveways client calls it by `peer.call(f"callback.{token}", ...)`. The token expires with the
        connection.

        Raises:
            TypeError: the function cannot be called as a method.
        """
        return await self._core.callback(function)

    async def discover(self, name: str = "") -> Listing:
        """List available methods: all, those below a route (`account.`), or the documentation of one method."""
        written = names.spell_name(name, self._reconnector.spec.name_style)
        answer = await self._core.request(lambda call_id, _: Discover(call_id, written))
        match value_of_result(answer):
            case Description(methods=methods, routes=routes, doc=doc, more=more):
                return Listing(methods, routes, doc, more)
            case _:
                raise CallFailed("the hub's response is not a description")

    # Work queues.

    async def push(self, queue: str, data: object = None) -> int:
        """Push a job to a work queue and return the number of jobs that wait: `await peer.push("thumbnails", name)`."""
        match await self.call("hub.push", {"queue": queue, "data": data}):
            case {"waiting": int(waiting)}:
                return waiting
            case _:
                return 0

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Pull a job: `async with peer.pull("thumbnails") as job:`. The job is done when the block ends.

        An exception in the block fails the job, and the hub redelivers it. `job = await peer.pull(...)` leaves both to
        `job.done()` and `job.fail()`. The exceptions are raised on entry.

        Args:
            queue: name of the work queue.
            timeout: seconds to wait for a job; without it there is no limit.

        Raises:
            CallTimeout: no job arrived within the timeout.
            CallFailed: the data of the job cannot be decoded; the job failed.
        """
        return JobPull(partial(self._pull, queue, timeout))

    async def jobs(self, queue: str) -> AsyncGenerator[Job, None]:
        """Yield jobs of a work queue one by one: `async for job in peer.jobs("thumbnails"):`.

        A job is done when the loop requests the next one, and fails if the loop ends before. After a lost connection
        the loop continues, and the hub redelivers the job.
        """
        while True:
            job = await self._pull(queue, None)
            try:
                yield job
            except GeneratorExit:
                await job.fail("the worker stopped before the job was done")
                raise
            with suppress(ConnectionLost):  # the hub redelivers the job
                await job.done()

    async def _pull(self, queue: str, timeout: float | None) -> Job:
        return await pull_job(self.call, self._core.callbacks, queue, timeout, again=True)

    # The beginning, pauses, and the end.

    async def open(self) -> None:
        """Connect to the hub. `connect` does this.

        Raises:
            Refused: the hub rejects the credentials.
            ConnectionLost: the hub cannot be reached, or the handshake failed.
        """
        await self._reconnector.start()

    def pause(self) -> None:
        """Close the link until `resume()`: nothing is sent or received, and calls wait, up to their timeouts.

        Calls in progress continue at the hub; their responses and events arrive after `resume()`. Only nq can pause.

        Raises:
            LocalProtocolError: the protocol is not nq.
            ConnectionLost: the connection is closed.
        """
        self._reconnector.pause()

    def resume(self) -> None:
        """Open the link again after `pause()`; otherwise do nothing."""
        self._reconnector.resume()

    async def close(self) -> None:
        """Close the connection, end subscriptions and stop served functions; calls in progress fail."""
        await self._core.close()

    async def wait_closed(self) -> ConnectionStatus:
        """Wait until the connection is closed for good, and return the last status with the reason."""
        async for status in self.states():
            last = status
        return last

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
