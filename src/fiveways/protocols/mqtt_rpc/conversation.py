"""The conversation with one broker: requests in both directions on one connection.

The peer is everything behind the broker: many callers and services, none of which may close the connection for the
others. A protocol error is therefore refused, counted and reported, and the conversation continues.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Any, ClassVar

from fiveways.errors import Fault, LocalProtocolError, Malformed, Reason, RemoteProtocolError, Unrepresentable
from fiveways.model import messages as hub
from fiveways.model.names import BadName
from fiveways.protocols import builtin_methods
from fiveways.protocols.base import ConversationSetup
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.attachments import MqttAttachments
from fiveways.protocols.mqtt_rpc.bridge import (
    JSON_CODEC,
    REQUEST,
    RESPONSE,
    CalledMethod,
    Codec,
    codec_for_method,
    encode_failure,
)
from fiveways.protocols.mqtt_rpc.fastpath import NO_MESSAGES, HubMessages
from fiveways.protocols.mqtt_rpc.frames import BARE, parse_frame, scan_undecodable
from fiveways.protocols.mqtt_rpc.messages import (
    ErrorResponse,
    Message,
    Request,
    Response,
    encode_within_limit,
    message_from_frame,
)
from fiveways.protocols.mqtt_rpc.requests import (
    EXPIRED,
    LATE_RESPONSE,
    UNWANTED_RESPONSE,
    IncomingRequest,
    OutgoingRequest,
    RequestKey,
)
from fiveways.protocols.mqtt_rpc.states import State
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value


class MqttConversation(MqttAttachments):
    """The conversation with one broker. Implements `base.Conversation`."""

    def __init__(self, setup: ConversationSetup) -> None:
        super().__init__(setup)
        self.peer = setup.peer
        self.error: RemoteProtocolError | None = None
        """Always None: a protocol error does not end the conversation."""
        self.refused_messages = 0
        """The number of messages with a protocol error."""
        self.stray_responses = 0
        """The number of responses without a request (MQRPC-06)."""
        self.unknown_time_units = 0
        """The number of requests with an unknown time unit (MQRPC-a03)."""
        self._state: Enum = State.OPEN

    def receive_general(self, packet: Packet, now: float) -> HubMessages:
        """Handle an MQTT message that is not an echo."""
        try:
            frame = parse_frame(packet, self._limits)
            message = message_from_frame(frame, pending=frame.shape is BARE and self._requests.is_pending(frame))
        except RemoteProtocolError as error:
            return self._on_unreadable(packet, error, now)
        # An open conversation accepts every message, so the state table is not consulted.
        return self.RECEIVERS[type(message)](self, message, now)

    def send_general(self, message: hub.HubMessage, now: float) -> None:
        """Publish a hub message on its topic."""
        sender = self.SENDERS.get(type(message))
        if sender is None:
            raise LocalProtocolError(f"RPC over MQTT has no message for {type(message).__name__}")
        if self.closed:
            raise LocalProtocolError("the conversation is closed")
        sender(self, message, now)

    def take_packets(self) -> list[Packet]:
        """Return the messages to publish and remove them from the queue."""
        packets, self.unsent = self.unsent, []
        return packets

    def deadline(self) -> float | None:
        """Return a lower bound for the next expiry of a request."""
        return None if self.closed or self._wake_at == inf else self._wake_at

    def wake(self, now: float) -> HubMessages:
        """End expired requests in both directions (MQRPC-a10)."""
        if self.closed or now < self._wake_at:
            return NO_MESSAGES
        messages, self._pending_failures = self._pending_failures, []
        for request in list(self._requests.open.values()):
            if request.expires_at > now:
                continue
            if isinstance(request, IncomingRequest):
                messages += self._abort_request(request, Reason.TIMEOUT, "the deadline has passed [MQRPC-a10]", now)
            else:
                self._requests.close_outgoing(request, EXPIRED, now)
                messages.append(hub.Failure(request.hub_id, Reason.TIMEOUT, "no response before the deadline"))
        self._wake_at = self._requests.next_expiry()
        return messages

    # Incoming requests.

    def _on_request(self, message: Request, now: float) -> HubMessages:
        topic, requests = message.topic, self._requests
        key = message.correlation_id, topic
        request = requests.open.get(key)
        if request is not None:
            # MQRPC-a01: a broker sends our own messages back on topics that we subscribe to.
            return self._on_part(request, message, now) if type(request) is IncomingRequest else NO_MESSAGES
        note = requests.recent.get(key, now)
        if note is not None:
            # An echo, a repeat (MQRPC-a11), or a part of a stream that was aborted; renew the entry while messages
            # arrive.
            requests.recent.add(key, note, now)
            return NO_MESSAGES
        try:
            method = bridge.parse_method(topic, message.type_url)
        except BadName as exc:
            is_served = self._served_topic_kind(topic, bridge.type_name(message.type_url)) is not None
            return self._refuse_request(key, Reason.NO_SUCH_METHOD, str(exc), now) if is_served else NO_MESSAGES
        streaming = self._served_topic_kind(topic, method.kind)
        if streaming is None:
            requests.recent.add(key, UNWANTED_RESPONSE, now)  # this request and its response belong to another service
            return NO_MESSAGES
        if len(method.folded) > self._limits.max_name:
            return self._refuse_request(key, Reason.NO_SUCH_METHOD, "the name is too long", now)
        if len(requests.incoming) >= self._limits.max_pending:
            return self._refuse_request(key, Reason.OVERLOADED, "too many calls are open", now)
        return self._on_call(message, key, method, streaming, now)

    def _on_call(
        self, message: Request, key: RequestKey, method: CalledMethod, streaming: str, now: float
    ) -> HubMessages:
        number, topic = key
        timeout = self._timeout(message) if message.timeout else self._default_timeout
        expires_at = inf if timeout is None else now + timeout
        codec = self._codec if method.is_application_method else codec_for_method(method.folded, self._codec)
        streams, more = False, False
        if streaming != "unary":
            streams = streaming in {"server", "both"}
            # MQRPC-a05: every Request for a method without a streamed request is complete.
            more = not message.eos and streaming in {"client", "both"}
        request = IncomingRequest(f"{number}@{topic}", topic, number, method, codec, streams, more, expires_at)
        try:
            hub_message = request.parse_request(message.value or b"", timeout)
            messages = (
                (hub_message,)
                if streaming != "unary"
                else self._with_extracted_attachments(hub_message, topic, method.kind, REQUEST)
            )
        except (Malformed, builtin_methods.BadArguments) as exc:
            return self._refuse_request(key, Reason.BAD_ARGUMENTS, str(exc), now)
        if self._quota is not None:
            request.quota_share = self._quota.admit(number, topic)
            if type(request.quota_share) is str:
                return self._refuse_request(key, Reason.OVERLOADED, request.quota_share, now)
        if timeout is not None:
            self._wake_at = min(self._wake_at, expires_at)
        self._requests.add_incoming(key, request)
        return messages

    def _timeout(self, message: Request) -> float:
        unit = bridge.UNIT_SECONDS.get(message.timeout_unit)
        if unit is None:
            self.unknown_time_units += 1
            unit = bridge.UNIT_SECONDS[bridge.MILLISECOND]
        return message.timeout * unit

    def _on_part(self, request: IncomingRequest, message: Request, now: float) -> HubMessages:
        if not request.expects_parts:
            return NO_MESSAGES
        request.parts += 1
        if request.parts > self._limits.max_stream:
            # Not TOO_LARGE, which would mean that the method did not run.
            return self._abort_request(request, Reason.CANCELLED, "too many parts", now)
        if message.type_url and bridge.type_name(message.type_url) != request.method.kind:
            return self._abort_request(request, Reason.BAD_ARGUMENTS, "a part of another type [MQRPC-04]", now)
        request.expects_parts = not message.eos
        if message.value is None:
            # MQRPC-a06: an end without an element; without `eos` the message is meaningless.
            return (hub.Part(request.hub_id, None, True),) if message.eos else NO_MESSAGES
        try:
            return (request.parse_part(message.value, message.eos),)
        except Malformed as exc:
            return self._abort_request(request, Reason.BAD_ARGUMENTS, str(exc), now)

    def _on_unreadable(self, packet: Packet, error: RemoteProtocolError, now: float) -> HubMessages:
        """Report an invalid message, and end the request that certainly waits for it: the sender's or ours."""
        number, is_request = (None, False) if packet.is_text else scan_undecodable(packet.payload)
        topic, requests = packet.channel, self._requests
        max_name = self._limits.max_name
        if number is None or len(topic) > max_name:
            self.refused_messages += 1
            return (hub.Stray(f"@{topic[:max_name]}", str(error)),)
        key = number, topic
        request = requests.open.get(key)
        if not is_request and type(request) is not OutgoingRequest and requests.is_expected_response(key, now):
            # Our own failure may exceed our read limit, see `encode_failure`.
            return NO_MESSAGES
        self.refused_messages += 1
        messages: list[hub.HubMessage] = [hub.Stray(f"{number}@{topic}", str(error))]
        reason = Reason.TOO_LARGE if error.fault is Fault.TOO_LARGE else Reason.BAD_ARGUMENTS
        if not is_request:
            if type(request) is OutgoingRequest:
                requests.close_outgoing(request, UNWANTED_RESPONSE, now)
                messages.append(hub.Failure(request.hub_id, Reason.LOST, f"the response cannot be read: {error}"))
        elif request is not None:
            # A stream with a gap is useless; a complete request is not affected by later messages.
            if type(request) is IncomingRequest and request.expects_parts:
                messages += self._abort_request(request, reason, str(error), now)
        elif requests.recent.get(key, now) is None and self._served_topic_kind(topic, "") is not None:
            self._refuse_request(key, reason, str(error), now)
        return messages

    # Responses to incoming requests.

    def _abort_request(self, request: IncomingRequest, reason: Reason, text: str, now: float) -> HubMessages:
        """End a request that the hub is processing."""
        self._send_failure(hub.Failure(request.hub_id, reason, text), now)
        return (hub.Cancel(request.hub_id),)

    def _write_response(self, request: IncomingRequest, packet: Packet, last: bool, now: float) -> None:
        self._write_packet(packet, (request.correlation_id, request.topic))
        request.expected_echoes += 1
        if last:
            self._requests.close_incoming(request, now)

    def _find_incoming(self, hub_id: str) -> IncomingRequest:
        request = self._requests.incoming.get(hub_id)
        if request is None:
            raise LocalProtocolError(f"no request {hub_id} is open")
        return request

    def _send_result(self, message: hub.Result, now: float) -> None:
        request = self._find_incoming(message.id)
        if message.attachments:
            self._defer_result(message, request)
            return
        if message.stream and not request.is_streamed_response:
            raise LocalProtocolError(f"{request.method.spelling} has no streamed result")
        if request.is_streamed_response and not message.stream and self._send_elements(request, message.body, now):
            return
        last = message.last or not message.stream
        if message.body is None and not (message.stream and last):
            raise LocalProtocolError("only the last part of a stream may lack a body")
        value = request.serialize_result(message.body)
        packet = encode_within_limit(Response(request.topic, request.correlation_id, "", value, last), self._limits)
        self._write_response(request, packet, last, now)

    def _send_elements(self, request: IncomingRequest, body: Payload | None, now: float) -> bool:
        """Send an array as a streamed result, for a callee without streams; False if it is not an array.

        All elements are encoded before the first is sent.
        """
        elements = None if body is None else body.value()
        if not isinstance(elements, list):
            return False
        values = [request.serialize_result(Value(element)) for element in elements] or [None]
        ends = [*[False] * (len(values) - 1), True]
        packets = [
            encode_within_limit(Response(request.topic, request.correlation_id, "", value, last), self._limits)
            for value, last in zip(values, ends, strict=True)
        ]
        for packet, last in zip(packets, ends, strict=True):
            self._write_response(request, packet, last, now)
        return True

    def _send_failure(self, message: hub.Failure, now: float) -> None:
        request = self._find_incoming(message.id)
        self._deferred.drop(message.id)
        self._write_response(
            request, encode_failure(message, (request.correlation_id, request.topic), self._limits), True, now
        )

    def _send_description(self, message: hub.Description, now: float) -> None:
        request = self._find_incoming(message.id)
        if request.method.folded != "hub.discover":
            raise LocalProtocolError(f"{request.method.spelling} does not request a description")
        self._send_result(hub.Result(message.id, builtin_methods.description_payload(message)), now)

    # Our requests.

    def _send_call(self, message: hub.Call, now: float) -> None:
        topic, kind = self._call_target(message)
        codec: Codec = JSON_CODEC if message.callback else codec_for_method(message.method, self._codec)
        if message.attachments:
            self._defer_call(message, topic, kind, codec)
            return
        number = self._new_number(message.id, topic)
        request = OutgoingRequest(message.id, topic, number, kind, codec, hub.Call, message.stream, message.more)
        self._write_request(request, message.body, message.timeout, now)

    def _call_target(self, message: hub.Call) -> tuple[str, str]:
        return (
            bridge.callback_target(message)
            if message.callback
            else bridge.call_target(message.method, message.spelling)
        )

    def _send_builtin(self, message: hub.Discover | hub.Register | hub.Unregister, now: float) -> None:
        """Call a method of the hub, because RPC over MQTT has no message of its own for this."""
        method, body = builtin_methods.call_from_message(message, bridge.STYLES)
        topic, kind = bridge.call_target(method, "")
        number = self._new_number(message.id, topic)
        self._write_request(
            OutgoingRequest(message.id, topic, number, kind, JSON_CODEC, type(message)),
            body,
            self._default_timeout,
            now,
        )

    def _new_number(self, hub_id: str, topic: str) -> int:
        requests = self._requests
        if len(topic) > self._limits.max_name:
            raise Unrepresentable(f"a topic of {len(topic)} characters [MQRPC-a08]")
        if hub_id in requests.outgoing:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(requests.outgoing) >= self._limits.max_pending:
            raise LocalProtocolError("too many requests on this broker are open")
        if self._outgoing_per_topic.get(topic, 0) >= self._max_pending_per_topic:
            raise LocalProtocolError(f"too many requests on {topic} are open")
        return requests.new_number(topic)

    def _write_request(self, request: OutgoingRequest, body: Payload, timeout: float | None, now: float) -> None:
        milliseconds = unit = 0
        if timeout is not None and (milliseconds := bridge.to_milliseconds(timeout)):
            unit = bridge.MILLISECOND
            # Wait as long as the request tells the server.
            request.expires_at = now + milliseconds / 1000
        number, kind, value = request.correlation_id, request.kind, request.serialize_arguments(body)
        message = Request(request.topic, number, kind, value, not request.expects_parts, milliseconds, unit)
        self._write_packet(encode_within_limit(message, self._limits))
        self._requests.add_outgoing(request)
        if unit:
            self._wake_at = min(self._wake_at, request.expires_at)

    def _send_part(self, message: hub.Part, _now: float) -> None:
        request = self._requests.outgoing.get(message.id)
        if request is None or not request.expects_parts:
            raise LocalProtocolError(f"no stream {message.id} is open")
        if message.body is None and not message.last:
            raise LocalProtocolError("only the last part of a stream may lack a body")
        value = request.serialize_arguments(message.body)
        kind = "" if value is None else request.kind
        self._write_packet(
            encode_within_limit(Request(request.topic, request.correlation_id, kind, value, message.last), self._limits)
        )
        request.expects_parts = not message.last

    def _send_cancel(self, message: hub.Cancel, now: float) -> None:
        """Forget the request: MQTT has no message to cancel it, and a late response is ignored."""
        request = self._requests.outgoing.get(message.id)
        if request is not None:
            self._requests.close_outgoing(request, UNWANTED_RESPONSE, now)
        else:
            self._deferred.drop(message.id)

    # Responses to our requests.

    def _on_response(self, message: Response, now: float) -> HubMessages:
        key, requests = (message.correlation_id, message.topic), self._requests
        request = requests.open.get(key)
        if type(request) is not OutgoingRequest:
            return self._on_stray_response(key, now)
        request.parts += 1
        if request.parts > self._limits.max_stream:
            requests.close_outgoing(request, UNWANTED_RESPONSE, now)
            return (hub.Failure(request.hub_id, Reason.RAISED, "too many parts"),)
        last = message.eos or not request.is_streamed_response
        if message.value is None and not last:
            return NO_MESSAGES
        try:
            hub_message = request.parse_response(message.value, last)
            messages = (
                (hub_message,)
                if request.is_streamed_response
                else self._with_extracted_attachments(hub_message, request.topic, request.kind, RESPONSE)
            )
        except Malformed as exc:
            requests.close_outgoing(request, UNWANTED_RESPONSE, now)
            return (hub.Failure(request.hub_id, Reason.RAISED, f"the result cannot be read: {exc}"),)
        if last:
            requests.close_outgoing(request, LATE_RESPONSE, now)
        return messages

    def _on_error(self, message: ErrorResponse, now: float) -> HubMessages:
        key = message.correlation_id, message.topic
        request = self._requests.open.get(key)
        if type(request) is not OutgoingRequest:
            is_timeout = message.code == bridge.ERRORS[Reason.TIMEOUT][0]
            return (
                NO_MESSAGES
                if is_timeout and self._requests.is_expected_timeout(key, now)
                else self._on_stray_response(key, now)
            )
        self._requests.close_outgoing(request, LATE_RESPONSE, now)
        return (bridge.parse_error_response(message, request.hub_id),)

    def _on_stray_response(self, key: RequestKey, now: float) -> HubMessages:
        """Report a response without a request of ours (MQRPC-06), unless it is expected."""
        if self._requests.is_expected_response(key, now):
            return NO_MESSAGES
        self.stray_responses += 1
        return (hub.Stray(f"{key[0]}@{key[1]}", "a response without a request [MQRPC-06]"),)

    def _send_goodbye(self, _word: hub.Goodbye, _now: float) -> None:
        """Close the conversation: there is no single peer to receive a goodbye."""
        self._state = State.CLOSED
        self.closed = True

    def _ignore(self, _word: hub.HubMessage, _now: float) -> None:
        """Do nothing: RPC over MQTT has no message for this, and none is needed."""

    RECEIVERS: ClassVar[Mapping[type[Message], Callable[[Any, Any, float], HubMessages]]] = {
        Request: _on_request,
        Response: _on_response,
        ErrorResponse: _on_error,
    }

    SENDERS: ClassVar[Mapping[type[hub.HubMessage], Callable[[Any, Any, float], None]]] = {
        hub.Call: _send_call,
        hub.Result: _send_result,
        hub.Failure: _send_failure,
        hub.Part: _send_part,
        hub.Attachment: MqttAttachments.send_attachment,
        hub.Cancel: _send_cancel,
        hub.Discover: _send_builtin,
        hub.Description: _send_description,
        hub.Register: _send_builtin,
        hub.Unregister: _send_builtin,
        hub.Goodbye: _send_goodbye,
        hub.Accepted: _ignore,
        hub.Progress: _ignore,
        hub.Acknowledged: _ignore,
    }
