"""Requests and subscriptions of the peer in an LRPM conversation, and our responses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Reason, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model import names, topics
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.bridge import RequestRefused
from fiveways.protocols.lrpm.conversation_base import NO_MESSAGES, HubMessages, LrpmConversationBase, Receiver, Sender
from fiveways.protocols.lrpm.deferred_messages import AttachmentNames, DeferredMessage
from fiveways.protocols.lrpm.frames import MAX_U64, NO_META, Kind
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Value

FIRST_ID: Final = 256
"""LRPM-a09: an existing decoder reads smaller numbers as another type."""
CALL, PUBLISH, SUBSCRIBE, UNSUBSCRIBE = map(int, (Kind.CALL, Kind.PUBLISH, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE))


class IncomingRequest(msgspec.Struct, gc=False):
    """A pending request of the peer."""

    request_id: int
    kind: int = CALL
    message_type: type[hub.HubMessage] = hub.Call
    subscription: str = ""
    stream: bool = False
    progress: bool = False
    parts: int = 0
    """The number of parts of the streamed result that were sent."""
    cancelled: bool = False
    answered: bool = False
    """Set when the response only waits for its attachments."""


class PeerSubscription(msgspec.Struct, gc=False):
    """A subscription of the peer; `topic` is empty for a pattern."""

    topic: str
    number: int
    missed_events: int = 0
    """Events that were too large, reported with the next event."""


def _incoming_request(call: hub.Call, number: int) -> int | IncomingRequest:
    """Return the stored form of a call: only its id if a plain RESULT answers it."""
    if call.stream or call.progress:
        return IncomingRequest(number, CALL, hub.Call, "", call.stream, call.progress)
    return number


ParsedRequest: TypeAlias = tuple[hub.HubMessage, int | IncomingRequest]
Reader: TypeAlias = Callable[[Any, str, Any, AttachmentNames], ParsedRequest]


def _reject_topic_id(_given: object, _written: str) -> NoReturn:
    raise AssertionError("only a conversation numbers subscriptions")


STYLES: Final = builtin_methods.Styles(names.LRPM, topics.LRPM, _reject_topic_id)
"""Only for writing: parsing a request needs the number of a subscription."""


class Incoming(LrpmConversationBase):
    """Requests and subscriptions of the peer."""

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        super().__init__(setup, codec)
        self._incoming_requests: dict[str, int | IncomingRequest] = {}
        """By hub id."""
        self._peer_subscriptions: dict[str, PeerSubscription] = {}
        self._parse_procedure = bridge.procedure_parser(setup.limits.max_name)
        self._next_subscription = count(FIRST_ID)
        self._attachment_names = map(str, count(1))

    # Requests of the peer.

    def _on_call(self, message: lrpm.Call) -> HubMessages:
        """Handle a common call; any other call goes to `_on_request`."""
        requests, hub_id, meta = self._incoming_requests, str(message.request_id), message.meta
        try:
            target = self._parse_procedure(message.procedure)
            if (
                target.builtin
                or hub_id in requests
                or len(requests) >= self._limits.max_pending
                or "attachments" in meta
            ):
                return self._on_request(message)
            if not meta:
                requests[hub_id] = message.request_id
                return (hub.Call(hub_id, target.method, message.body, message.procedure, callback=target.callback),)
            call = bridge.read_call(hub_id, message, target, ())
        except (BadName, RequestRefused):
            return self._on_request(message)
        requests[hub_id] = _incoming_request(call, message.request_id)
        return (call,)

    def _on_request(self, message: Any) -> HubMessages:  # noqa: ANN401  one of the keys of REQUESTS
        request_kind, parse = self.REQUESTS[type(message)]
        hub_id = str(message.request_id)
        if hub_id in self._incoming_requests:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"request {hub_id} is open already", "LRPM-a15")
        try:
            self._check_room()
            attachments = self._read_attachments(message, strict=True)
            hub_message, request = parse(self, hub_id, message, tuple(attachment.name for attachment in attachments))
        except RequestRefused as refused:
            failure = hub.Failure(hub_id, refused.reason, refused.text, retry_after=refused.retry_after)
            self._refuse(request_kind, message.request_id, failure)
            return NO_MESSAGES
        self._incoming_requests[hub_id] = request
        return (
            (hub_message, *attachments) if attachments and getattr(hub_message, "attachments", ()) else (hub_message,)
        )

    def _refuse(self, kind: int, number: int, failure: hub.Failure) -> None:
        self._send_first_writable(
            bridge.error_fallbacks(kind, number, failure, to_hub=self.role is Role.CLIENT), self._write_message
        )

    def _send_first_writable(self, errors: Iterable[lrpm.Error], write: Callable[[lrpm.Error], None]) -> None:
        """Send the first ERROR that can be written; the last one always can."""
        for error in errors:
            with suppress(Unrepresentable):
                write(error)
                break

    def _check_room(self) -> None:
        if len(self._incoming_requests) >= self._limits.max_pending:
            raise RequestRefused(Reason.OVERLOADED, "too many requests are open")

    def _read_attachments(self, message: Any, *, strict: bool = False) -> Sequence[hub.Attachment]:  # noqa: ANN401  any with a meta
        if "attachments" not in message.meta:
            return ()
        encoding = self._deferred.encoding
        return bridge.read_attachments(message.meta, encoding, self._limits, self._attachment_names, strict=strict)

    def _read_call(self, hub_id: str, message: lrpm.Call, attachment_names: AttachmentNames) -> ParsedRequest:
        try:
            target = self._parse_procedure(message.procedure)
        except BadName as exc:
            raise RequestRefused(Reason.NO_SUCH_METHOD, str(exc)) from exc
        try:
            # Created for each call: stored, it would form a reference cycle with this conversation.
            styles = builtin_methods.Styles(names.LRPM, topics.LRPM, self._topic_id)
            hub_message = (
                builtin_methods.message_from_call(hub_id, target.method, message.body, styles, attachment_names)
                if target.builtin
                else None
            )
        except builtin_methods.BadArguments as exc:
            raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if hub_message is None:
            call = bridge.read_call(hub_id, message, target, attachment_names)
            return call, _incoming_request(call, message.request_id)
        bridge.read_call_meta(message.meta)
        bridge.check_names(hub_message, self._limits.max_name)
        if isinstance(hub_message, hub.Subscribe):
            self._add_subscription(hub_message)
        return hub_message, IncomingRequest(
            message.request_id, CALL, type(hub_message), getattr(hub_message, "subscription", "")
        )

    def _read_publish(self, hub_id: str, message: lrpm.Publish, attachment_names: AttachmentNames) -> ParsedRequest:
        hub_message = bridge.read_publish(hub_id, message, attachment_names)
        bridge.check_names(hub_message, self._limits.max_name)
        return hub_message, IncomingRequest(message.request_id, PUBLISH, hub.Publish)

    def _read_subscribe(self, hub_id: str, message: lrpm.Subscribe, _attached: AttachmentNames) -> ParsedRequest:
        hub_message = bridge.read_subscribe(hub_id, message, self._new_subscription)
        bridge.check_names(hub_message, self._limits.max_name)
        self._add_subscription(hub_message)
        return hub_message, IncomingRequest(message.request_id, SUBSCRIBE, hub.Subscribe, hub_message.subscription)

    def _read_unsubscribe(self, hub_id: str, message: lrpm.Unsubscribe, _attached: AttachmentNames) -> ParsedRequest:
        try:
            subscription = self._topic_id(message.subscription_id, "")
        except builtin_methods.BadArguments as exc:
            raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        request = IncomingRequest(message.request_id, UNSUBSCRIBE, hub.Unsubscribe, subscription)
        return hub.Unsubscribe(hub_id, subscription), request

    def _topic_id(self, chosen: object, spelling: str) -> str:
        """Return the number of a new subscription to the topic `spelling`, or of the subscription to end."""
        if spelling:
            if chosen is not None:
                raise builtin_methods.BadArguments("takes no id: the response contains the subscription id")
            return self._new_subscription()
        if type(chosen) is int and 0 <= chosen <= MAX_U64:
            chosen = str(chosen)
        if not isinstance(chosen, str):
            raise builtin_methods.BadArguments("needs id as an unsigned integer")
        if chosen not in self._peer_subscriptions:
            raise builtin_methods.BadArguments(f"no subscription {chosen[:32]} is open")
        return chosen

    def _add_subscription(self, message: hub.Subscribe) -> None:
        literal = message.pattern.literal
        topic = topics.spell(literal, topics.LRPM) if literal else ""
        self._peer_subscriptions[message.subscription] = PeerSubscription(topic, int(message.subscription))

    def _remove_subscription(self, subscription: str) -> None:
        """Remove a subscription and its deferred events: none may follow the response that ends it."""
        self._deferred.discard_queue(("event", subscription))
        self._peer_subscriptions.pop(subscription, None)

    def _new_subscription(self) -> str:
        """Return a number that was never used for a subscription of this session (LRPM-a18)."""
        if len(self._peer_subscriptions) >= self._limits.max_subscriptions:
            raise RequestRefused(Reason.OVERLOADED, "too many subscriptions")
        return str(next(self._next_subscription))

    def _on_cancel(self, message: lrpm.Cancel) -> HubMessages:
        hub_id = str(message.request_id)
        request = self._incoming_request(hub_id) if hub_id in self._incoming_requests else None
        # LRPM-a06: a CANCEL of an unknown or finished request gets no response; a repeated one is ignored.
        if request is None or request.answered or request.cancelled:
            return NO_MESSAGES
        request.cancelled = True
        return (hub.Cancel(hub_id),)

    # Our responses.

    def _incoming_request(self, hub_id: str) -> IncomingRequest:
        """Return an open request of the peer as a struct."""
        request = self._incoming_requests[hub_id]
        if isinstance(request, int):
            request = self._incoming_requests[hub_id] = IncomingRequest(request)
        return request

    def _find_unanswered(self, hub_id: str) -> IncomingRequest:
        request = self._incoming_request(hub_id) if hub_id in self._incoming_requests else None
        if request is None or request.answered:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return request

    def _send_result(self, message: hub.Result) -> None:
        stored, body = self._incoming_requests.get(message.id), message.body
        if type(stored) is int and not message.stream and not message.attachments and body is not None:
            codec = self._codec
            write = codec.write_result
            packet = write(stored, body)
            self.unsent.append(packet if len(packet.payload) <= codec.max_frame else codec.check_size(packet))
            del self._incoming_requests[message.id]
            return
        if type(stored) is IncomingRequest and stored.kind == PUBLISH and not message.stream:
            packet = self._codec.encoding.write_published(stored.request_id, bridge.publication_id(body))
            self.unsent.append(packet)
            del self._incoming_requests[message.id]
            return
        request = self._find_unanswered(message.id)
        last = message.last or not message.stream
        if message.stream:
            self._check_part(message, request)
        self._send_response(
            message.id, request, self._result_message(message, request, last=last), message.attachments, last=last
        )
        request.parts += 1
        if request.message_type is hub.Unsubscribe:
            self._remove_subscription(request.subscription)

    def _check_part(self, message: hub.Result, request: IncomingRequest) -> None:
        if not request.stream:
            raise LocalProtocolError("the caller did not request a streamed result")
        if request.parts >= self._limits.max_stream:
            raise LocalProtocolError("too many parts")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the last part of a stream may lack an element")

    def _result_message(self, message: hub.Result, request: IncomingRequest, *, last: bool) -> lrpm.Message:
        number = request.request_id
        if request.kind == SUBSCRIBE:
            return lrpm.Subscribed(number, int(request.subscription))
        if request.kind == UNSUBSCRIBE:
            return lrpm.Unsubscribed(number)
        if request.message_type is hub.Subscribe:
            return lrpm.Result(number, Value({"id": int(request.subscription)}))
        in_parts = message.stream or request.parts
        meta = bridge.part_meta(message, request.parts + 1, last=last) if in_parts else NO_META
        return lrpm.Result(number, message.body or NULL, meta)

    def _send_response(
        self,
        hub_id: str,
        request: IncomingRequest,
        message: lrpm.Message,
        attachments: AttachmentNames = (),
        *,
        last: bool = True,
    ) -> None:
        if self._write_or_defer(("answer", hub_id), message, attachments, hub_id if last else "") is not None:
            request.answered = last
        elif last:
            del self._incoming_requests[hub_id]

    def _send_progress(self, message: hub.Progress) -> None:
        request = self._find_unanswered(message.id)
        if request.progress:
            self._send_response(
                message.id,
                request,
                lrpm.Result(request.request_id, message.body, bridge.progress_meta(message)),
                last=False,
            )

    def _send_failure(self, message: hub.Failure) -> None:
        request = self._find_unanswered(message.id)
        errors = bridge.error_fallbacks(request.kind, request.request_id, message, to_hub=self.role is Role.CLIENT)
        self._send_first_writable(errors, partial(self._send_response, message.id, request))
        if request.message_type is hub.Subscribe:
            self._remove_subscription(request.subscription)

    def _send_description(self, message: hub.Description) -> None:
        request = self._find_unanswered(message.id)
        if request.message_type is not hub.Discover:
            raise LocalProtocolError(f"request {message.id} did not ask for a description")
        self._send_response(
            message.id, request, lrpm.Result(request.request_id, builtin_methods.description_payload(message))
        )

    def _on_deferred_sent(self, deferred: DeferredMessage) -> None:
        if deferred.incoming_id:
            del self._incoming_requests[deferred.incoming_id]

    def _on_deferred_too_large(self, deferred: DeferredMessage) -> None:
        queue_kind, key = deferred.order_key[0], str(deferred.order_key[1])
        if queue_kind == "event":
            if key in self._peer_subscriptions:
                self._peer_subscriptions[key].missed_events += 1
        else:
            # A response or a part of it: the deferred messages after it are dropped too.
            request = self._incoming_request(key)
            del self._incoming_requests[key]
            self._deferred.discard_queue(deferred.order_key)
            if request.message_type is hub.Subscribe:
                self._remove_subscription(request.subscription)
            # Not TOO_LARGE, which would mean that the method did not run.
            self._refuse(request.kind, request.request_id, hub.Failure("", Reason.RAISED, "the response is too large"))

    # Subscriptions of the peer.

    def _send_event(self, hub_message: hub.Event) -> None:
        packet = self.shared_frame(hub_message)
        if packet is not None:
            self.unsent.append(packet)
            return
        subscription = self._find_subscription(hub_message.subscription)
        if not 0 <= hub_message.publication <= MAX_U64:
            raise LocalProtocolError("a publication id must be an unsigned integer of 64 bits")
        if subscription.missed_events:
            hub_message = msgspec.structs.replace(hub_message, missed=hub_message.missed + subscription.missed_events)
        body = builtin_methods.event_body(hub_message, STYLES)
        message = lrpm.Event(hub_message.publication, subscription.number, body, bridge.event_meta(hub_message))
        self._write_or_defer(("event", hub_message.subscription), message, hub_message.attachments)
        subscription.missed_events = 0

    def shared_frame(self, message: hub.Event) -> Packet | None:
        """Return the EVENT unless events were missed or earlier events of the subscription are deferred."""
        subscription, publication, queues = (
            self._peer_subscriptions.get(message.subscription),
            message.publication,
            self._deferred.queues,
        )
        if subscription is None or subscription.missed_events or message.missed or message.attachments or self.closed:
            return None
        if not 0 <= publication <= MAX_U64 or (queues and ("event", message.subscription) in queues):
            return None
        body = builtin_methods.event_body(message, STYLES)
        try:
            topic = topics.spell(message.topic, topics.LRPM)
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc
        return self._codec.check_size(self._codec.encoding.write_event(publication, subscription.number, body, topic))

    def _send_topic_closed(self, message: hub.TopicClosed) -> None:
        """Send an EVENT without a publication: LRPM has no message for the end of a topic."""
        topic = self._find_subscription(message.subscription).topic
        meta = {"topic": topic, "closed": True} if topic else {"closed": True}
        self._write_or_defer(("event", message.subscription), lrpm.Event(0, int(message.subscription), NULL, meta), ())
        del self._peer_subscriptions[message.subscription]

    def _find_subscription(self, name: str) -> PeerSubscription:
        subscription = self._peer_subscriptions.get(name)
        if subscription is None:
            raise LocalProtocolError(f"the peer has no subscription {name}")
        return subscription

    REQUESTS: ClassVar[Mapping[type, tuple[int, Reader]]] = {
        lrpm.Call: (CALL, _read_call),
        lrpm.Publish: (PUBLISH, _read_publish),
        lrpm.Subscribe: (SUBSCRIBE, _read_subscribe),
        lrpm.Unsubscribe: (UNSUBSCRIBE, _read_unsubscribe),
    }

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **LrpmConversationBase.RECEIVERS,
        lrpm.Call: _on_call,
        lrpm.Publish: _on_request,
        lrpm.Subscribe: _on_request,
        lrpm.Unsubscribe: _on_request,
        lrpm.Cancel: _on_cancel,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        **LrpmConversationBase.SENDERS,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Progress: _send_progress,
        hub.Description: _send_description,
        hub.Event: _send_event,
        hub.TopicClosed: _send_topic_closed,
    }
