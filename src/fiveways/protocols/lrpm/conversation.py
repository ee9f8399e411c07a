"""The upper half of a conversation: our requests, the peer's answers, and what we have subscribed to."""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from fiveways.errors import Fault, LocalProtocolError, Malformed, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.model.names import BadName
from fiveways.model.topics import BadTopic
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.lrpm import bridge
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.protocols.lrpm.conversation_base import NO_MESSAGES, HubMessages, Receiver, Sender
from fiveways.protocols.lrpm.deferred_messages import AttachmentNames, DeferredMessage
from fiveways.protocols.lrpm.frames import Kind
from fiveways.protocols.lrpm.incoming import (
    CALL,
    FIRST_ID,
    PUBLISH,
    STYLES,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Incoming,
    IncomingRequest,
)
from fiveways.protocols.lrpm.json_frames import EMPTY_META, MAX_CACHED_META, decode_call, decode_result, read_timeout
from fiveways.protocols.lrpm.outgoing import CALL_METAS, OutgoingRequest, OwnSubscription
from fiveways.protocols.lrpm.states import State
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Json, Value
from fiveways.wire.strict_json import check_numbers_and_depth

NOT_FASTPATH: Final = (msgspec.DecodeError, ValueError, RecursionError, Malformed, BadName, BadTopic)
"""What tells that a frame needs a closer look."""
OPEN_STATE: Final = State.OKAY
"""To reach a member of an Enum through its class takes longer than to write a frame."""
MAX_ID: Final = (1 << 53) - 1
"""LRPM-a09: JavaScript counts no further."""


