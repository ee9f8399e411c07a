"""A client, as a program sees it: one connection to a hub, and the same verbs in every protocol."""

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
from fiveways.client.core import ClientCore, wait_result
from fiveways.client.listing import Listing
from fiveways.client.part_iteration import iterate_parts
from fiveways.client.pending_call import MAX_WAITING, PendingCall, progress_callback
from fiveways.client.pending_requests import PartQueue, RequestOptions
from fiveways.client.reconnector import OpenLink
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
    """One connection to a hub, opened by `connect`. It reconnects by itself, unless it was told not to.

    Every verb that makes a request raises a `CallError` if it fails: `NotExecuted`, if nothing was done for certain,
    `CallFailed`, `CallTimeout`, `CallLost` or `Cancelled`; and `ConnectionLost` once there is no connection any more.
    Nothing is sent if an attachment is neither bytes nor a path (`TypeError`) or is a file that cannot be read
    (`FileNotFoundError` or another `OSError`), nor with a timeout that is not above 0 (`ValueError`).
    """

    def __init__(self, settings: ClientSettings, open_link: OpenLink = open_websocket) -> None:
        """Make one; `connect` does that, and opens it."""
        self._core = ClientCore(settings, self, open_link)
        self._reconnector = self._core.reconnector
        self._default_timeout = settings.timeout
        self.vars = Vars(self._core.variables, self)
        """Our variables at the hub, and the hub's for us."""

    def __repr__(self) -> str:
        return f"<Peer {self.url} {self.state.value}>"

    @property
    def url(self) -> str:
        """Where it is connected to."""
        return self._core.settings.address.original_url

    @property
    def protocol(self) -> str:
        """What it speaks: umq, umq36, lrpm-json, lrpm-cbor or nq."""
        return self._core.settings.address.protocol

    @property
    def session(self) -> str:
        """What the hub calls this connection; another name after a reconnect."""
        return self._reconnector.session_name

    @property
    def state(self) -> ConnectionState:
        """How the connection is."""
        return self._reconnector.states.current.state

    def states(self) -> AsyncGenerator[ConnectionStatus, None]:
        """Follow the connection: `async for status in peer.states(): print(status)`, the present state first."""
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
        """Call a method and return its value: `await peer.call("math.add", [2, 3], timeout=1.0)`.

        `await peer.call("ticket.get", [7], type=Ticket)` checks and converts the value; BadValue if it does not fit.

        An object as `body` is named arguments, a list positional ones. `progress` is called with what the method tells
        on the way, a value and a text, where the protocol carries that. A call that is `idempotent` is made again if
        the connection is lost before its answer. `verbose` asks, in nq, for more to be told on the way, such as that it
        still waits; a text asks for NQ's own debugging as well. Other protocols have no such thing and ignore it.
        """
        if idempotent or progress is not None or verbose:
            extras = RequestOptions(progress=progress_callback(progress), verbose=verbose)
            value = (await self._call(method, body, timeout, attachments, extras, idempotent)).value
            return value if type is None else decode(value, type)
        session = self._reconnector.session
        if session is None or session.is_full:
            session, timeout = await self._reconnector.wait_ready(self._default_timeout if timeout is None else timeout)
        pending = session.call(method, body, timeout, attachments)
        try:
            answer = await pending.future
        except asyncio.CancelledError:
            session.abandon(pending)
            raise
        return value_of_result(answer) if type is None else decode(value_of_result(answer), type)

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
        """Call a method and return its value with its attachments: `(await peer.call_reply("photo.get")).attachments`.

        Raises:
            CallFailed: besides its usual sense, an attachment of the answer did not arrive; `data` is the value.
        """
        extras = RequestOptions(progress=progress_callback(progress), wants_attachments=True, verbose=verbose)
        return await self._call(method, body, timeout, attachments, extras, idempotent)

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
        """Begin a call and go on: `call = peer.begin("report.build", {"year": 2026})`, then `value = await call`.

        `async for note in call.progress():` tells what the method says on the way, `call.cancel()` ends it. Of notes
        that nobody has taken, the latest `max_waiting` are kept. `await call.reply()` gives the attachments of the
        answer too. `verbose` is as with `call`.
        """
        if timeout is not None and timeout <= 0:
            raise ValueError(BAD_TIMEOUT)

        run = partial(self._call, method, body, timeout, attachments, again=False)
        return PendingCall(run, verbose, max_waiting)

    async def _call(
        self,
        method: str,
        body: object,
        timeout: float | None,
        attachments: Sequence[Attachable],
        extras: RequestOptions,
        again: bool,
    ) -> Reply:
        left = self._default_timeout if timeout is None else timeout
        while True:
            session, left = await self._reconnector.wait_ready(left)
            pending = session.call(method, body, left, attachments, extras)
            try:
                answer = await wait_result(session, pending)
            except CallLost:
                if again and session.ended.done() and self._core.settings.reconnect:
                    continue
                raise
            value = value_of_result(answer)
            if pending.attachments is None:
                return Reply(value)
            try:
                return Reply(value, await pending.attachments)
            except AttachmentError as exc:
                raise CallFailed(f"an attachment of the answer did not arrive: {exc}", data=value) from exc

    async def stream(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,
        attachments: Sequence[Attachable] = (),
        max_waiting: int = 10_000,
    ) -> AsyncGenerator[Any, None]:
        """Call a method and give the parts of its answer as they come: `async for part in peer.stream("log.tail"):`.

        Where the answer comes as one array, be it since the protocol knows no parts, its elements are given; any other
        answer is the only part. If over `max_waiting` parts wait to be taken, the call is cancelled. In nq, it
        ends by `CallLost` after its last part if the hub has begun anew in the middle of it.
        """
        session, left = await self._reconnector.wait_ready(self._default_timeout if timeout is None else timeout)
        parts = PartQueue(max_waiting)
        pending = session.call(method, body, left, attachments, RequestOptions(parts))
        async with aclosing(iterate_parts(session, pending, parts)) as found:
            async for part in found:
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
        """Give `data` to all who subscribed: `await peer.publish("sensors.roof.temperature", 21.5)`.

        With `retain`, later subscribers get it too, as their first event. Without `confirm` the hub is not waited for,
        and a refusal never heard of.
        """
        where = names.parse_topic(topic)
        wait = self._default_timeout if timeout is None else timeout
        if confirm:
            await self._core.request(
                lambda name, attached: Publish(name, where, Value(data), attached, retain), wait, attachments
            )
            return
        session = self._reconnector.session
        if session is None or session.is_full:
            session, _ = await self._reconnector.wait_ready(wait)
        session.notify(lambda attached: Publish(None, where, Value(data), attached, retain), attachments)

    def subscribe(
        self, pattern: str, *, when_full: str = "", envelope: bool | None = None, max_waiting: int = 1000
    ) -> Subscription:
        """Follow a topic, or all that fit: `async with peer.subscribe("sensors.*.temperature") as events:`.

        `*` stands for one or more characters within a segment. `when_full` is what the hub does when we read too
        slowly: skip, close or unsubscribe. Here, `max_waiting` events wait to be taken; then the oldest is
        dropped, and counted in the `missed` of the next one. With `envelope`, updates in the dialects of UMQ tell their
        topic and what the hub skipped; for patterns that is the default.
        """
        wish = SubscribeOptions(pattern, names.parse_pattern(pattern), when_full, envelope, max_waiting)
        return Subscription(self._core.subscriptions, self._core.subscriptions.create(wish))

    async def close_topic(self, topic: str) -> None:
        """End a topic for all who subscribed to it, and forget its retained value."""
        where = names.parse_topic(topic)
        await self._core.request(lambda name, _: CloseTopic(name, where))

    # Methods on offer.

    async def register(
        self, method: str, function: Callable[..., object], *, doc: str | None = None, share: str = ""
    ) -> None:
        """Offer a function to all: `await peer.register("math.add", add)`.

        It is served as by an `App`: async functions as tasks, plain ones in threads, async generators in parts. It
        stays on offer over a lost connection. `share` (round_robin, random, first, open): who of several gets a call.

        Raises:
            TypeError: it is no function, or one whose arguments cannot be checked.
            ValueError: we offer that name already, or `share` is none of these.
        """
        await self._core.registrations.register(method, function, doc, share)

    async def unregister(self, method: str) -> None:
        """Offer it no longer; calls that run are finished."""
        await self._core.registrations.unregister(method)

    async def serve(self, app: App) -> None:
        """Offer the methods of an application, subscribe its handlers and start its workers; `close` stops these.

        Raises:
            ValueError: we offer one of its names already.
        """
        await self._core.registrations.serve(app)

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which somebody, in any protocol, can call the function once.

        Another fiveways client does that by `peer.call(f"callback.{token}", ...)`. A lost connection ends it.

        Raises:
            TypeError: as `register`.
        """
        return await self._core.callback(function)

    async def discover(self, name: str = "") -> Listing:
        """Ask what there is: all, what is below a route (`account.`), or the documentation of a method."""
        written = names.spell_name(name, self._reconnector.spec.name_style)
        answer = await self._core.request(lambda call_id, _: Discover(call_id, written))
        match value_of_result(answer):
            case Description(methods=methods, routes=routes, doc=doc, more=more):
                return Listing(methods, routes, doc, more)
            case _:
                raise CallFailed("the answer is no description")

    # Work queues.

    async def push(self, queue: str, data: object = None) -> int:
        """Put work into a queue; return how many pieces wait there now: `await peer.push("thumbnails", name)`."""
        match await self.call("hub.push", {"queue": queue, "data": data}):
            case {"waiting": int(waiting)}:
                return waiting
            case _:
                return 0

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Wait for a piece of work: `async with peer.pull("thumbnails") as job:`, and it is done when the block ends.

        Without a timeout it waits as long as it takes; else CallTimeout when that is over.
        """
        return JobPull(partial(self._pull, queue, timeout))

    async def jobs(self, queue: str) -> AsyncGenerator[Job, None]:
        """Give one job of a queue after the other: `async for job in peer.jobs("thumbnails"):`.

        A job is done when the loop asks for the next one; a loop that ends in the middle of a job returns it.
        """
        while True:
            job = await self._pull(queue, None)
            try:
                yield job
            except GeneratorExit:
                await job.fail("the worker stopped before the job was done")
                raise
            with suppress(ConnectionLost):  # the hub has given the job to another worker
                await job.done()

    async def _pull(self, queue: str, timeout: float | None) -> Job:
        return await pull_job(self.call, self._core.callbacks, queue, timeout, again=True)

    # The beginning, pauses, and the end.

    async def open(self) -> None:
        """Connect; Refused or ConnectionLost if that fails."""
        await self._reconnector.start()

    def pause(self) -> None:
        """Stop all traffic until `resume()`: nothing is sent or received, and calls wait, up to their timeouts.

        What runs at the hub goes on there; answers and events wait for us.

        Raises:
            LocalProtocolError: only nq can pause; elsewhere a conversation ends with its link.
        """
        self._reconnector.pause()

    def resume(self) -> None:
        """Go on after `pause()`, and get what is due."""
        self._reconnector.resume()

    async def close(self) -> None:
        """Part from the hub; subscriptions end, and what is still called is cancelled."""
        await self._core.close()

    async def wait_closed(self) -> ConnectionStatus:
        """Wait until the connection is over for good, and return why."""
        async for status in self.states():
            last = status
        return last

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
