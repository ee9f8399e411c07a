"""What is remembered of requests: those open in either direction, part by part, and for a while those that are over."""

from itertools import count
from math import inf
from random import Random
from typing import Any

import msgspec

from fiveways.errors import Malformed
from fiveways.model.messages import Call, Discover, Part, Result, Word
from fiveways.protocols import builtins
from fiveways.protocols.mqtt_rpc.bridge import REQUEST, RESPONSE, STYLES, Codec, Method, Shares
from fiveways.protocols.mqtt_rpc.frames import Frame
from fiveways.wire.payload import NULL, Payload

Key = tuple[int, str]
"""Correlation id and topic: together they tell requests apart, since any number of strangers share a broker."""


class Served(msgspec.Struct, gc=False):
    """A request that came in and has no final answer yet."""

    hub_id: str
    topic: str
    correlation_id: int
    method: Method
    codec: Codec
    streams: bool
    """Whether the answer may come in parts."""
    more: bool
    """Whether parts of the request may follow."""
    expires_at: float
    share: Any = None
    """The one of which it takes a part, if they are counted."""
    parts: int = 1
    echoes: int = 0
    """Responses of ours that the broker may yet send back to us."""

    def read(self, value: bytes, timeout: float | None) -> Word:
        """Return the word that it means; Malformed or BadArguments if its body is not what it should be."""
        method = self.method
        body = self.codec.from_wire(self.topic, method.kind, value, REQUEST)
        if method.is_usual:
            spelling, callback, name = method.spelling, False, method.folded
        elif method.folded.startswith("callback."):
            spelling, callback = method.kind.rpartition(".")[2], True
            name = spelling.lower()
        else:
            word = builtins.read(self.hub_id, method.folded, body, STYLES)
            if word is not None:
                return word
            spelling, callback, name = method.spelling, False, method.folded
        return Call(self.hub_id, name, body, spelling, (), callback, timeout, self.more, self.streams)

    def read_part(self, value: bytes, last: bool) -> Part:
        """Return one more element; Malformed if its body is not what it should be."""
        return Part(self.hub_id, self.codec.from_wire(self.topic, self.method.kind, value, REQUEST), last)

    def write(self, body: Payload | None) -> bytes | None:
        """Return a result as bytes; Unrepresentable if there are none for it."""
        return None if body is None else self.codec.to_wire(self.topic, self.method.kind, body, RESPONSE)


class Asking(msgspec.Struct, gc=False):
    """A request of ours that has no final answer yet."""

    hub_id: str
    topic: str
    correlation_id: int
    kind: str
    """The method, as the Request's type names it."""
    codec: Codec
    word: type[Word]
    """What it says: Call, or a word for which there is a built-in method."""
    streams: bool = False
    more: bool = False
    expires_at: float = inf
    parts: int = 0

    def write(self, body: Payload | None) -> bytes | None:
        """Return arguments as bytes; Unrepresentable if there are none for them."""
        return None if body is None else self.codec.to_wire(self.topic, self.kind, body, REQUEST)

    def read(self, value: bytes | None, last: bool) -> Word:
        """Return the word for an answer; Malformed if its body is not what it should be."""
        body = None if value is None else self.codec.from_wire(self.topic, self.kind, value, RESPONSE)
        if self.streams:
            return Result(self.hub_id, body, (), True, last)
        if body is None:
            body = NULL
        if self.word is not Discover:
            return Result(self.hub_id, body)
        described = builtins.read_description(self.hub_id, body)
        if described is None:
            raise Malformed("it describes nothing")
        return described


LATE, UNWANTED, EXPIRED = -1, -2, -3
"""What is noted of a request of ours that is over: whether an answer that comes yet is worth a word.

EXPIRED: its deadline passed here. The server has the same deadline, so its 504 is to be expected; any other answer is
late.
"""


