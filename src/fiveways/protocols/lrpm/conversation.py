"""The LRPM conversation: our requests, the peer's responses, and our subscriptions."""

from collections.abc import Mapping
from typing import ClassVar, Final

from fiveways.errors import Fault, LocalProtocolError, Reason, RemoteProtocolError
from fiveways.model import messages as hub
from fiveways.model import topics
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
)
from fiveways.protocols.lrpm.outgoing import CALL_METAS, OutgoingRequest, OwnSubscription
from fiveways.wire.payload import NULL, Value

MAX_ID: Final = (1 << 53) - 1
"""LRPM-a09: the largest exact integer of JavaScript."""


class LrpmConversation(Incoming):
    """An LRPM peer in either encoding, as server or client. Implements `base.Conversation`."""

    def __init__(self, setup: ConversationSetup, codec: lrpm.Codec) -> None:
        super().__init__(setup, codec)
        self._outgoing_requests: dict[int, str | OutgoingRequest] = {}
        """By our ids. For a plain call only the hub id is stored."""
        self._outgoing_by_hub_id: dict[str, int] = {}
        self._next_id = FIRST_ID
        self._own_subscriptions: dict[int, OwnSubscription] = {}
        self._subscription_ids: dict[str, int | None] = {}
        """Our subscriptions by the hub's name; None until the peer has assigned an id."""

    # Our requests.

    def _new_id(self, hub_id: str | None) -> int:
        """Return the id of the next request; only `_send_request` increments it."""
        if hub_id in self._outgoing_by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._outgoing_requests) >= self._limits.max_pending or self._next_id > MAX_ID:
            raise LocalProtocolError("too many requests to this peer")
        return self._next_id

    def _send_request(self, message: lrpm.Message, request: OutgoingRequest, attachments: AttachmentNames = ()) -> None:
        number = self._next_id
        if attachments or request.order_key is not None:
            request.order_key = request.order_key or ("request", number)
            request.deferred = self._write_or_defer(request.order_key, message, attachments, outgoing_id=number)
        else:
            self.unsent.append(self._codec.encode(message))
        self._next_id += 1
        self._outgoing_requests[number] = request
        if request.hub_id is not None:
            self._outgoing_by_hub_id[request.hub_id] = number

    def _send_call(self, message: hub.Call) -> None:
        if message.more:
            raise LocalProtocolError("LRPM needs a streamed request as one array")
        number, hub_id = self._next_id, message.id
        if (
            hub_id in self._outgoing_by_hub_id
            or len(self._outgoing_requests) >= self._limits.max_pending
            or number > MAX_ID
        ):
            self._new_id(hub_id)  # raises the matching error
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
        """Call a method of the hub, because LRPM has no message of its own for this (LRPM-a16)."""
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
            raise LocalProtocolError(f"subscription {hub_message.subscription} is open already, or there are too many")
        uri = topics.spell_pattern(hub_message.pattern, topics.LRPM)
        topic = () if hub_message.pattern.is_wildcard else topics.parse(uri, topics.LRPM)
        own_subscription = OwnSubscription(hub_message.subscription, topic, hub_message.envelope)
        message = lrpm.Subscribe(number, uri, bridge.subscribe_meta(hub_message))
        self._send_request(
            message, OutgoingRequest(hub_message.id, SUBSCRIBE, hub.Subscribe, subscription=own_subscription)
        )
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
        """Send CANCEL (LRPM-a06) and forget the request: a peer that never responds must not block its slot.

        A request that still waits for its attachments is dropped without a message. A SUBSCRIBE stays open, because its
        subscription must be undone.
        """
        number = self._outgoing_by_hub_id.get(message.id)
        if number is None:
            return  # the response has arrived already
        request = self._outgoing_request(number)
        if request.deferred is not None:
            self._close_request(number)
            self._deferred.discard(request.deferred)
            self._write_complete(request.deferred.order_key)
        elif not request.cancelled:
            self._write_message(lrpm.Cancel(number))
            if request.subscription is None:
                self._close_request(number)
            else:
                request.cancelled = True

    def _on_deferred_sent(self, deferred: DeferredMessage) -> None:
        super()._on_deferred_sent(deferred)
        if deferred.outgoing_id:
            self._outgoing_request(deferred.outgoing_id).deferred = None

    def _on_deferred_too_large(self, deferred: DeferredMessage) -> None:
        if not deferred.outgoing_id:
            super()._on_deferred_too_large(deferred)
            return
        hub_id = self._close_request(deferred.outgoing_id)
        if hub_id is not None:
            self._hub_messages.append(hub.Failure(hub_id, Reason.TOO_LARGE, "the request is too large for LRPM"))

    # The peer's responses.

    def _find_outgoing(self, number: int, kind: int) -> OutgoingRequest | None:
        """Return our request for a response; None if it is unknown or closed."""
        if number not in self._outgoing_requests:
            return None
        request = self._outgoing_request(number)
        if request.deferred is not None:
            return None
        if request.kind != kind:
            text = f"a response of the wrong kind to {Kind(request.kind).name} {number}"
            raise RemoteProtocolError(Fault.UNEXPECTED, text, "LRPM-11")
        return request

    def _outgoing_request(self, number: int) -> OutgoingRequest:
        """Return an open request of ours as a struct."""
        request = self._outgoing_requests[number]
        if isinstance(request, str):
            request = self._outgoing_requests[number] = OutgoingRequest(request, CALL, hub.Call)
        return request

    def _close_request(self, number: int) -> str | None:
        """Remove our request and return its hub id."""
        request = self._outgoing_requests.pop(number)
        hub_id = request if isinstance(request, str) else request.hub_id
        if hub_id is not None:
            del self._outgoing_by_hub_id[hub_id]
        return hub_id

    def _on_result(self, message: lrpm.Result) -> HubMessages:
        number = message.request_id
        request = self._find_outgoing(number, CALL)
        if request is None:
            return NO_MESSAGES
        hub_id = request.hub_id
        if not message.meta and request.message_type is hub.Call and hub_id is not None:
            self._close_request(number)
            return (hub.Result(hub_id, message.body),)
        attachments = self._read_attachments(message)
        hub_message = bridge.read_result(hub_id or "", message, tuple(attachment.name for attachment in attachments))
        if isinstance(hub_message, hub.Progress):
            return (hub_message,) if "progress" in request.meta else NO_MESSAGES
        if isinstance(hub_message, hub.Result) and hub_message.stream:
            request.parts += 1
            if "stream" not in request.meta:
                return self._cancel_stream(number, "the result is streamed, but streaming was not requested")
            if request.parts > self._limits.max_stream:
                return self._cancel_stream(number, "too many parts")
        if isinstance(hub_message, hub.Result) and hub_message.last:
            self._close_request(number)
            if request.message_type is hub.Discover and (
                description := builtin_methods.read_description(hub_message.id, hub_message.body or NULL)
            ):
                return (description,)
        return NO_MESSAGES if hub_id is None else (hub_message, *attachments)

    def _cancel_stream(self, number: int, text: str) -> HubMessages:
        """Cancel a streamed result; later parts are ignored (LRPM-04)."""
        self._write_message(lrpm.Cancel(number))
        hub_id = self._close_request(number)
        return NO_MESSAGES if hub_id is None else (hub.Failure(hub_id, Reason.RAISED, text),)

    def _on_error(self, message: lrpm.Error) -> HubMessages:
        request = self._find_outgoing(message.request_id, message.request_kind)
        if request is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        if request.subscription is not None:
            self._subscription_ids.pop(request.subscription.subscription, None)
        if request.hub_id is None:
            return NO_MESSAGES
        return (bridge.read_error(request.hub_id, message, from_hub=self.role is Role.CLIENT),)

    def _on_published(self, message: lrpm.Published) -> HubMessages:
        request = self._find_outgoing(message.request_id, PUBLISH)
        if request is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        return NO_MESSAGES if request.hub_id is None else (hub.Result(request.hub_id, Value(message.publication_id)),)

    def _on_subscribed(self, message: lrpm.Subscribed) -> HubMessages:
        number, subscription = message.request_id, message.subscription_id
        request = self._find_outgoing(number, SUBSCRIBE)
        if request is None or request.subscription is None or request.hub_id is None:
            return NO_MESSAGES
        if subscription in self._own_subscriptions:
            raise RemoteProtocolError(Fault.UNEXPECTED, f"subscription {subscription} twice", "LRPM-a18")
        self._close_request(number)
        name = request.subscription.subscription
        self._own_subscriptions[subscription] = request.subscription
        self._subscription_ids[name] = subscription
        if request.cancelled:  # cancelled before the response
            self._send_unsubscribe(hub.Unsubscribe(None, name))
            return (hub.Failure(request.hub_id, Reason.CANCELLED),)
        return (hub.Result(request.hub_id, Value({"id": name})),)

    def _on_unsubscribed(self, message: lrpm.Unsubscribed) -> HubMessages:
        request = self._find_outgoing(message.request_id, UNSUBSCRIBE)
        if request is None:
            return NO_MESSAGES
        self._close_request(message.request_id)
        return NO_MESSAGES if request.hub_id is None else (hub.Result(request.hub_id, NULL),)

    # Our subscriptions.

    def _remove_own_subscription(self, subscription: int) -> None:
        del self._subscription_ids[self._own_subscriptions.pop(subscription).subscription]

    def _on_event(self, message: lrpm.Event) -> HubMessages:
        own_subscription = self._own_subscriptions.get(message.subscription_id)
        if own_subscription is None:
            return NO_MESSAGES
        meta = message.meta
        if bridge.meta_value(meta, "closed", False):
            self._remove_own_subscription(message.subscription_id)
            return (hub.TopicClosed(own_subscription.subscription),)
        attachments = self._read_attachments(message)
        event = hub.Event(
            own_subscription.subscription,
            bridge.read_topic(meta, own_subscription.topic),
            message.body,
            tuple(attachment.name for attachment in attachments),
            message.publication_id,
            bridge.meta_value(meta, "missed", 0),
        )
        return (builtin_methods.unwrap_event(event, STYLES) if own_subscription.envelope else event, *attachments)

    def _ignore(self, _word: hub.HubMessage) -> None:
        """Do nothing: LRPM has no message for this, and none is needed."""

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
