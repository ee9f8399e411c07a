"""What is remembered of requests: those open in either direction, part by part, and for a while those that are over."""

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
"""Correlation id and topic: together they tell requests apart, since any number of strangers share a broker."""


class IncomingRequest(msgspec.Struct, gc=False):
    """A request that came in and has no final answer yet."""

    hub_id: str
    topic: str
    correlation_id: int
    method: CalledMethod
    codec: Codec
    is_streamed_response: bool
    """Whether the answer may come in parts."""
    expects_parts: bool
    """Whether parts of the request may follow."""
    expires_at: float
    quota_share: Any = None
    """The one of which it takes a part, if they are counted."""
    parts: int = 1
    expected_echoes: int = 0
    """Responses of ours that the broker may yet send back to us."""

    def parse_request(self, value: bytes, timeout: float | None) -> HubMessage:
        """Return the word that it means; Malformed or BadArguments if its body is not what it should be."""
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
            self.hub_id, name, body, spelling, (), callback, timeout, self.expects_parts, self.is_streamed_response
        )

    def parse_part(self, value: bytes, last: bool) -> Part:
        """Return one more element; Malformed if its body is not what it should be."""
        return Part(self.hub_id, self.codec.from_wire(self.topic, self.method.kind, value, REQUEST), last)

    def serialize_result(self, body: Payload | None) -> bytes | None:
        """Return a result as bytes; Unrepresentable if there are none for it."""
        return None if body is None else self.codec.to_wire(self.topic, self.method.kind, body, RESPONSE)


class OutgoingRequest(msgspec.Struct, gc=False):
    """A request of ours that has no final answer yet."""

    hub_id: str
    topic: str
    correlation_id: int
    kind: str
    """The method, as the Request's type names it."""
    codec: Codec
    message_type: type[HubMessage]
    """What it says: Call, or a word for which there is a built-in method."""
    is_streamed_response: bool = False
    expects_parts: bool = False
    expires_at: float = inf
    parts: int = 0

    def serialize_arguments(self, body: Payload | None) -> bytes | None:
        """Return arguments as bytes; Unrepresentable if there are none for them."""
        return None if body is None else self.codec.to_wire(self.topic, self.kind, body, REQUEST)

    def parse_response(self, value: bytes | None, last: bool) -> HubMessage:
        """Return the word for an answer; Malformed if its body is not what it should be."""
        body = None if value is None else self.codec.from_wire(self.topic, self.kind, value, RESPONSE)
        if self.is_streamed_response:
            return Result(self.hub_id, body, (), True, last)
        if body is None:
            body = NULL
        if self.message_type is not Discover:
            return Result(self.hub_id, body)
        described = builtin_methods.read_description(self.hub_id, body)
        if described is None:
            raise Malformed("it describes nothing")
        return described


LATE_RESPONSE, UNWANTED_RESPONSE, EXPIRED = -1, -2, -3
"""What is noted of a request of ours that is over: whether an answer that comes yet is worth a word.

EXPIRED: its deadline passed here. The server has the same deadline, so its 504 is to be expected; any other answer is
late.
"""


class RequestTable:
    """The requests of one broker in both directions: the open ones by the wire's id and the hub's, and the recent."""

    __slots__ = ("_numbers", "_prefix", "_quota", "incoming", "open", "outgoing", "outgoing_per_topic", "recent")

    def __init__(self, recent: "RecentRequests", random: Random, shares: RequestQuota | None) -> None:
        self._quota = shares
        self.outgoing_per_topic: dict[str, int] = {}
        """How many requests of ours are open on each topic."""
        first = random.getrandbits(64)
        self._prefix = first >> 32 << 32 or 1 << 32
        self._numbers = count(first)
        self.open: dict[RequestKey, IncomingRequest | OutgoingRequest] = {}
        self.incoming: dict[str, IncomingRequest] = {}
        self.outgoing: dict[str, OutgoingRequest] = {}
        self.recent = recent
        """Those that are over: how often we answered and were not echoed yet, or LATE, UNWANTED or EXPIRED for ours."""

    def add_incoming(self, key: RequestKey, served: IncomingRequest) -> None:
        """Open a request that came in."""
        self.open[key] = served
        self.incoming[served.hub_id] = served

    def close_incoming(self, served: IncomingRequest, now: float) -> None:
        """Close a request that came in."""
        key = served.correlation_id, served.topic
        del self.open[key]
        del self.incoming[served.hub_id]
        if served.quota_share is not None and self._quota is not None:
            self._quota.release(served.quota_share, served.topic)
        self.recent.add(key, served.expected_echoes, now)

    def new_number(self, topic: str) -> int:
        """Return an id that is not open (MQRPC-a02): the upper half tells a hub that all are from one device."""
        number = self._prefix | next(self._numbers) & 0xFFFFFFFF
        while (number, topic) in self.open:
            number = self._prefix | next(self._numbers) & 0xFFFFFFFF
        return number

    def add_outgoing(self, asking: OutgoingRequest) -> None:
        """Open a request of ours."""
        self.open[asking.correlation_id, asking.topic] = asking
        self.outgoing[asking.hub_id] = asking
        self.outgoing_per_topic[asking.topic] = self.outgoing_per_topic.get(asking.topic, 0) + 1

    def close_outgoing(self, asking: OutgoingRequest, note: int, now: float) -> None:
        """Close a request of ours."""
        topic = asking.topic
        key = asking.correlation_id, topic
        del self.open[key]
        del self.outgoing[asking.hub_id]
        self.outgoing_per_topic[topic] -= 1
        if not self.outgoing_per_topic[topic]:
            del self.outgoing_per_topic[topic]
        self.recent.add(key, note, now)

    def is_pending(self, frame: Frame) -> bool:
        """Whether a message has the id of an open request of ours."""
        return type(self.open.get((frame.content.correlation_id, frame.topic))) is OutgoingRequest

    def is_expected_response(self, key: RequestKey, now: float) -> bool:
        """Whether an answer to none of our open requests is no surprise.

        Either it is an answer of ours that the broker sends back, of which one less is to come then (MQRPC-a01), or one
        that we no longer want.
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
        """Whether a request of ours expired, and the server's own timeout has not come yet (MQRPC-a10)."""
        if self.recent.get(key, now) != EXPIRED:
            return False
        self.recent.add(key, LATE_RESPONSE, now)
        return True

    def next_expiry(self) -> float:
        """When the first of the open ones runs out of time."""
        return min((request.expires_at for request in self.open.values()), default=inf)


class RecentRequests:
    """Notes on what is over, kept for `window` seconds, twice that at most, and never more than twice `most` of them.

    There are two generations: the younger takes what is noted, and the elder is dropped as a whole when they change.
    """

    __slots__ = ("_current", "_generation_size", "_previous", "_rotates_at", "_window")

    def __init__(self, window: float, most: int) -> None:
        self._window = window
        self._generation_size = most
        self._rotates_at = 0.0
        self._current: dict[RequestKey, int] = {}
        self._previous: dict[RequestKey, int] = {}

    def add(self, key: RequestKey, number: int, now: float) -> None:
        """Remember a number for a key, in place of any before it."""
        if now >= self._rotates_at:
            self._rotate(now)
        if len(self._current) >= self._generation_size:
            self._previous, self._current = self._current, {}
            self._rotates_at = now + self._window
        self._current[key] = number

    def get(self, key: RequestKey, now: float) -> int | None:
        """Return what was noted, if it is not forgotten."""
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
