"""The middle of a conversation: requests of the peer, and our answers."""

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
"""LRPM-a09: a decoder in use takes smaller numbers for another type."""
CALL, PUBLISH, SUBSCRIBE, UNSUBSCRIBE = map(int, (Kind.CALL, Kind.PUBLISH, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE))


class IncomingRequest(msgspec.Struct, gc=False):
    """A request of the peer that is not answered yet."""

    request_id: int
    kind: int = CALL
    message_type: type[hub.HubMessage] = hub.Call
    subscription: str = ""
    stream: bool = False
    progress: bool = False
    parts: int = 0
    """How much of a streamed answer has been said."""
    cancelled: bool = False
    answered: bool = False
    """The answer is there, but waits for its attachments."""


class PeerSubscription(msgspec.Struct, gc=False):
    """A subscription of the peer; `topic` is empty where a wildcard leaves it open."""

    topic: str
    number: int
    missed_events: int = 0
    """Events that were too large for us, until the next one tells."""


def _incoming_request(call: hub.Call, number: int) -> int | IncomingRequest:
    """Return what is kept of a call; where a bare RESULT answers it, as most, no more than its id."""
    if call.stream or call.progress:
        return IncomingRequest(number, CALL, hub.Call, "", call.stream, call.progress)
    return number


ParsedRequest: TypeAlias = tuple[hub.HubMessage, int | IncomingRequest]
Reader: TypeAlias = Callable[[Any, str, Any, AttachmentNames], ParsedRequest]


def _reject_topic_id(_given: object, _written: str) -> NoReturn:
    raise AssertionError("only a conversation numbers subscriptions")


STYLES: Final = builtin_methods.Styles(names.LRPM, topics.LRPM, _reject_topic_id)
"""For what is written: only a request that is read needs the number of a subscription."""


