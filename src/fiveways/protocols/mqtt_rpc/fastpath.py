"""The fast path of a conversation: unary calls and results are handled without frames and message objects.

Packets and messages that are not plain take the general path, without side effects before.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from fiveways.errors import Malformed, Reason
from fiveways.model.messages import Call, Failure, HubMessage, Result
from fiveways.model.names import BadName
from fiveways.protocols.base import ConversationSetup, InlineAttachmentsMixin, Role
from fiveways.protocols.mqtt_rpc import rpc_pb2
from fiveways.protocols.mqtt_rpc.bridge import (
    JSON_CODEC,
    MILLISECOND,
    REQUEST,
    RESPONSE,
    UNIT_SECONDS,
    Codec,
    Options,
    call_target,
    codec_for_method,
    encode_failure,
    parse_method,
    to_milliseconds,
)
from fiveways.protocols.mqtt_rpc.echo_filter import EchoFilter
from fiveways.protocols.mqtt_rpc.messages import too_large_error
from fiveways.protocols.mqtt_rpc.requests import (
    LATE_RESPONSE,
    UNWANTED_RESPONSE,
    IncomingRequest,
    OutgoingRequest,
    RecentRequests,
    RequestKey,
    RequestTable,
)
from fiveways.wire.packet import Packet

HubMessages = Sequence[HubMessage]
NO_MESSAGES: Final[tuple[HubMessage, ...]] = ()
_CACHE_SIZE: Final = 1024
_UNARY: Final = "unary"
_Request, _Response = rpc_pb2.Request, rpc_pb2.Response
_parse_request, _parse_response = _Request.FromString, _Response.FromString


@lru_cache(_CACHE_SIZE)
def _fastpath_target(method: str, spelling: str) -> tuple[str, str] | None:
    """Return the topic and the type of our call; None for the hub's methods, whose bodies are JSON."""
    return None if codec_for_method(method, _DEFAULT_CODEC) is JSON_CODEC else call_target(method, spelling)


_DEFAULT_CODEC: Final[Codec] = Options().codec


def _no_attachment_field(_topic: str, _kind: str, _direction: str) -> None:
    """Return None: no type has a field for attachments."""


