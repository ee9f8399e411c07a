"""The requests of a conversation: open ones in both directions, and recently finished ones."""

from itertools import count
from math import inf
from random import Random
from typing import Any

import msgspec

from fiveways.errors import Malformed
from fiveways.model.messages import Call, Discover, HubMessage, Part, Result
from fiveways.protocols import builtin_methods
from fiveways.protocols.mqtt_rpc.bridge import REQUEST, RESPONSE, STYLES, CalledMethod, Codec, RequestQuota
from fiveways.protocols.mqtt_rpc.frames import Frame
from fiveways.wire.payload import NULL, Payload

RequestKey = tuple[int, str]
"""Correlation id and topic. Ids alone are not unique among the unrelated clients of a broker."""


class IncomingRequest(msgspec.Struct, gc=False):
    """An incoming request without a final response."""

    hub_id: str
    topic: str
    correlation_id: int
    method: CalledMethod
    codec: Codec
    is_streamed_response: bool = False
    """Whether the result may be streamed."""
    expects_parts: bool = False
    """Whether parts of the request may follow."""
    expires_at: float = inf
    quota_share: Any = None
    """The share of the quota that counts this request, if any."""
    parts: int = 1
    expected_echoes: int = 0
    """Our responses that the broker may still send back."""

    def parse_request(self, value: bytes, timeout: float | None) -> HubMessage:
        """Return the hub message of the request.

        Raises:
            Malformed: the body is invalid.
            BadArguments: the arguments of a built-in are invalid.
        """
        method = self.method
        body = self.codec.from_wire(self.topic, method.kind, value, REQUEST)
        if method.is_application_method:
            spelling, callback, name = method.spelling, False, method.folded
        elif method.folded.startswith("callback."):
            spelling, callback = method.kind.rpartition(".")[2], True
            name = spelling.lower()
        else:
            message = builtin_methods.message_from_call(self.hub_id, method.folded, body, STYLES)
            if message is not None:
                return message
            spelling, callback, name = method.spelling, False, method.folded
        return Call(
            self.hub_id,
            name,
            body,
            spelling,
            callback=callback,
            timeout=timeout,
            more=self.expects_parts,
            stream=self.is_streamed_response,
        )

    def parse_part(self, value: bytes, last: bool) -> Part:
        """Return a further element; Malformed if its body is invalid."""
        return Part(self.hub_id, self.codec.from_wire(self.topic, self.method.kind, value, REQUEST), last)

    def serialize_result(self, body: Payload | None) -> bytes | None:
        """Return the bytes of a result; Unrepresentable if the codec cannot express it."""
        return None if body is None else self.codec.to_wire(self.topic, self.method.kind, body, RESPONSE)


class OutgoingRequest(msgspec.Struct, gc=False):
    """Our request without a final response."""

    hub_id: str
    topic: str
    correlation_id: int
    kind: str
    """The method, as the type in the Request."""
    codec: Codec
    message_type: type[HubMessage]
    """Call, or a hub message that corresponds to a built-in method."""
    is_streamed_response: bool = False
    expects_parts: bool = False
    expires_at: float = inf
    parts: int = 0

    def serialize_arguments(self, body: Payload | None) -> bytes | None:
        """Return the bytes of the arguments; Unrepresentable if the codec cannot express them."""
        return None if body is None else self.codec.to_wire(self.topic, self.kind, body, REQUEST)

    def parse_response(self, value: bytes | None, last: bool) -> HubMessage:
        """Return the hub message of a response; Malformed if its body is invalid."""
        body = None if value is None else self.codec.from_wire(self.topic, self.kind, value, RESPONSE)
        if self.is_streamed_response:
            return Result(self.hub_id, body, stream=True, last=last)
        if body is None:
            body = NULL
        if self.message_type is not Discover:
            return Result(self.hub_id, body)
        description = builtin_methods.read_description(self.hub_id, body)
        if description is None:
            raise Malformed("not a description")
        return description


LATE_RESPONSE, UNWANTED_RESPONSE, EXPIRED = -1, -2, -3
"""States of our finished requests, which decide whether a further response is reported.

UNWANTED_RESPONSE: a further response is not reported. EXPIRED: the deadline has passed here. The server has the same
deadline, so its 504 is expected; any other response is late.
"""


