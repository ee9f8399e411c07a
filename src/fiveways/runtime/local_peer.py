"""An application in the same process: one who takes part without a wire."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

import msgspec

from fiveways.app import App, Reply, tracing
from fiveways.app.app import Route
from fiveways.app.attachments import AttachmentError, Attachments
from fiveways.app.calling_peer import CallingPeer
from fiveways.app.dispatcher import Dispatcher
from fiveways.app.jobs import JobPull, pull_job
from fiveways.app.routes import describe_route
from fiveways.app.updates import Updates
from fiveways.app.values import to_body
from fiveways.errors import CallFailed, CallLost, FivewaysError, NotExecuted, Reason
from fiveways.hub.delivery import Deliveries, Delivery, Subscriber
from fiveways.hub.pending_kinds import RouteQuery
from fiveways.hub.refusal import Refusal
from fiveways.hub.session import Caller
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    Description,
    Discover,
    Event,
    Failure,
    Hello,
    HubMessage,
    Publish,
    Result,
    SetVariable,
    UnsetVariable,
    Welcome,
)
from fiveways.model.names import BadName
from fiveways.model.outcomes import error_from_failure, value_of_result
from fiveways.protocols import builtin_methods
from fiveways.runtime.exchange import Exchange, event_for
from fiveways.runtime.local_caller import LocalCaller
from fiveways.runtime.outbox import FrameQueue
from fiveways.runtime.participant import Participant
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload

TRAITS: Final = ProtocolTraits("app", names.LOCAL, topics.UMQ, accepts_streams=True, cancels=True, is_single_peer=True)


def _refuse_subscription(_given: object, _written: str) -> str:
    raise builtin_methods.BadArguments("an application hears of topics by `App.on`, not by calls")


_CALLBACK_ARGUMENTS: Final = {"hub.callback": ("id", 0), "hub.pull": ("callback", 1)}
"""Where these built-ins are given the id of a callback: under which name, or in which place."""
_STYLES: Final = builtin_methods.Styles(TRAITS.names, TRAITS.topics, _refuse_subscription)


class LocalPeer(Participant):
    """One application at the hub. Fulfils `app.context.Reach`."""

    protocol = TRAITS.protocol

    def __init__(self, app: App, exchange: Exchange, peer: str, limits: Limits = Limits()) -> None:
        self.peer = peer
        self.outbox = FrameQueue()  # nothing waits in it: what is said is heard at once
        self._exchange = exchange
        self._app = app
        self._has_routes = bool(app.routes)
        self._discovery_tasks: set[asyncio.Task[None]] = set()
        """Tasks that answer questions about routes."""
        self._dispatcher = Dispatcher(app, self._send, who=self._caller, reach=self, limits=limits)
        self._answers: dict[str, asyncio.Future[HubMessage]] = {}
        self._response_attachments: dict[str, Attachments | None] = {}
        """Requests whose answers are wanted with their attachments, and where these come."""
        self.ids = count(1)
        self._attachment_names = map(str, count(1))
        self._blocker_count = 0
        self._may_publish = asyncio.Event()
        self._may_publish.set()

    async def start(self) -> None:
        """Come in, and offer what the application has; FivewaysError if the hub refuses any of it."""
        exchange = self._exchange
        exchange.participants[self.peer] = self
        exchange.on_leave.append(self._dispatcher.peer_left)
        exchange.hub.arrive(self.peer, TRAITS, Credentials(is_trusted=True), exchange.now())
        self._send(Hello())
        for feed in self._dispatcher.updates.queues:
            feed.find_caller = self._caller_from
        session = exchange.hub.find_session(self.peer)
        if session is not None:
            exchange.hub.updates.accept_matching(
                session, [feed.handler.topic for feed in self._dispatcher.updates.queues]
            )
        await self._dispatcher.start()
        for request in (*self._dispatcher.registrations(), *self._dispatcher.subscriptions()):
            await self._request_result(request)
        self._dispatcher.start_workers()

    async def stop(self) -> None:
        """Let the application end what it is doing, and leave."""
        for task in self._discovery_tasks:
            task.cancel()
        await self._dispatcher.close()
        self._exchange.on_leave.remove(self._dispatcher.peer_left)
        self._exchange.leave(self)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(CallLost("the hub is closing"))

    def _caller_from(self, peer: str) -> LocalCaller | None:
        session = self._exchange.hub.find_session(peer)
        if session is None:
            return None
        return LocalCaller(Caller(peer, session.traits.protocol, session.identity, session.variables), self)

    def _caller(self, call_id: str) -> LocalCaller | None:
        caller = self._exchange.hub.caller_info(call_id)
        return None if caller is None else LocalCaller(caller, self)

    # What the exchange tells.

    def deliver(self, delivery: Delivery, _now: float) -> None:
        """Take a word: an answer to what the application asked, or work for it."""
        word = delivery.message
        if type(word) is Call:
            self._dispatcher.handle_call(self._with_full_name(word) if self._has_routes else word)
            return
        if isinstance(word, Description):
            word = Result(word.id, builtin_methods.description_payload(word))
        if isinstance(word, Result | Failure):
            if isinstance(word, Result) and word.attachments and word.id in self._response_attachments:
                self._response_attachments[word.id] = self._dispatcher.callbacks.expect(word.attachments)
            answer = self._answers.get(word.id)
            if answer is not None and not answer.done():
                answer.set_result(word)
        elif isinstance(word, Discover):
            self._handle_discover(word)
        elif not isinstance(word, Welcome):
            self._dispatcher.handle(word)

    def _with_full_name(self, call: Call) -> Call:
        """Return a call with the whole name of its method: below a route, the hub leaves the prefix out."""
        pending = None if call.callback else self._exchange.hub.pending_call(call.id)
        return call if pending is None else msgspec.structs.replace(call, method=pending.method)

    def _handle_discover(self, word: Discover) -> None:
        pending = self._exchange.hub.pending_call(word.id)
        errand = None if pending is None else pending.kind
        route = self._app.routes.get(errand.route) if isinstance(errand, RouteQuery) else None
        if route is None:
            self._send(Failure(word.id, Reason.NO_SUCH_METHOD, f"there is no method {word.name!r}"))
            return
        task = asyncio.create_task(self._answer_discovery(word, route), name=f"discover {route.name}")
        self._discovery_tasks.add(task)
        task.add_done_callback(self._discovery_tasks.discard)

    async def _answer_discovery(self, word: Discover, route: Route) -> None:
        self._send(await describe_route(word, route))

    def deliver_event(self, event: Event, subscriber: Subscriber, _now: float) -> None:
        """Take an event."""
        self._dispatcher.handle(event_for(event, subscriber))

    def pause_publishing(self) -> None:
        """Let what the application publishes wait."""
        self._blocker_count += 1
        self._may_publish.clear()

    def resume_publishing(self) -> None:
        """Let it go on."""
        self._blocker_count -= 1
        if self._blocker_count == 0:
            self._may_publish.set()

    def close(self, _why: str) -> None:
        """Stay: an application reads as fast as it is told."""

    # What the application wants.

    def _send(self, word: HubMessage) -> None:
        exchange = self._exchange
        exchange.handle(self.peer, word, exchange.now())
        exchange.schedule()

    async def request_peer(self, to: str, word: HubMessage, attachments: Sequence[bytes] = ()) -> Result:
        """Make a request of one peer; CallError if it fails."""
        named = self._named(attachments)
        if isinstance(word, Call) and named:
            word = msgspec.structs.replace(word, attachments=tuple(named))
        return await self._request_result(word, named, partial(self._send_to_peer, to))

    async def request_peer_reply(self, to: str, word: Call, attachments: Sequence[bytes] = ()) -> Reply:
        """Call one peer, and wait for the attachments of its answer too; CallError if it fails."""
        return await self._request_reply(word.id, self.request_peer(to, word, attachments))

    async def _request_reply(self, request_id: str, asking: Awaitable[Result]) -> Reply:
        """Wait for an answer and its attachments."""
        self._response_attachments[request_id] = None
        try:
            result = await asking
            value, attachments = value_of_result(result), self._response_attachments[request_id]
            return Reply(value, () if attachments is None else await attachments)
        except AttachmentError as exc:
            raise CallFailed(f"an attachment of the answer did not arrive: {exc}", data=value) from exc
        finally:
            gathered = self._response_attachments.pop(request_id)
            if gathered is not None:
                self._dispatcher.callbacks.discard(result.attachments, gathered)

    def _send_to_peer(self, to: str, word: HubMessage) -> None:
        requests = self._exchange.hub.peer_requests
        if isinstance(word, Call):
            self._perform(partial(requests.callback if word.callback else requests.call, self.peer, to, word))
        elif isinstance(word, SetVariable | UnsetVariable):
            self._perform(partial(requests.set_variable, self.peer, to, word))

    def open_updates(self, caller: CallingPeer, topic_id: str) -> Updates:
        """Take what a peer publishes under a topic id; NotExecuted if that is impossible."""
        asyncio.get_running_loop()  # RuntimeError in a thread, where the hub must not be touched
        hub = self._exchange.hub
        self._perform(partial(hub.peer_requests.take_updates, hub.updates, self.peer, caller.peer, topic_id))
        stop = partial(self._perform, lambda _now: hub.updates.stop(caller.peer, topic_id))
        return self._dispatcher.updates.open(caller, topic_id, stop)

    def close_peer(self, to: str, text: str) -> None:
        """End the session of one peer; NotExecuted if that is impossible."""
        self._perform(lambda _now: self._exchange.hub.peer_requests.close(to, text))

    def _perform(self, ask: Callable[[float], Deliveries]) -> None:
        exchange = self._exchange
        now = exchange.now()
        try:
            deliveries = ask(now)
        except Refusal as exc:
            raise NotExecuted(exc.reason, exc.text, retry_after=exc.retry_after) from exc
        exchange.perform(deliveries, now)
        exchange.schedule()

    async def _request_result(
        self,
        word: HubMessage,
        attachments: Mapping[str, bytes] | None = None,
        tell: Callable[[HubMessage], None] | None = None,
    ) -> Result:
        """Make a request of the hub, or as `tell` does; CallError if it fails."""
        request_id = _id_of(word)
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        try:
            (tell or self._send)(word)
            for name, data in (attachments or {}).items():
                self._send(Attachment(name, data))
            outcome = await answer
        except asyncio.CancelledError:
            self._send(Cancel(request_id))
            raise
        finally:
            del self._answers[request_id]
        if isinstance(outcome, Failure):
            raise error_from_failure(outcome)
        if not isinstance(outcome, Result):
            raise FivewaysError(f"the hub answered with {type(outcome).__name__}")
        return outcome

    def _named(self, attachments: Sequence[bytes]) -> dict[str, bytes]:
        return {next(self._attachment_names): data for data in attachments}

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  the hub watches over it
        attachments: Sequence[bytes] = (),
    ) -> object:
        """Call a method, a callback or a built-in of the hub, and return its result; CallError if it has none."""
        named = self._named(attachments)
        word = self._request(method, to_body(body), tuple(named), timeout)
        if isinstance(word, Publish):
            await self._may_publish.wait()
        return value_of_result(await self._request_result(word, named))

    async def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  the hub watches over it
        attachments: Sequence[bytes] = (),
    ) -> Reply:
        """Call a method, and return its result with its attachments; CallError if it has none."""
        named = self._named(attachments)
        word = self._request(method, to_body(body), tuple(named), timeout)
        return await self._request_reply(_id_of(word), self._request_result(word, named))

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which anybody can call the function once."""
        name = self._dispatcher.callbacks.add_function(function)
        try:
            return str(await self.call("hub.callback", {"id": name}))
        except BaseException:
            self._dispatcher.callbacks.remove(name)
            raise

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        """Wait for a job of a work queue."""
        withdraw = partial(self._exchange.hub.built_ins.cancel_pull, self.peer)
        return JobPull(partial(pull_job, self.call, self._dispatcher.callbacks, queue, timeout, withdraw=withdraw))

    def _check_callback(self, builtin: str, body: Payload) -> None:
        """Refuse a callback that nobody here would take: its token would be dead, and its job lost to others."""
        field, place = _CALLBACK_ARGUMENTS[builtin]
        value: object = body.value()
        if isinstance(value, list | tuple):
            value = value[place] if len(value) > place else None
        elif isinstance(value, dict):
            value = value.get(field)
        # The hub itself refuses what is no id at all.
        if isinstance(value, str | int) and not self._dispatcher.callbacks.has_receiver(str(value)):
            text = f"the application waits for no callback '{value}': name a method of it, or use context.callback()"
            raise builtin_methods.BadArguments(text)

    def _request(self, method: str, body: Payload, attachments: tuple[str, ...], timeout: float | None) -> HubMessage:
        """Return the word that a call means; NotExecuted if it means nothing."""
        request_id = str(next(self.ids))
        token = names.callback_token(method)
        if token is not None:
            trace = tracing.current_traceparent()
            return Call(request_id, token, body, "", attachments, True, timeout, traceparent=trace)
        try:
            folded = names.fold(method, TRAITS.names)
            word = builtin_methods.message_from_call(request_id, folded, body, _STYLES, attachments)
            if folded in _CALLBACK_ARGUMENTS:
                self._check_callback(folded, body)
        except BadName as exc:
            raise NotExecuted(Reason.NO_SUCH_METHOD, str(exc)) from exc
        except builtin_methods.BadArguments as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
        trace = tracing.current_traceparent()
        return word or Call(request_id, folded, body, method, attachments, timeout=timeout, traceparent=trace)

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> object:
        """Give data to all who subscribed to the topic; wait first where a subscriber has to catch up."""
        await self._may_publish.wait()
        named = self._named(attachments)
        where = topics.parse(topic, topics.UMQ)
        word = Publish(str(next(self.ids)), where, to_body(data), tuple(named), retain=retain)
        return value_of_result(await self._request_result(word, named))


def _id_of(word: HubMessage) -> str:
    """Return the id of a request."""
    request_id: str = word.id  # type: ignore[attr-defined]  # every request has one
    return request_id
