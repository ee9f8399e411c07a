"""The short way through a conversation: calls and answers in one piece need not become frames and messages.

Whatever is not plain about a packet, or a word, is left to the long way, as if nobody had looked at it.
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
    """The topic and the type of an outbound call; None for the hub's own methods, whose bodies are JSON."""
    return None if codec_for_method(method, _DEFAULT_CODEC) is JSON_CODEC else call_target(method, spelling)


_DEFAULT_CODEC: Final[Codec] = Options().codec


def _no_attachment_field(_topic: str, _kind: str, _direction: str) -> None:
    """No message has a field for attachments."""


class MqttFastPath(InlineAttachmentsMixin):
    """The tables of a conversation, and the short way to them."""

    def __init__(self, setup: ConversationSetup) -> None:
        limits = setup.limits
        options = msgspec.convert(setup.options or {}, Options)
        self.closed = False
        self._limits = limits
        # A hub listens to the topics that it serves; a client hears a topic because it calls somebody there.
        self._served_topic_kind = options.served_topic_lookup(setup.role is Role.SERVER)
        self._codec: Codec = options.codec
        self._attachment_field: Callable[[str, str, str], Any] = options.attached or _no_attachment_field
        """Which field of a message holds attachments."""
        self._has_attachment_fields = options.attached is not None
        self._default_timeout = options.default_timeout
        self.unsent: list[Packet] = []
        self._echo_filter = EchoFilter()
        most = options.max_remembered or 2 * limits.max_pending
        self._quota, self._max_pending_per_topic = options.shares, options.max_per_topic or limits.max_pending
        self._requests = requests = RequestTable(
            RecentRequests(options.duplicate_window, most), setup.random, options.shares
        )
        self._wake_at = inf
        """No request expires before; it may lie earlier than need be, as those that were answered leave it as it is."""
        # The same once more, so that it need not be looked for each time.
        self._open_requests, self._incoming_requests, self._outgoing_requests = (
            requests.open,
            requests.incoming,
            requests.outgoing,
        )
        self._recent, self._outgoing_per_topic = requests.recent, requests.outgoing_per_topic
        self._max_text, self._max_name, self._max_pending = limits.max_text, limits.max_name, limits.max_pending
        self._accepts_responses = limits.max_stream > 0

    def receive(self, packet: Packet, now: float) -> HubMessages:
        """Take one MQTT message."""
        # MQRPC-a11: what a broker kept for newcomers was meant for others.
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
        """Say a word to whom it may concern on the broker."""
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
        """Take the long way with what has come: by way of its frame and its message."""

    @abstractmethod
    def send_general(self, message: HubMessage, now: float) -> None:
        """Take the long way with what is to be said."""

    def _refuse_request(self, key: RequestKey, reason: Reason, text: str, now: float) -> HubMessages:
        """Answer a request without bothering the hub."""
        self._write_packet(encode_failure(Failure("", reason, text), key, self._limits), key)
        self._recent.add(key, 1, now)
        return NO_MESSAGES

    def _write_packet(self, packet: Packet, answered: RequestKey | None = None) -> None:
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, answered)

    def _receive_fast(self, packet: Packet, now: float) -> HubMessages | None:
        """Take a message that is plain; None, and nothing has happened, if it is not."""
        data, topic = packet.payload, packet.channel
        if len(data) > self._max_text or len(topic) > self._max_name or packet.is_text or packet.blob is not None:
            return None
        try:
            answer = _parse_response(data)
            key = answer.correlation_id, topic
            # See `parse_frame`: the marks of a Response win. To ask for a flag takes half as long as for its presence.
            if answer.HasField("error_data"):
                return None
            if answer.eos:
                return self._receive_response_fast(answer, key, now)
            if answer.HasField("eos"):
                return None
            asked = _parse_request(data)
        except DecodeError:
            return None
        return self._receive_call_fast(asked, key, now) if asked.eos else None

    def _receive_response_fast(self, answer: rpc_pb2.Response, key: RequestKey, now: float) -> HubMessages | None:
        asking = self._open_requests.get(key)
        if asking is None:
            # Most likely to somebody else's Request, which we heard too; only ours are worth more thought.
            return NO_MESSAGES if self._recent.get(key, now) == UNWANTED_RESPONSE else None
        if (
            type(asking) is not OutgoingRequest
            or asking.is_streamed_response
            or asking.message_type is not Call
            or not self._accepts_responses
        ):
            return None
        if self._has_attachment_fields and self._attachment_field(key[1], asking.kind, RESPONSE) is not None:
            return None
        value = answer.body.value
        if not value and not answer.HasField("body"):
            return None
        hub_id = asking.hub_id
        try:
            body = asking.codec.from_wire(key[1], asking.kind, value, RESPONSE)
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

    def _receive_call_fast(self, asked: rpc_pb2.Request, key: RequestKey, now: float) -> HubMessages | None:
        number, topic = key
        if key in self._open_requests or self._recent.get(key, now) is not None:
            return None
        body = asked.body
        try:
            method = parse_method(topic, body.type_url)
        except BadName:
            return None
        kind = method.kind
        streaming = self._served_topic_kind(topic, kind)
        if streaming is None:
            self._recent.add(key, UNWANTED_RESPONSE, now)  # it is somebody else's, and so is its answer
            return NO_MESSAGES
        if streaming != _UNARY or not method.is_application_method or len(method.folded) > self._max_name:
            return None
        if len(self._incoming_requests) >= self._max_pending or (
            self._has_attachment_fields and self._attachment_field(topic, kind, REQUEST) is not None
        ):
            return None
        timeout, expires_at = self._default_timeout, inf
        if told := asked.timeout:
            unit = UNIT_SECONDS.get(asked.timeout_unit)
            if unit is None:
                return None
            timeout = told * unit
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
        served = IncomingRequest(hub_id, topic, number, method, self._codec, False, False, expires_at, share)
        self._open_requests[key] = served
        self._incoming_requests[hub_id] = served
        return (Call(hub_id, method.folded, arguments, method.spelling, (), False, timeout),)

    def _send_result_fast(self, message: Result, now: float) -> bool:
        """Say an answer that is plain; False, and nothing has happened, if it is not."""
        hub_id, body = message.id, message.body
        served = self._incoming_requests.get(hub_id)
        if served is None or body is None or served.is_streamed_response or message.stream or message.attachments:
            return False
        number, topic = key = served.correlation_id, served.topic
        content = _Response()
        content.correlation_id = number
        content.body.value = served.codec.to_wire(topic, served.method.kind, body, RESPONSE)
        content.eos = True
        payload = content.SerializeToString()
        if len(payload) > self._max_text:
            raise too_large_error(payload)
        packet = Packet(payload, False, topic)
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, key)
        del self._open_requests[key]
        del self._incoming_requests[hub_id]
        if served.quota_share is not None:
            self._quota.release(served.quota_share, topic)
        self._recent.add(key, served.expected_echoes + 1, now)
        return True

    def _send_call_fast(self, message: Call, now: float) -> bool:
        """Say a call that is plain; False, and nothing has happened, if it is not."""
        hub_id, asking = message.id, self._outgoing_requests
        if message.attachments or message.callback or message.stream or message.more:
            return False
        target = _fastpath_target(message.method, message.spelling)
        if target is None or hub_id in asking or len(asking) >= self._max_pending:
            return False
        topic, kind = target
        open_there = self._outgoing_per_topic.get(topic, 0)
        if len(topic) > self._max_name or open_there >= self._max_pending_per_topic:
            return False
        number = self._requests.new_number(topic)
        # From here on there is no way back: the long way would draw another number.
        content = _Request()
        content.correlation_id = number
        body = content.body
        body.type_url = kind
        body.value = self._codec.to_wire(topic, kind, message.body, REQUEST)
        content.eos = True
        told, expires_at = 0, inf
        if message.timeout is not None and (told := to_milliseconds(message.timeout)):
            content.timeout = told
            content.timeout_unit = MILLISECOND  # type: ignore[assignment]  # proto3 takes numbers
            # We wait as long as we tell the other side to.
            expires_at = now + told / 1000
        payload = content.SerializeToString()
        if len(payload) > self._max_text:
            raise too_large_error(payload)
        if told:
            self._wake_at = min(self._wake_at, expires_at)
        packet = Packet(payload, False, topic)
        self.unsent.append(packet)
        self._echo_filter.add_sent(packet, None)
        self._open_requests[number, topic] = asking[hub_id] = OutgoingRequest(
            hub_id, topic, number, kind, self._codec, Call, False, False, expires_at
        )
        self._outgoing_per_topic[topic] = open_there + 1
        return True