class RequestTable:
    """The requests of one broker in both directions: open ones by wire id and hub id, and recent ones."""

    __slots__ = ("_numbers", "_prefix", "_quota", "incoming", "open", "outgoing", "outgoing_per_topic", "recent")

    def __init__(self, recent: "RecentRequests", random: Random, quota: RequestQuota | None) -> None:
        self._quota = quota
        self.outgoing_per_topic: dict[str, int] = {}
        """The number of our open requests on each topic."""
        first = random.getrandbits(64)
        self._prefix = first >> 32 << 32 or 1 << 32
        self._numbers = count(first)
        self.open: dict[RequestKey, IncomingRequest | OutgoingRequest] = {}
        self.incoming: dict[str, IncomingRequest] = {}
        self.outgoing: dict[str, OutgoingRequest] = {}
        self.recent = recent
        """Finished requests: the number of expected echoes, or LATE_RESPONSE, UNWANTED_RESPONSE or EXPIRED for ours."""

    def add_incoming(self, key: RequestKey, request: IncomingRequest) -> None:
        """Add an incoming request."""
        self.open[key] = request
        self.incoming[request.hub_id] = request

    def close_incoming(self, request: IncomingRequest, now: float) -> None:
        """Close an incoming request."""
        key = request.correlation_id, request.topic
        del self.open[key]
        del self.incoming[request.hub_id]
        if request.quota_share is not None and self._quota is not None:
            self._quota.release(request.quota_share, request.topic)
        self.recent.add(key, request.expected_echoes, now)

    def new_number(self, topic: str) -> int:
        """Return an unused id (MQRPC-a02); its upper half shows a hub that all ids are from one device."""
        number = self._prefix | next(self._numbers) & 0xFFFFFFFF
        while (number, topic) in self.open:
            number = self._prefix | next(self._numbers) & 0xFFFFFFFF
        return number

    def add_outgoing(self, request: OutgoingRequest) -> None:
        """Add our request."""
        self.open[request.correlation_id, request.topic] = request
        self.outgoing[request.hub_id] = request
        self.outgoing_per_topic[request.topic] = self.outgoing_per_topic.get(request.topic, 0) + 1

    def close_outgoing(self, request: OutgoingRequest, note: int, now: float) -> None:
        """Close our request."""
        topic = request.topic
        key = request.correlation_id, topic
        del self.open[key]
        del self.outgoing[request.hub_id]
        self.outgoing_per_topic[topic] -= 1
        if not self.outgoing_per_topic[topic]:
            del self.outgoing_per_topic[topic]
        self.recent.add(key, note, now)

    def is_pending(self, frame: Frame) -> bool:
        """Return whether a message has the id of an open request of ours."""
        return type(self.open.get((frame.content.correlation_id, frame.topic))) is OutgoingRequest

    def is_expected_response(self, key: RequestKey, now: float) -> bool:
        """Return whether a response without an open request is expected.

        It is an echo of our own response, whose count is then reduced (MQRPC-a01), or an unwanted one.
        """
        request = self.open.get(key)
        if type(request) is IncomingRequest and request.expected_echoes:
            request.expected_echoes -= 1
            return True
        note = self.recent.get(key, now)
        if note is not None and note > 0:
            self.recent.add(key, note - 1, now)
            return True
        return note == UNWANTED_RESPONSE

    def is_expected_timeout(self, key: RequestKey, now: float) -> bool:
        """Return whether our request expired and the server's own timeout has not arrived yet (MQRPC-a10)."""
        if self.recent.get(key, now) != EXPIRED:
            return False
        self.recent.add(key, LATE_RESPONSE, now)
        return True

    def next_expiry(self) -> float:
        """Return the earliest expiry of the open requests."""
        return min((request.expires_at for request in self.open.values()), default=inf)


class RecentRequests:
    """A number for each finished request, in at most two generations of `generation_size` entries.

    An entry is stored for `window` to twice `window` seconds: new entries go to the current generation, and the
    previous one is dropped as a whole at a rotation.
    """

    __slots__ = ("_current", "_generation_size", "_previous", "_rotates_at", "_window")

    def __init__(self, window: float, generation_size: int) -> None:
        self._window = window
        self._generation_size = generation_size
        self._rotates_at = 0.0
        self._current: dict[RequestKey, int] = {}
        self._previous: dict[RequestKey, int] = {}

    def add(self, key: RequestKey, number: int, now: float) -> None:
        """Store a number for a key, replacing an earlier one."""
        if now >= self._rotates_at:
            self._rotate(now)
        if len(self._current) >= self._generation_size:
            self._previous, self._current = self._current, {}
            self._rotates_at = now + self._window
        self._current[key] = number

    def get(self, key: RequestKey, now: float) -> int | None:
        """Return the number of a key, None if it is unknown or expired."""
        if key in self._current or key in self._previous:
            if now >= self._rotates_at:
                self._rotate(now)
            number = self._current.get(key)
            return self._previous.get(key) if number is None else number
        return None

    def _rotate(self, now: float) -> None:
        if now < self._rotates_at + self._window:
            self._previous, self._current = self._current, {}
            self._rotates_at += self._window
        else:
            self._previous, self._current = {}, {}
            self._rotates_at = now + self._window