class LrpmConversation(Incoming):
    """One LRPM peer, in either encoding and at either end of the link. Fulfils `base.Conversation`."""

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        super().__init__(setup, codec)
        self._outgoing_requests: dict[int, str | OutgoingRequest] = {}
        """By our own ids; of a plain call, as most are, no more than the hub's name for it."""
        self._outgoing_by_hub_id: dict[str, int] = {}
        self._next_id = FIRST_ID
        self._own_subscriptions: dict[int, OwnSubscription] = {}
        self._subscription_ids: dict[str, int | None] = {}
        """Our subscriptions by the hub's name for them; None until the peer has numbered one."""

    # Our requests.

    def _new_id(self, hub_id: str | None) -> int:
        """Return the number of the next request; it is used up by `_ask` alone."""
        if hub_id in self._outgoing_by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._outgoing_requests) >= self._limits.max_pending or self._next_id > MAX_ID:
            raise LocalProtocolError("too many requests to this peer")
        return self._next_id

    def _send_request(self, message: lrpm.Message, asking: OutgoingRequest, attachments: AttachmentNames = ()) -> None:
        number = self._next_id
        if attachments or asking.order_key is not None:
            asking.order_key = asking.order_key or ("request", number)
            asking.deferred = self._write_or_defer(asking.order_key, message, attachments, asks=number)
        else:
            self.unsent.append(self._codec.encode(message))
        self._next_id += 1
        self._outgoing_requests[number] = asking
        if asking.hub_id is not None:
            self._outgoing_by_hub_id[asking.hub_id] = number

    def _send_call(self, message: hub.Call) -> None:
        if message.more:
            raise LocalProtocolError("LRPM takes a streamed request as one array")
        number, hub_id = self._next_id, message.id
        if (
            hub_id in self._outgoing_by_hub_id
            or len(self._outgoing_requests) >= self._limits.max_pending
            or number > MAX_ID
        ):
            self._new_id(hub_id)  # which says what is wrong
        uri = bridge.procedure_for(message.method, message.spelling, message.callback)
        if message.attachments or message.traceparent or message.redelivered:
            meta = bridge.call_meta(message)
            self._send_request(
                lrpm.Call(number, uri, message.body, meta),
                OutgoingRequest(hub_id, CALL, hub.Call, meta),
                message.attachments,
            )
            return
        timeout, stream, progress, codec = message.timeout, message.stream, message.progress, self._codec
        wait = 0 if timeout is None else bridge.timeout_milliseconds(timeout)
        write = codec.write_call
        packet = write(number, uri, message.body, wait, stream, progress)
        self.unsent.append(packet if len(packet.payload) <= codec.max_frame else codec.check_size(packet))
        self._next_id = number + 1
        is_plain = not (stream or progress)
        self._outgoing_requests[number] = (
            hub_id if is_plain else OutgoingRequest(hub_id, CALL, hub.Call, CALL_METAS[stream, progress])
        )
        self._outgoing_by_hub_id[hub_id] = number

    def _send_builtin(self, message: builtin_methods.Builtin) -> None:
        """Words that LRPM has no message for are calls of the hub's own methods (LRPM-a16)."""
        number = self._new_id(message.id)
        method, body = builtin_methods.call_from_message(message, STYLES)
        attachments: AttachmentNames = getattr(message, "attachments", ())
        self._send_request(
            lrpm.Call(number, method, body), OutgoingRequest(message.id, CALL, type(message)), attachments
        )

    def _send_publish(self, hub_message: hub.Publish) -> None:
        number = self._new_id(hub_message.id)
        uri = topics.spell(hub_message.topic, topics.LRPM)
        message = lrpm.Publish(number, uri, hub_message.body, bridge.publish_meta(hub_message))
        self._send_request(
            message,
            OutgoingRequest(hub_message.id, PUBLISH, hub.Publish, order_key=("publish", uri)),
            hub_message.attachments,
        )

    def _send_subscribe(self, hub_message: hub.Subscribe) -> None:
        number = self._new_id(hub_message.id)
        if (
            hub_message.subscription in self._subscription_ids
            or len(self._subscription_ids) >= self._limits.max_subscriptions
        ):
            raise LocalProtocolError(f"subscription {hub_message.subscription} is open already, or one too many")
        uri = topics.spell_pattern(hub_message.pattern, topics.LRPM)
        topic = () if hub_message.pattern.is_wildcard else topics.parse(uri, topics.LRPM)
        following = OwnSubscription(hub_message.subscription, topic, hub_message.envelope)
        message = lrpm.Subscribe(number, uri, bridge.subscribe_meta(hub_message))
        self._send_request(message, OutgoingRequest(hub_message.id, SUBSCRIBE, hub.Subscribe, subscription=following))
        self._subscription_ids[hub_message.subscription] = None

    def _send_unsubscribe(self, message: hub.Unsubscribe) -> None:
        number, subscription = self._new_id(message.id), self._subscription_ids.get(message.subscription)
        if subscription is None:
            raise LocalProtocolError(f"subscription {message.subscription} is not open")
        self._send_request(
            lrpm.Unsubscribe(number, subscription), OutgoingRequest(message.id, UNSUBSCRIBE, hub.Unsubscribe)
        )
        self._remove_own_subscription(subscription)

    def _send_cancel(self, message: hub.Cancel) -> None:
        """Tell the peer (LRPM-a06) and forget the request: a peer that never answers must not hold its place for ever.

        One that still waits for its attachments the peer never hears of. A SUBSCRIBE is kept, since what comes of it
        must be undone.
        """
        number = self._outgoing_by_hub_id.get(message.id)
        if number is None:
            return  # the answer has come meanwhile
        asking = self._outgoing_request(number)
        if asking.deferred is not None:
            self._close_request(number)
            self._deferred.discard(asking.deferred)
            self._write_complete(asking.deferred.order_key)
        elif not asking.cancelled:
            self._write_message(lrpm.Cancel(number))
            if asking.subscription is None:
                self._close_request(number)
            else:
                asking.cancelled = True

    def _on_deferred_sent(self, held: DeferredMessage) -> None:
        super()._on_deferred_sent(held)
        if held.outgoing_id:
            self._outgoing_request(held.outgoing_id).deferred = None

    def _on_deferred_too_large(self, held: DeferredMessage) -> None:
        if not held.outgoing_id:
            super()._on_deferred_too_large(held)
            return
        hub_id = self._close_request(held.outgoing_id)
        if hub_id is not None:
            self._hub_messages.append(hub.Failure(hub_id, Reason.TOO_LARGE, "the request is too large for LRPM"))

    # The peer's answers.

    def _find_outgoing(self, number: int, kind: int) -> OutgoingRequest | None:
        """Return the request of ours that is answered; None, and the answer is ignored, if there is none (any more)."""
        if number not in self._outgoing_requests:
            return None
        asking = self._outgoing_request(number)
        if asking.deferred is not None:
            return None
        if asking.kind != kind:
            text = f"an answer to {Kind(asking.kind).name} {number} as if it were another kind of request"
            raise RemoteProtocolError(Fault.UNEXPECTED, text, "LRPM-11")
        return asking

    def _outgoing_request(self, number: int) -> OutgoingRequest:
        """Return what is known of an open request of ours, with room for more."""
        asking = self._outgoing_requests[number]
        if isinstance(asking, str):
            asking = self._outgoing_requests[number] = OutgoingRequest(asking, CALL, hub.Call)
        return asking

    def _close_request(self, number: int) -> str | None:
        """Forget a request of ours; return whose it was."""
        asking = self._outgoing_requests.pop(number)
        hub_id = asking if isinstance(asking, str) else asking.hub_id
        if hub_id is not None:
            del self._outgoing_by_hub_id[hub_id]
        return hub_id

    def _on_result(self, message: lrpm.Result) -> HubMessages:
        number = message.request_id
        asking = self._find_outgoing(number, CALL)
        if asking is None:
            return NO_MESSAGES
        hub_id = asking.hub_id
        if not message.meta and asking.message_type is hub.Call and hub_id is not None:
            self._close_request(number)
            return (hub.Result(hub_id, message.body),)
        attachments = self._read_attachments(message)
        hub_message = bridge.read_result(hub_id or "", message, tuple(each.name for each in attachments))
        if isinstance(hub_message, hub.Progress):
            return (hub_message,) if "progress" in asking.meta else NO_MESSAGES
        if isinstance(hub_message, hub.Result) and hub_message.stream:
            asking.parts += 1
            if "stream" not in asking.meta:
                return self._cancel_stream(number, "the answer came in parts, unasked")
            if asking.parts > self._limits.max_stream:
                return self._cancel_stream(number, "too many parts")
        if isinstance(hub_message, hub.Result) and hub_message.last:
            self._close_request(number)
            if asking.message_type is hub.Discover and (
                told := builtin_methods.read_description(hub_message.id, hub_message.body or NULL)
            ):
                return (told,)
        return NO_MESSAGES if hub_id is None else (hub_message, *attachments)

    def _cancel_stream(self, number: int, text: str) -> HubMessages:
        """Take no more parts of an answer; what comes after all is ignored (LRPM-04)."""
        self._write_message(lrpm.Cancel(number))
        hub_id = self._close_request(number)
        return NO_MESSAGES if hub_id is None else (hub.Failure(hub_id, Reason.RAISED, text),)

    def _on_error(self, message: lrpm.Error) -> HubMessages:
        asking = self._find_outgoing(message.request_id, message.request_kind)
        if asking is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        if asking.subscription is not None:
            self._subscription_ids.pop(asking.subscription.subscription, None)
        if asking.hub_id is None:
            return NO_MESSAGES
        return (bridge.read_error(asking.hub_id, message, from_hub=self.role is Role.CLIENT),)

    def _on_published(self, message: lrpm.Published) -> HubMessages:
        asking = self._find_outgoing(message.request_id, PUBLISH)
        if asking is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        return NO_MESSAGES if asking.hub_id is None else (hub.Result(asking.hub_id, Value(message.publication_id)),)

    def _on_subscribed(self, message: lrpm.Subscribed) -> HubMessages:
        number, subscription = message.request_id, message.subscription_id
        asking = self._find_outgoing(number, SUBSCRIBE)
        if asking is None or asking.subscription is None or asking.hub_id is None:
            return NO_MESSAGES
        if subscription in self._own_subscriptions:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"subscription {subscription} twice", "LRPM-a18")
        self._close_request(number)
        name = asking.subscription.subscription
        self._own_subscriptions[subscription] = asking.subscription
        self._subscription_ids[name] = subscription
        if asking.cancelled:  # nobody wants it any more
            self._send_unsubscribe(hub.Unsubscribe(None, name))
            return (hub.Failure(asking.hub_id, Reason.CANCELLED),)
        return (hub.Result(asking.hub_id, Value({"id": name})),)

    def _on_unsubscribed(self, message: lrpm.Unsubscribed) -> HubMessages:
        asking = self._find_outgoing(message.request_id, UNSUBSCRIBE)
        if asking is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        return NO_MESSAGES if asking.hub_id is None else (hub.Result(asking.hub_id, NULL),)

    # What we have subscribed to.

    def _remove_own_subscription(self, subscription: int) -> None:
        del self._subscription_ids[self._own_subscriptions.pop(subscription).subscription]

    def _on_event(self, message: lrpm.Event) -> HubMessages:
        following = self._own_subscriptions.get(message.subscription_id)
        if following is None:
            return NO_MESSAGES
        meta = message.meta
        if bridge.meta_value(meta, "closed", False):
            self._remove_own_subscription(message.subscription_id)
            return (hub.TopicClosed(following.subscription),)
        attachments = self._read_attachments(message)
        event = hub.Event(
            following.subscription,
            bridge.read_topic(meta, following.topic),
            message.body,
            tuple(each.name for each in attachments),
            message.publication_id,
            bridge.meta_value(meta, "missed", 0),
        )
        return (builtin_methods.unwrap_event(event, STYLES) if following.envelope else event, *attachments)

    def _ignore(self, _word: hub.HubMessage) -> None:
        """LRPM has no message for it, and nobody misses it."""

    RECEIVERS: ClassVar[Mapping[type, Receiver]] = {
        **Incoming.RECEIVERS,
        lrpm.Result: _on_result,
        lrpm.Error: _on_error,
        lrpm.Published: _on_published,
        lrpm.Subscribed: _on_subscribed,
        lrpm.Unsubscribed: _on_unsubscribed,
        lrpm.Event: _on_event,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Sender]] = {
        **Incoming.SENDERS,
        hub.Call: _send_call,
        hub.Cancel: _send_cancel,
        hub.Publish: _send_publish,
        hub.Subscribe: _send_subscribe,
        hub.Unsubscribe: _send_unsubscribe,
        hub.CloseTopic: _send_builtin,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Discover: _send_builtin,
        hub.SetVariable: _send_builtin,
        hub.UnsetVariable: _send_builtin,
        hub.Accepted: _ignore,
        hub.Acknowledged: _ignore,
    }


