"""What is remembered of requests: those open in either direction, part by part, and for a while those that are over."""

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

import msgspec

from fiveways.errors import LocalProtocolError, Malformed
from fiveways.model.messages import Call, Discover, Part, Result, Word
from fiveways.protocols import builtins
from fiveways.protocols.mqtt_rpc.bridge import REQUEST, RESPONSE, STYLES, Codec
from fiveways.wire.payload import NULL, Payload

Key = TypeVar("Key", bound=Hashable)


class OpenRequest(msgspec.Struct, gc=False):
    """A request without a final answer."""

    hub_id: str
    topic: str
    correlation_id: int
    kind: str
    """The method, as the Request's type names it."""
    codec: Codec
    streams: bool
    """Whether the answer may come in parts."""
    more: bool
    """Whether parts of the request may follow."""
    expires_at: float

    def write(self, body: Payload | None, direction: str) -> bytes | None:
        """Return a body as bytes; Unrepresentable if there are none for it."""
        return None if body is None else self.codec.to_wire(self.topic, self.kind, body, direction)


class Served(OpenRequest, gc=False):
    """A request that came in."""

    parts: int = 1
    echoes: int = 0
    """Responses of ours that the broker may yet send back to us."""

    def read(self, method: str, spelling: str, value: bytes, timeout: float | None) -> Word:
        """Return the word that it means; Malformed or BadArguments if its body is not what it should be."""
        body = self.codec.from_wire(self.topic, self.kind, value, REQUEST)
        if method.startswith("callback."):
            token = self.kind.rpartition(".")[2]
            return Call(self.hub_id, token.lower(), body, token, (), True, timeout, self.more, self.streams)
        if method.startswith("hub."):
            word = builtins.read(self.hub_id, method, body, STYLES)
            if word is not None:
                return word
        return Call(self.hub_id, method, body, spelling, (), False, timeout, self.more, self.streams)

    def read_part(self, value: bytes, last: bool) -> Part:
        """Return one more element; Malformed if its body is not what it should be."""
        return Part(self.hub_id, self.codec.from_wire(self.topic, self.kind, value, REQUEST), last)


class Asking(OpenRequest, gc=False):
    """A request of ours."""

    word: type[Word]
    """What it says: Call, or a word for which there is a built-in method."""
    parts: int = 0

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


def expiry(timeout: float | None, now: float) -> float:
    """When a request with this timeout runs out of time."""
    return inf if timeout is None else now + timeout


class Pending:
    """Our open requests, found by the wire's id or by the hub's."""

    __slots__ = ("_by_hub_id", "_by_number", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_number: dict[int, Asking] = {}
        self._by_hub_id: dict[str, Asking] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def check_room(self, hub_id: str) -> None:
        """LocalProtocolError if no request may be opened under this id."""
        if hub_id in self._by_hub_id:
            raise LocalProtocolError(f"request {hub_id} is open already")
        if len(self._by_number) >= self._most:
            raise LocalProtocolError("too many requests on this broker are open")

    def open(self, asking: Asking) -> None:
        """Wait for the answer to a request."""
        self._by_number[asking.correlation_id] = asking
        self._by_hub_id[asking.hub_id] = asking

    def close(self, asking: Asking) -> None:
        """Wait for it no longer."""
        del self._by_number[asking.correlation_id]
        del self._by_hub_id[asking.hub_id]

    def answered_by(self, number: int, topic: str) -> Asking | None:
        """Return the request that a Response under this id on this topic answers (MQRPC-02)."""
        asking = self._by_number.get(number)
        return asking if asking is not None and asking.topic == topic else None

    def named(self, hub_id: str) -> Asking | None:
        """Return the request that the hub calls so."""
        return self._by_hub_id.get(hub_id)

    def all(self) -> list[Asking]:
        """Return every open request."""
        return list(self._by_number.values())


class Recent(Generic[Key]):
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
