"""The participant of an application in the hub's process."""

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


def _refuse_subscription(_arguments: object, _written: str) -> str:
    raise builtin_methods.BadArguments("an application subscribes with `App.on`, not with a call")


_CALLBACK_ARGUMENTS: Final = {"hub.callback": ("id", 0), "hub.pull": ("callback", 1)}
"""Built-in methods that take the id of a callback: its argument's name and index."""
_STYLES: Final = builtin_methods.Styles(TRAITS.names, TRAITS.topics, _refuse_subscription)


class LocalPeer(Participant):
    """One application at the hub. Implements `app.context.Reach`."""

    protocol = TRAITS.protocol

    def __init__(self, app: App, exchange: Exchange, peer: str, limits: Limits = Limits()) -> None:
        self.peer = peer
        self.outbox = FrameQueue()  # always empty: messages are handled at once
        self._exchange = exchange
        self._app = app
        self._has_routes = bool(app.routes)
        self._discovery_tasks: set[asyncio.Task[None]] = set()
        """Tasks that answer discovery of routes."""
        self._dispatcher = Dispatcher(app, self._send, find_caller=self._caller, hub=self, limits=limits)
        self._responses: dict[str, asyncio.Future[HubMessage]] = {}
        self._response_attachments: dict[str, Attachments | None] = {}
        """Received attachments of requests that wait for a response with attachments."""
        self.ids = count(1)
        self._attachment_names = map(str, count(1))
        self._blocker_count = 0
        self._may_publish = asyncio.Event()
        self._may_publish.set()

    async def start(self) -> None:
        """Join the hub, and register methods and subscriptions; FivewaysError if the hub refuses one of them."""
        exchange = self._exchange
        exchange.participants[self.peer] = self
        exchange.on_leave.append(self._dispatcher.peer_left)
        exchange.hub.arrive(self.peer, TRAITS, Credentials(is_trusted=True), exchange.now())
        self._send(Hello())
        for queue in self._dispatcher.updates.queues:
            queue.find_caller = self._caller_from
        session = exchange.hub.find_session(self.peer)
        if session is not None:
            exchange.hub.updates.accept_matching(
                session, [queue.handler.topic for queue in self._dispatcher.updates.queues]
            )
        await self._dispatcher.start()
        for request in (*self._dispatcher.registrations(), *self._dispatcher.subscriptions()):
            await self._request_result(request)
        self._dispatcher.start_workers()

    async def stop(self) -> None:
        """Let running handlers end, and leave the hub."""
        for task in self._discovery_tasks:
            task.cancel()
        await self._dispatcher.close()
        self._exchange.on_leave.remove(self._dispatcher.peer_left)
        self._exchange.leave(self)
        for response in self._responses.values():
            if not response.done():
                response.set_exception(CallLost("the hub is closing"))

    def _caller_from(self, peer: str) -> LocalCaller | None:
        session = self._exchange.hub.find_session(peer)
        if session is None:
            return None
        return LocalCaller(Caller(peer, session.traits.protocol, session.identity, session.variables), self)

    def _caller(self, call_id: str) -> LocalCaller | None:
        caller = self._exchange.hub.caller_info(call_id)
        return None if caller is None else LocalCaller(caller, self)

    # Calls from the exchange.

    def deliver(self, delivery: Delivery, _now: float) -> None:
        """Handle a message: the response to a request, or a request for the application."""
        message = delivery.message
        if type(message) is Call:
            self._dispatcher.handle_call(self._with_full_name(message) if self._has_routes else message)
            return
        if isinstance(message, Description):
            message = Result(message.id, builtin_methods.description_payload(message))
        if isinstance(message, Result | Failure):
            if isinstance(message, Result) and message.attachments and message.id in self._response_attachments:
                self._response_attachments[message.id] = self._dispatcher.callbacks.expect(message.attachments)
            response = self._responses.get(message.id)
            if response is not None and not response.done():
                response.set_result(message)
        elif isinstance(message, Discover):
            self._handle_discover(message)
        elif not isinstance(message, Welcome):
            self._dispatcher.handle(message)

    def _with_full_name(self, call: Call) -> Call:
        """Return a call with the full name of its method: below a route, the hub leaves out the prefix."""
        pending = None if call.callback else self._exchange.hub.pending_call(call.id)
        return call if pending is None else msgspec.structs.replace(call, method=pending.method)

    def _handle_discover(self, message: Discover) -> None:
        pending = self._exchange.hub.pending_call(message.id)
        kind = None if pending is None else pending.kind
        route = self._app.routes.get(kind.route) if isinstance(kind, RouteQuery) else None
        if route is None:
            self._send(Failure(message.id, Reason.NO_SUCH_METHOD, f"there is no method {message.name!r}"))
            return
        task = asyncio.create_task(self._answer_discovery(message, route), name=f"discover {route.name}")
        self._discovery_tasks.add(task)
        task.add_done_callback(self._discovery_tasks.discard)

    async def _answer_discovery(self, message: Discover, route: Route) -> None:
        self._send(await describe_route(message, route))

    def deliver_event(self, event: Event, subscriber: Subscriber, _now: float) -> None:
        """Handle an event."""
        self._dispatcher.handle(event_for(event, subscriber))

    def pause_publishing(self) -> None:
        """Let publications of the application wait."""
        self._blocker_count += 1
        self._may_publish.clear()

    def resume_publishing(self) -> None:
        """Accept publications again, unless another subscriber still blocks."""
        self._blocker_count -= 1
        if self._blocker_count == 0:
            self._may_publish.set()

    def close(self, _why: str) -> None:
        """Do nothing: an application is never a slow consumer."""

    # Calls from the application.

    def _send(self, message: HubMessage) -> None:
        exchange = self._exchange
        exchange.handle(self.peer, message, exchange.now())
        exchange.schedule()

    async def request_peer(self, peer: str, message: HubMessage, attachments: Sequence[bytes] = ()) -> Result:
        """Send a request to one peer; CallError if it fails."""
        attachments_by_name = self._name_attachments(attachments)
        if isinstance(message, Call) and attachments_by_name:
            message = msgspec.structs.replace(message, attachments=tuple(attachments_by_name))
        return await self._request_result(message, attachments_by_name, partial(self._send_to_peer, peer))

    async def request_peer_reply(self, peer: str, message: Call, attachments: Sequence[bytes] = ()) -> Reply:
        """Call one peer, and wait for the attachments of its response, too; CallError if it fails."""
        return await self._request_reply(message.id, self.request_peer(peer, message, attachments))

    async def _request_reply(self, request_id: str, request: Awaitable[Result]) -> Reply:
        self._response_attachments[request_id] = None
        try:
            result = await request
            value, attachments = value_of_result(result), self._response_attachments[request_id]
            return Reply(value, () if attachments is None else await attachments)
        except AttachmentError as exc:
            raise CallFailed(f"an attachment of the answer did not arrive: {exc}", data=value) from exc
        finally:
            received = self._response_attachments.pop(request_id)
            if received is not None:
                self._dispatcher.callbacks.discard(result.attachments, received)

    def _send_to_peer(self, peer: str, message: HubMessage) -> None:
        requests = self._exchange.hub.peer_requests
        if isinstance(message, Call):
            self._perform(partial(requests.callback if message.callback else requests.call, self.peer, peer, message))
        elif isinstance(message, SetVariable | UnsetVariable):
            self._perform(partial(requests.set_variable, self.peer, peer, message))

    def open_updates(self, caller: CallingPeer, topic_id: str) -> Updates:
        """Receive a peer's updates under a topic id; NotExecuted if that is impossible."""
        asyncio.get_running_loop()  # RuntimeError in a thread: the hub is not thread-safe
        hub = self._exchange.hub
        self._perform(partial(hub.peer_requests.take_updates, hub.updates, self.peer, caller.peer, topic_id))
        stop = partial(self._perform, lambda _now: hub.updates.stop(caller.peer, topic_id))
        return self._dispatcher.updates.open(caller, topic_id, stop)

    def close_peer(self, peer: str, text: str) -> None:
        """End the session of one peer; NotExecuted if that is impossible."""
        self._perform(lambda _now: self._exchange.hub.peer_requests.close(peer, text))

    def _perform(self, operation: Callable[[float], Deliveries]) -> None:
        exchange = self._exchange
        now = exchange.now()
        try:
            deliveries = operation(now)
        except Refusal as exc:
            raise NotExecuted(exc.reason, exc.text, retry_after=exc.retry_after) from exc
        exchange.perform(deliveries, now)
        exchange.schedule()

    async def _request_result(
        self,
        message: HubMessage,
        attachments: Mapping[str, bytes] | None = None,
        send: Callable[[HubMessage], None] | None = None,
    ) -> Result:
        """Send a request to the hub, or with `send`; CallError if it fails."""
        request_id = _id_of(message)
        response = self._responses[request_id] = asyncio.get_running_loop().create_future()
        try:
            (send or self._send)(message)
            for name, data in (attachments or {}).items():
                self._send(Attachment(name, data))
            outcome = await response
        except asyncio.CancelledError:
            self._send(Cancel(request_id))
            raise
        finally:
            del self._responses[request_id]
        if isinstance(outcome, Failure):
            raise error_from_failure(outcome)
        if not isinstance(outcome, Result):
            raise FivewaysError(f"the hub answered with {type(outcome).__name__}")
        return outcome

    def _name_attachments(self, attachments: Sequence[bytes]) -> dict[str, bytes]:
        return {next(self._attachment_names): data for data in attachments}

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  the hub enforces the timeout
        attachments: Sequence[bytes] = (),
    ) -> object:
        """Call a method, a callback or a built-in method, and return its result; CallError if it fails."""
        attachments_by_name = self._name_attachments(attachments)
        message = self._request(method, to_body(body), tuple(attachments_by_name), timeout)
        if isinstance(message, Publish):
            await self._may_publish.wait()
        return value_of_result(await self._request_result(message, attachments_by_name))

    async def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  the hub enforces the timeout
        attachments: Sequence[bytes] = (),
    ) -> Reply:
        """Call a method, and return its result with its attachments; CallError if it fails."""
        attachments_by_name = self._name_attachments(attachments)
        message = self._request(method, to_body(body), tuple(attachments_by_name), timeout)
        return await self._request_reply(_id_of(message), self._request_result(message, attachments_by_name))

    async def callback(self, function: Callable[..., object]) -> str:
        """Return a token by which any peer can call the function once."""
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
        """Refuse an unknown callback: its token would be dead, and its job lost to other workers."""
        field, index = _CALLBACK_ARGUMENTS[builtin]
        value: object = body.value()
        if isinstance(value, list | tuple):
            value = value[index] if len(value) > index else None
        elif isinstance(value, dict):
            value = value.get(field)
        # The hub itself refuses malformed ids.
        if isinstance(value, str | int) and not self._dispatcher.callbacks.has_receiver(str(value)):
            text = f"the application has no callback '{value}': name one of its methods, or use context.callback()"
            raise builtin_methods.BadArguments(text)

    def _request(self, method: str, body: Payload, attachments: tuple[str, ...], timeout: float | None) -> HubMessage:
        """Return the message for a call; NotExecuted if there is none."""
        request_id = str(next(self.ids))
        token = names.callback_token(method)
        if token is not None:
            trace = tracing.current_traceparent()
            return Call(request_id, token, body, "", attachments, True, timeout, traceparent=trace)
        try:
            folded = names.fold(method, TRAITS.names)
            message = builtin_methods.message_from_call(request_id, folded, body, _STYLES, attachments)
            if folded in _CALLBACK_ARGUMENTS:
                self._check_callback(folded, body)
        except BadName as exc:
            raise NotExecuted(Reason.NO_SUCH_METHOD, str(exc)) from exc
        except builtin_methods.BadArguments as exc:
            raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
        trace = tracing.current_traceparent()
        return message or Call(request_id, folded, body, method, attachments, timeout=timeout, traceparent=trace)

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> object:
        """Publish data on a topic, after blocking subscribers have caught up."""
        await self._may_publish.wait()
        attachments_by_name = self._name_attachments(attachments)
        parsed_topic = topics.parse(topic, topics.UMQ)
        message = Publish(str(next(self.ids)), parsed_topic, to_body(data), tuple(attachments_by_name), retain=retain)
        return value_of_result(await self._request_result(message, attachments_by_name))


def _id_of(message: HubMessage) -> str:
    request_id: str = message.id  # type: ignore[attr-defined]  # every request has one
    return request_id