class JsonFastPath(LrpmConversation):
    """One LRPM peer in JSON: plain calls, results and publications, as most are, need not become messages.

    Whatever is not plain about a frame is left to the long way, as if nobody had looked at it.
    """

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Take one frame of the peer."""
        payload = packet.payload
        if (
            self._state is OPEN_STATE
            and packet.is_text
            and len(payload) <= self._limits.max_text
            and not self._hub_messages
        ):
            start, messages = payload[:4], None
            try:
                if not payload.isascii():
                    payload.decode()
                if start == b"[41,":
                    messages = self._receive_result_fast(payload)
                elif start == b"[40,":
                    messages = self._receive_call_fast(payload)
                elif start == b"[61,":
                    messages = self._receive_publish_fast(payload)
            except NOT_FASTPATH:
                messages = None
            if messages is not None:
                return messages
        return super().receive(packet, now)

    def _receive_result_fast(self, payload: bytes) -> HubMessages | None:
        found = decode_result(payload)
        number = found.number
        asking = self._outgoing_requests.get(number)
        hub_id = asking if isinstance(asking, str) else None if asking is None else asking.simple_call_id()
        if hub_id is None or found.meta != EMPTY_META:
            return None
        raw = bytes(found.body)
        check_numbers_and_depth(raw, self._limits.max_depth)
        del self._outgoing_requests[number], self._outgoing_by_hub_id[hub_id]
        return (hub.Result(hub_id, Json(raw)),)

    def _receive_call_fast(self, payload: bytes) -> HubMessages | None:
        found, asked, limits = decode_call(payload), self._incoming_requests, self._limits
        number, uri, meta, target = found.number, found.uri, found.meta, self._parse_procedure
        hub_id, aim = str(number), target(uri)
        if aim.builtin or hub_id in asked or len(asked) >= limits.max_pending:
            return None
        timeout = None
        if meta != EMPTY_META:
            said = bytes(meta)
            if len(said) > MAX_CACHED_META:
                return None
            timeout = read_timeout(said)
        raw = bytes(found.body)
        check_numbers_and_depth(raw, limits.max_depth)
        asked[hub_id] = number
        return (hub.Call(hub_id, aim.method, Json(raw), uri, (), aim.callback, timeout),)

    def _receive_publish_fast(self, payload: bytes) -> HubMessages | None:
        found, asked, limits = (
            decode_call(payload),
            self._incoming_requests,
            self._limits,
        )  # its fields are those of a CALL
        number, uri = found.number, found.uri
        hub_id = str(number)
        if (
            found.meta != EMPTY_META
            or hub_id in asked
            or len(asked) >= limits.max_pending
            or len(uri) > limits.max_name
        ):
            return None
        topic = topics.parse(uri, topics.LRPM)
        raw = bytes(found.body)
        check_numbers_and_depth(raw, limits.max_depth)
        asked[hub_id] = IncomingRequest(number, PUBLISH, hub.Publish)
        return (hub.Publish(hub_id, topic, Json(raw)),)