class MqttFastPath(InlineAttachmentsMixin):
    """The tables of a conversation, and the fast path that uses them."""

    def __init__(self, setup: ConversationSetup) -> None:
        limits = setup.limits
        options = msgspec.convert(setup.options or {}, Options)
        self.closed = False
        self._limits = limits
        # A hub subscribes to the topics that it serves; a client subscribes to a topic for the responses to its calls.
        self._served_topic_kind = options.served_topic_lookup(setup.role is Role.SERVER)
        self._codec: Codec = options.codec
        self._attachment_field: Callable[[str, str, str], Any] = options.attached or _no_attachment_field
        """Returns the field for attachments."""
        self._has_attachment_fields = options.attached is not None
        self._default_timeout = options.default_timeout
        self.unsent: list[Packet] = []
        self._echo_filter = EchoFilter()
        max_remembered = options.max_remembered or 2 * limits.max_pending
        self._quota, self._max_pending_per_topic = options.shares, options.max_per_topic or limits.max_pending
        self._requests = requests = RequestTable(
            RecentRequests(options.duplicate_window, max_remembered), setup.random, options.shares
        )
        self._wake_at = inf
        """Lower bound for the next expiry of a request; not updated when a request ends."""
        # Copies of attributes of other objects, which are faster to access.
        self._open_requests, self._incoming_requests, self._outgoing_requests = (
            requests.open,
            requests.incoming,
            requests.outgoing,
        )
        self._recent, self._outgoing_per_topic = requests.recent, requests.outgoing_per_topic
        self._max_text, self._max_name, self._max_pending = limits.max_text, limits.max_name, limits.max_pending
        self._accepts_responses = limits.max_stream > 0

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Handle an MQTT message."""
        # MQRPC-a11: retained messages were meant for others.
        if self.closed or packet.retained:
            return NO_MESSAGES
        echo = self._echo_filter.take(packet)
        if echo is not None:
            if echo[1] is not None:
                self._requests.is_expected_response(echo[1], now)
            return NO_MESSAGES
        messages = self._receive_fast(packet, now)
        return self.receive_general(packet, now) if messages is None else messages

    def send(self, message: HubMessage, now: float) -> None:
        """Publish a hub message on its topic."""
        if not self.closed:
            if type(message) is Result:
                is_sent = self._send_result_fast(message, now)
            else:
                is_sent = type(message) is Call and self._send_call_fast(message, now)
            if is_sent:
                return
        self.send_general(message, now)

    @abstractmethod
    def receive_general(self, packet: Packet, now: float) -> HubMessages:
        """Handle a packet on the general path."""

    @abstractmethod
    def send_general(self, message: HubMessage, now: float) -> None:
        """Send a message on the general path."""

    def _refuse_request(self, key: RequestKey, reason: Reason, text: str, now: float) -> HubMessages:
        """Send an error response without involving the hub."""
        self._write_packet(encode_failure(Failure("", reason, text), key, self._limits), key)
        self._recent.add(key, 1, now)
        return NO_MESSAGES

    def _write_packet(self, packet: Packet, request_key: RequestKey | None = None) -> None:
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, request_key)

    def _receive_fast(self, packet: Packet, now: float) -> HubMessages | None:
        """Handle a plain message; return None without side effects if it is not plain."""
        data, topic = packet.payload, packet.channel
        if len(data) > self._max_text or len(topic) > self._max_name or packet.is_text or packet.blob is not None:
            return None
        try:
            response = _parse_response(data)
            key = response.correlation_id, topic
            # As in `parse_frame`, the fields of a Response decide. Reading a flag takes half as long as HasField.
            if response.HasField("error_data"):
                return None
            if response.eos:
                return self._receive_response_fast(response, key, now)
            if response.HasField("eos"):
                return None
            request = _parse_request(data)
        except DecodeError:
            return None
        return self._receive_call_fast(request, key, now) if request.eos else None

    def _receive_response_fast(self, response: rpc_pb2.Response, key: RequestKey, now: float) -> HubMessages | None:
        request = self._open_requests.get(key)
        if request is None:
            # Most likely a response to another client on the same topic; only responses to our requests need more work.
            return NO_MESSAGES if self._recent.get(key, now) == UNWANTED_RESPONSE else None
        if (
            type(request) is not OutgoingRequest
            or request.is_streamed_response
            or request.message_type is not Call
            or not self._accepts_responses
        ):
            return None
        if self._has_attachment_fields and self._attachment_field(key[1], request.kind, RESPONSE) is not None:
            return None
        value = response.body.value
        if not value and not response.HasField("body"):
            return None
        hub_id = request.hub_id
        try:
            body = request.codec.from_wire(key[1], request.kind, value, RESPONSE)
        except Malformed:
            return None
        del self._open_requests[key]
        del self._outgoing_requests[hub_id]
        topic = key[1]
        if (count := self._outgoing_per_topic[topic]) > 1:
            self._outgoing_per_topic[topic] = count - 1
        else:
            del self._outgoing_per_topic[topic]
        self._recent.add(key, LATE_RESPONSE, now)
        return (Result(hub_id, body),)

    def _receive_call_fast(self, message: rpc_pb2.Request, key: RequestKey, now: float) -> HubMessages | None:
        number, topic = key
        if key in self._open_requests or self._recent.get(key, now) is not None:
            return None
        body = message.body
        try:
            method = parse_method(topic, body.type_url)
        except BadName:
            return None
        kind = method.kind
        streaming = self._served_topic_kind(topic, kind)
        if streaming is None:
            self._recent.add(key, UNWANTED_RESPONSE, now)  # this request and its response belong to another service
            return NO_MESSAGES
        if streaming != _UNARY or not method.is_application_method or len(method.folded) > self._max_name:
            return None
        if len(self._incoming_requests) >= self._max_pending or (
            self._has_attachment_fields and self._attachment_field(topic, kind, REQUEST) is not None
        ):
            return None
        timeout, expires_at = self._default_timeout, inf
        if request_timeout := message.timeout:
            unit = UNIT_SECONDS.get(message.timeout_unit)
            if unit is None:
                return None
            timeout = request_timeout * unit
        try:
            arguments = self._codec.from_wire(topic, kind, body.value, REQUEST)
        except Malformed:
            return None
        share = None
        if self._quota is not None:
            share = self._quota.admit(number, topic)
            if type(share) is str:
                return self._refuse_request(key, Reason.OVERLOADED, share, now)
        if timeout is not None:
            expires_at = now + timeout
            self._wake_at = min(self._wake_at, expires_at)
        hub_id = f"{number}@{topic}"
        request = IncomingRequest(hub_id, topic, number, method, self._codec, expires_at=expires_at, quota_share=share)
        self._open_requests[key] = request
        self._incoming_requests[hub_id] = request
        return (Call(hub_id, method.folded, arguments, method.spelling, timeout=timeout),)

    def _send_result_fast(self, message: Result, now: float) -> bool:
        """Send a plain result; return False without side effects if it is not plain."""
        hub_id, body = message.id, message.body
        request = self._incoming_requests.get(hub_id)
        if request is None or body is None or request.is_streamed_response or message.stream or message.attachments:
            return False
        number, topic = key = request.correlation_id, request.topic
        content = _Response()
        content.correlation_id = number
        content.body.value = request.codec.to_wire(topic, request.method.kind, body, RESPONSE)
        content.eos = True
        payload = content.SerializeToString()
        if len(payload) > self._max_text:
            raise too_large_error(payload)
        packet = Packet(payload, is_text=False, channel=topic)
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, key)
        del self._open_requests[key]
        del self._incoming_requests[hub_id]
        if request.quota_share is not None:
            self._quota.release(request.quota_share, topic)
        self._recent.add(key, request.expected_echoes + 1, now)
        return True

    def _send_call_fast(self, message: Call, now: float) -> bool:
        """Send a plain call; return False without side effects if it is not plain."""
        hub_id, outgoing_requests = message.id, self._outgoing_requests
        if message.attachments or message.callback or message.stream or message.more:
            return False
        target = _fastpath_target(message.method, message.spelling)
        if target is None or hub_id in outgoing_requests or len(outgoing_requests) >= self._max_pending:
            return False
        topic, kind = target
        open_on_topic = self._outgoing_per_topic.get(topic, 0)
        if len(topic) > self._max_name or open_on_topic >= self._max_pending_per_topic:
            return False
        number = self._requests.new_number(topic)
        # No return to the general path from here on: it would allocate another correlation id.
        content = _Request()
        content.correlation_id = number
        body = content.body
        body.type_url = kind
        body.value = self._codec.to_wire(topic, kind, message.body, REQUEST)
        content.eos = True
        milliseconds, expires_at = 0, inf
        if message.timeout is not None and (milliseconds := to_milliseconds(message.timeout)):
            content.timeout = milliseconds
            content.timeout_unit = MILLISECOND  # type: ignore[assignment]  # proto3 takes numbers
            # Wait as long as the request tells the server.
            expires_at = now + milliseconds / 1000
        payload = content.SerializeToString()
        if len(payload) > self._max_text:
            raise too_large_error(payload)
        if milliseconds:
            self._wake_at = min(self._wake_at, expires_at)
        packet = Packet(payload, is_text=False, channel=topic)
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, None)
        self._open_requests[number, topic] = outgoing_requests[hub_id] = OutgoingRequest(
            hub_id, topic, number, kind, self._codec, Call, expires_at=expires_at
        )
        self._outgoing_per_topic[topic] = open_on_topic + 1
        return True