class Incoming(LrpmConversationBase):
    """What the peer asks of us, and what it has subscribed to."""

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        super().__init__(setup, codec)
        self._incoming_requests: dict[str, int | IncomingRequest] = {}
        """By the hub's name for them."""
        self._peer_subscriptions: dict[str, PeerSubscription] = {}
        self._parse_procedure = bridge.procedure_parser(setup.limits.max_name)
        self._next_subscription = count(FIRST_ID)
        self._attachment_names = map(str, count(1))

    # Requests of the peer.

    def _on_call(self, message: lrpm.Call) -> HubMessages:
        """Take an ordinary call, as most are; whatever is not ordinary about it is left to `_on_request`."""
        asked, hub_id, meta = self._incoming_requests, str(message.request_id), message.meta
        try:
            aim = self._parse_procedure(message.procedure)
            if aim.builtin or hub_id in asked or len(asked) >= self._limits.max_pending or "attachments" in meta:
                return self._on_request(message)
            if not meta:
                asked[hub_id] = message.request_id
                return (hub.Call(hub_id, aim.method, message.body, message.procedure, (), aim.callback),)
            call = bridge.read_call(hub_id, message, aim, ())
        except (BadName, RequestRefused):
            return self._on_request(message)
        asked[hub_id] = _incoming_request(call, message.request_id)
        return (call,)

    def _on_request(self, message: Any) -> HubMessages:  # noqa: ANN401  one of the keys of REQUESTS
        kind, read = self.REQUESTS[type(message)]
        hub_id = str(message.request_id)
        if hub_id in self._incoming_requests:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"request {hub_id} is open already", "LRPM-a15")
        try:
            self._check_room()
            attachments = self._read_attachments(message, strict=True)
            hub_message, asked = read(self, hub_id, message, tuple(each.name for each in attachments))
        except RequestRefused as refused:
            failure = hub.Failure(hub_id, refused.reason, refused.text, retry_after=refused.retry_after)
            self._refuse(kind, message.request_id, failure)
            return NO_MESSAGES
        self._incoming_requests[hub_id] = asked
        return (
            (hub_message, *attachments) if attachments and getattr(hub_message, "attachments", ()) else (hub_message,)
        )

    def _refuse(self, kind: int, number: int, failure: hub.Failure) -> None:
        self._send_first_writable(
            bridge.error_fallbacks(kind, number, failure, to_hub=self.role is Role.CLIENT), self._write_message
        )

    def _send_first_writable(self, errors: Iterable[lrpm.Error], say: Callable[[lrpm.Error], None]) -> None:
        """Say the first that can be written; the last of them always can."""
        for error in errors:
            with suppress(Unrepresentable):
                say(error)
                break

    def _check_room(self) -> None:
        if len(self._incoming_requests) >= self._limits.max_pending:
            raise RequestRefused(Reason.OVERLOADED, "too many requests are open")

    def _read_attachments(self, message: Any, *, strict: bool = False) -> Sequence[hub.Attachment]:  # noqa: ANN401  any with a meta
        if "attachments" not in message.meta:
            return ()
        encoding = self._deferred.encoding
        return bridge.read_attachments(message.meta, encoding, self._limits, self._attachment_names, strict=strict)

    def _read_call(self, hub_id: str, message: lrpm.Call, attached: AttachmentNames) -> ParsedRequest:
        try:
            aim = self._parse_procedure(message.procedure)
        except BadName as exc:
            raise RequestRefused(Reason.NO_SUCH_METHOD, str(exc)) from exc
        try:
            # Made for each call: kept, it would refer to this conversation, and only a collection would free both.
            styles = builtin_methods.Styles(names.LRPM, topics.LRPM, self._topic_id)
            hub_message = (
                builtin_methods.message_from_call(hub_id, aim.method, message.body, styles, attached)
                if aim.builtin
                else None
            )
        except builtin_methods.BadArguments as exc:
            raise RequestRefused(Reason.BAD_ARGUMENTS, str(exc)) from exc
        if hub_message is None:
            call = bridge.read_call(hub_id, message, aim, attached)
            return call, _incoming_request(call, message.request_id)
        bridge.read_call_meta(message.meta)
        bridge.check_names(hub_message, self._limits.max_name)
        if isinstance(hub_message, hub.Subscribe):
            self._add_subscription(hub_message)
        return hub_message, IncomingRequest(
            message.request_id, CALL, type(hub_message), getattr(hub_message, "subscription", "")
        )

    def _read_publish(self, hub_id: str, message: lrpm.Publish, attached: AttachmentNames) -> ParsedRequest:
        hub_message = bridge.read_publish(hub_id, message, attached)
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
        asked = IncomingRequest(message.request_id, UNSUBSCRIBE, hub.Unsubscribe, subscription)
        return hub.Unsubscribe(hub_id, subscription), asked

    def _topic_id(self, given: object, written: str) -> str:
        """Return the number of a new subscription to the topic `written`, or of the one to be ended."""
        if written:
            if given is not None:
                raise builtin_methods.BadArguments("takes no id: the answer tells the subscription's number")
            return self._new_subscription()
        if type(given) is int and 0 <= given <= MAX_U64:
            given = str(given)
        if not isinstance(given, str):
            raise builtin_methods.BadArguments("needs id as an unsigned integer")
        if given not in self._peer_subscriptions:
            raise builtin_methods.BadArguments(f"there is no subscription {given[:32]}")
        return given

    def _add_subscription(self, message: hub.Subscribe) -> None:
        literal = message.pattern.literal
        topic = topics.spell(literal, topics.LRPM) if literal else ""
        self._peer_subscriptions[message.subscription] = PeerSubscription(topic, int(message.subscription))

    def _remove_subscription(self, subscription: str) -> None:
        """Forget a subscription, and its events that still wait: none goes out behind the answer that ends it."""
        self._deferred.discard_queue(("event", subscription))
        self._peer_subscriptions.pop(subscription, None)

    def _new_subscription(self) -> str:
        """Return a number that no other subscription of this session has or had (LRPM-a18)."""
        if len(self._peer_subscriptions) >= self._limits.max_subscriptions:
            raise RequestRefused(Reason.OVERLOADED, "too many subscriptions")
        return str(next(self._next_subscription))

    def _on_cancel(self, message: lrpm.Cancel) -> HubMessages:
        hub_id = str(message.request_id)
        asked = self._incoming_request(hub_id) if hub_id in self._incoming_requests else None
        # LRPM-a06: for what is unknown or finished there is no answer, and nothing is cancelled twice.
        if asked is None or asked.answered or asked.cancelled:
            return NO_MESSAGES
        asked.cancelled = True
        return (hub.Cancel(hub_id),)

    # Our answers.

    def _incoming_request(self, hub_id: str) -> IncomingRequest:
        """Return what is known of an open request of the peer, with room for more."""
        asked = self._incoming_requests[hub_id]
        if isinstance(asked, int):
            asked = self._incoming_requests[hub_id] = IncomingRequest(asked)
        return asked

    def _find_unanswered(self, hub_id: str) -> IncomingRequest:
        asked = self._incoming_request(hub_id) if hub_id in self._incoming_requests else None
        if asked is None or asked.answered:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return asked

    def _send_result(self, message: hub.Result) -> None:
        known, body = self._incoming_requests.get(message.id), message.body
        if type(known) is int and not message.stream and not message.attachments and body is not None:
            codec = self._codec
            write = codec.write_result
            packet = write(known, body)
            self.unsent.append(packet if len(packet.payload) <= codec.max_frame else codec.check_size(packet))
            del self._incoming_requests[message.id]
            return
        if type(known) is IncomingRequest and known.kind == PUBLISH and not message.stream:
            packet = self._codec.encoding.write_published(known.request_id, bridge.publication_id(body))
            self.unsent.append(packet)
            del self._incoming_requests[message.id]
            return
        asked = self._find_unanswered(message.id)
        last = message.last or not message.stream
        if message.stream:
            self._check_part(message, asked)
        self._send_response(
            message.id, asked, self._result_message(message, asked, last=last), message.attachments, last=last
        )
        asked.parts += 1
        if asked.message_type is hub.Unsubscribe:
            self._remove_subscription(asked.subscription)

    def _check_part(self, message: hub.Result, asked: IncomingRequest) -> None:
        if not asked.stream:
            raise LocalProtocolError("the caller did not ask for parts")
        if asked.parts >= self._limits.max_stream:
            raise LocalProtocolError("too many parts")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the end of a stream may carry no element")

    def _result_message(self, message: hub.Result, asked: IncomingRequest, *, last: bool) -> lrpm.Message:
        number = asked.request_id
        if asked.kind == SUBSCRIBE:
            return lrpm.Subscribed(number, int(asked.subscription))
        if asked.kind == UNSUBSCRIBE:
            return lrpm.Unsubscribed(number)
        if asked.message_type is hub.Subscribe:
            return lrpm.Result(number, Value({"id": int(asked.subscription)}))
        in_parts = message.stream or asked.parts
        meta = bridge.part_meta(message, asked.parts + 1, last=last) if in_parts else NO_META
        return lrpm.Result(number, message.body or NULL, meta)

    def _send_response(
        self,
        hub_id: str,
        asked: IncomingRequest,
        message: lrpm.Message,
        attachments: AttachmentNames = (),
        *,
        last: bool = True,
    ) -> None:
        if self._write_or_defer(("answer", hub_id), message, attachments, hub_id if last else "") is not None:
            asked.answered = last
        elif last:
            del self._incoming_requests[hub_id]

    def _send_progress(self, message: hub.Progress) -> None:
        asked = self._find_unanswered(message.id)
        if asked.progress:
            self._send_response(
                message.id,
                asked,
                lrpm.Result(asked.request_id, message.body, bridge.progress_meta(message)),
                last=False,
            )

    def _send_failure(self, message: hub.Failure) -> None:
        asked = self._find_unanswered(message.id)
        errors = bridge.error_fallbacks(asked.kind, asked.request_id, message, to_hub=self.role is Role.CLIENT)
        self._send_first_writable(errors, partial(self._send_response, message.id, asked))
        if asked.message_type is hub.Subscribe:
            self._remove_subscription(asked.subscription)

    def _send_description(self, message: hub.Description) -> None:
        asked = self._find_unanswered(message.id)
        if asked.message_type is not hub.Discover:
            raise LocalProtocolError(f"request {message.id} did not ask for a description")
        self._send_response(
            message.id, asked, lrpm.Result(asked.request_id, builtin_methods.description_payload(message))
        )

    def _on_deferred_sent(self, held: DeferredMessage) -> None:
        if held.incoming_id:
            del self._incoming_requests[held.incoming_id]

    def _on_deferred_too_large(self, held: DeferredMessage) -> None:
        sort, key = held.order_key[0], str(held.order_key[1])
        if sort == "event":
            if key in self._peer_subscriptions:
                self._peer_subscriptions[key].missed_events += 1
        else:
            # An answer, or a part of one: whatever stands behind it is not said either.
            asked = self._incoming_request(key)
            del self._incoming_requests[key]
            self._deferred.discard_queue(held.order_key)
            if asked.message_type is hub.Subscribe:
                self._remove_subscription(asked.subscription)
            # Not "too large", which would say that nothing was run.
            self._refuse(asked.kind, asked.request_id, hub.Failure("", Reason.RAISED, "the answer is too large"))

    # What the peer has subscribed to.

    def _send_event(self, hub_message: hub.Event) -> None:
        packet = self.shared_frame(hub_message)
        if packet is not None:
            self.unsent.append(packet)
            return
        served = self._find_subscription(hub_message.subscription)
        if not 0 <= hub_message.publication <= MAX_U64:
            raise LocalProtocolError("a publication is known by an unsigned integer of 64 bits")
        if served.missed_events:
            hub_message = msgspec.structs.replace(hub_message, missed=hub_message.missed + served.missed_events)
        body = builtin_methods.event_body(hub_message, STYLES)
        message = lrpm.Event(hub_message.publication, served.number, body, bridge.event_meta(hub_message))
        self._write_or_defer(("event", hub_message.subscription), message, hub_message.attachments)
        served.missed_events = 0

    def shared_frame(self, message: hub.Event) -> Packet | None:
        """Return the EVENT, if nothing was missed and nothing waits that it must not overtake."""
        served, publication, lines = (
            self._peer_subscriptions.get(message.subscription),
            message.publication,
            self._deferred.queues,
        )
        if served is None or served.missed_events or message.missed or message.attachments or self.closed:
            return None
        if not 0 <= publication <= MAX_U64 or (lines and ("event", message.subscription) in lines):
            return None
        body = builtin_methods.event_body(message, STYLES)
        try:
            topic = topics.spell(message.topic, topics.LRPM)
        except BadTopic as exc:
            raise Unrepresentable(str(exc)) from exc
        return self._codec.check_size(self._codec.encoding.write_event(publication, served.number, body, topic))

    def _send_topic_closed(self, message: hub.TopicClosed) -> None:
        """LRPM has no message for it, so it is an EVENT without a publication."""
        topic = self._find_subscription(message.subscription).topic
        meta = {"topic": topic, "closed": True} if topic else {"closed": True}
        self._write_or_defer(("event", message.subscription), lrpm.Event(0, int(message.subscription), NULL, meta), ())
        del self._peer_subscriptions[message.subscription]

    def _find_subscription(self, name: str) -> PeerSubscription:
        served = self._peer_subscriptions.get(name)
        if served is None:
            raise LocalProtocolError(f"the peer has no subscription {name}")
        return served

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