class Requests:
    """The requests of one broker in both directions: the open ones by the wire's id and the hub's, and the recent."""

    __slots__ = ("_next", "_prefix", "_shares", "asked_on", "asking", "open", "recent", "served")

    def __init__(self, recent: "Recent", random: Random, shares: Shares | None) -> None:
        self._shares = shares
        self.asked_on: dict[str, int] = {}
        """How many requests of ours are open on each topic."""
        first = random.getrandbits(64)
        self._prefix = first >> 32 << 32 or 1 << 32
        self._next = count(first)
        self.open: dict[Key, Served | Asking] = {}
        self.served: dict[str, Served] = {}
        self.asking: dict[str, Asking] = {}
        self.recent = recent
        """Those that are over: how often we answered and were not echoed yet, or LATE, UNWANTED or EXPIRED for ours."""

    def serve(self, key: Key, served: Served) -> None:
        """Open a request that came in."""
        self.open[key] = served
        self.served[served.hub_id] = served

    def end_served(self, served: Served, now: float) -> None:
        """Close a request that came in."""
        key = served.correlation_id, served.topic
        del self.open[key]
        del self.served[served.hub_id]
        if served.share is not None and self._shares is not None:
            self._shares.release(served.share, served.topic)
        self.recent.note(key, served.echoes, now)

    def new_number(self, topic: str) -> int:
        """Return an id that is not open (MQRPC-a02): the upper half tells a hub that all are from one device."""
        number = self._prefix | next(self._next) & 0xFFFFFFFF
        while (number, topic) in self.open:
            number = self._prefix | next(self._next) & 0xFFFFFFFF
        return number

    def ask(self, asking: Asking) -> None:
        """Open a request of ours."""
        self.open[asking.correlation_id, asking.topic] = asking
        self.asking[asking.hub_id] = asking
        self.asked_on[asking.topic] = self.asked_on.get(asking.topic, 0) + 1

    def end_asking(self, asking: Asking, note: int, now: float) -> None:
        """Close a request of ours."""
        topic = asking.topic
        key = asking.correlation_id, topic
        del self.open[key]
        del self.asking[asking.hub_id]
        self.asked_on[topic] -= 1
        if not self.asked_on[topic]:
            del self.asked_on[topic]
        self.recent.note(key, note, now)

    def is_pending(self, frame: Frame) -> bool:
        """Whether a message has the id of an open request of ours."""
        return type(self.open.get((frame.content.correlation_id, frame.topic))) is Asking

    def expects(self, key: Key, now: float) -> bool:
        """Whether an answer to none of our open requests is no surprise.

        Either it is an answer of ours that the broker sends back, of which one less is to come then (MQRPC-a01), or one
        that we no longer want.
        """
        request = self.open.get(key)
        if type(request) is Served and request.echoes:
            request.echoes -= 1
            return True
        note = self.recent.get(key, now)
        if note is not None and note > 0:
            self.recent.note(key, note - 1, now)
            return True
        return note == UNWANTED

    def expects_timeout(self, key: Key, now: float) -> bool:
        """Whether a request of ours expired, and the server's own timeout has not come yet (MQRPC-a10)."""
        if self.recent.get(key, now) != EXPIRED:
            return False
        self.recent.note(key, LATE, now)
        return True

    def next_expiry(self) -> float:
        """When the first of the open ones runs out of time."""
        return min((request.expires_at for request in self.open.values()), default=inf)


class Recent:
    """Notes on what is over, kept for `window` seconds, twice that at most, and never more than twice `most` of them.

    There are two generations: the younger takes what is noted, and the elder is dropped as a whole when they change.
    """

    __slots__ = ("_elder", "_most", "_turn_at", "_window", "_younger")

    def __init__(self, window: float, most: int) -> None:
        self._window = window
        self._most = most
        self._turn_at = 0.0
        self._younger: dict[Key, int] = {}
        self._elder: dict[Key, int] = {}

    def note(self, key: Key, number: int, now: float) -> None:
        """Remember a number for a key, in place of any before it."""
        if now >= self._turn_at:
            self._grow_old(now)
        if len(self._younger) >= self._most:
            self._elder, self._younger = self._younger, {}
            self._turn_at = now + self._window
        self._younger[key] = number

    def get(self, key: Key, now: float) -> int | None:
        """Return what was noted, if it is not forgotten."""
        if key in self._younger or key in self._elder:
            if now >= self._turn_at:
                self._grow_old(now)
            number = self._younger.get(key)
            return self._elder.get(key) if number is None else number
        return None

    def _grow_old(self, now: float) -> None:
        if now < self._turn_at + self._window:
            self._elder, self._younger = self._younger, {}
            self._turn_at += self._window
        else:
            self._elder, self._younger = {}, {}
            self._turn_at = now + self._window
