"""Frame <-> Message: the fifteen messages of the document, and those of applications."""

import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from fiveways.errors import LocalProtocolError, TooLarge
from fiveways.protocols.lrpm.cbor_frames import CBOR
from fiveways.protocols.lrpm.frames import NO_KIND_NAMES, NO_META, Encoding, Kind, KindNames, Meta
from fiveways.protocols.lrpm.json_frames import JSON
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload


class Message(msgspec.Struct, frozen=True, gc=False):
    """The root of all of them. Fields stand in the order of the wire."""


class Goodbye(Message, frozen=True, gc=False):
    """GOODBYE (1): the sender ends the session; any state."""

    reason: str
    meta: Meta = NO_META


class Hello(Message, frozen=True, gc=False):
    """HELLO (2): the client's opens a session, the server's establishes it."""

    body: Payload
    meta: Meta = NO_META


class Prove(Message, frozen=True, gc=False):
    """PROVE (3): the server asks for a proof."""

    body: Payload
    meta: Meta = NO_META


class Proof(Message, frozen=True, gc=False):
    """PROOF (4): the client's answer to PROVE."""

    body: Payload
    meta: Meta = NO_META


class Error(Message, frozen=True, gc=False):
    """ERROR (20): the request of that kind and id failed."""

    request_kind: int
    request_id: int
    error: str
    body: Payload
    meta: Meta = NO_META


class Cancel(Message, frozen=True, gc=False):
    """CANCEL (21): the answer to that request is no longer wanted; it has no id of its own."""

    request_id: int
    meta: Meta = NO_META


class Call(Message, frozen=True, gc=False):
    """CALL (40): run a procedure."""

    request_id: int
    procedure: str
    body: Payload
    meta: Meta = NO_META


class Result(Message, frozen=True, gc=False):
    """RESULT (41): what a call gave, or with `meta.part` a part of it, or with `meta.progress` how it is doing."""

    request_id: int
    body: Payload
    meta: Meta = NO_META


class Event(Message, frozen=True, gc=False):
    """EVENT (60): a publication, for one subscription."""

    publication_id: int
    subscription_id: int
    body: Payload
    meta: Meta = NO_META


class Publish(Message, frozen=True, gc=False):
    """PUBLISH (61): give this to all who subscribed."""

    request_id: int
    topic: str
    body: Payload
    meta: Meta = NO_META


class Published(Message, frozen=True, gc=False):
    """PUBLISHED (62): it was given on, under this id."""

    request_id: int
    publication_id: int
    meta: Meta = NO_META


class Subscribe(Message, frozen=True, gc=False):
    """SUBSCRIBE (63): send me what is published there."""

    request_id: int
    topic: str
    meta: Meta = NO_META


class Subscribed(Message, frozen=True, gc=False):
    """SUBSCRIBED (64): EVENTs will carry this id."""

    request_id: int
    subscription_id: int
    meta: Meta = NO_META


class Unsubscribe(Message, frozen=True, gc=False):
    """UNSUBSCRIBE (65): no more of this subscription."""

    request_id: int
    subscription_id: int
    meta: Meta = NO_META


class Unsubscribed(Message, frozen=True, gc=False):
    """UNSUBSCRIBED (66): it is over."""

    request_id: int
    meta: Meta = NO_META


class Application(Message, frozen=True, gc=False):
    """A kind from 127 to 255, whose meaning both ends agreed upon elsewhere."""

    kind: int
    fields: tuple[Payload, ...] = ()


MESSAGES_BY_KIND: Final[dict[int, type[Message]]] = {
    Kind.GOODBYE: Goodbye,
    Kind.HELLO: Hello,
    Kind.PROVE: Prove,
    Kind.PROOF: Proof,
    Kind.ERROR: Error,
    Kind.CANCEL: Cancel,
    Kind.CALL: Call,
    Kind.RESULT: Result,
    Kind.EVENT: Event,
    Kind.PUBLISH: Publish,
    Kind.PUBLISHED: Published,
    Kind.SUBSCRIBE: Subscribe,
    Kind.SUBSCRIBED: Subscribed,
    Kind.UNSUBSCRIBE: Unsubscribe,
    Kind.UNSUBSCRIBED: Unsubscribed,
}
MESSAGES: Final[dict[str, type]] = {message.__name__: message for message in MESSAGES_BY_KIND.values()} | {
    "Application": Application
}

_KIND_NUMBERS: Final[dict[type, int]] = {message: int(kind) for kind, message in MESSAGES_BY_KIND.items()}
_struct_fields: Final[Callable[[Any], tuple[Any, ...]]] = msgspec.structs.astuple


class Codec:
    """Packets to messages and back, in one of the two encodings; `longest` bounds the frames that are written."""

    def __init__(self, encoding: Encoding, longest: int = sys.maxsize) -> None:
        self.encoding = encoding
        self.max_frame = longest
        self.write_call = encoding.write_call
        self.write_result = encoding.write_result
        self._parse = encoding.parse_frame
        self._serialize = encoding.serialize_frame

    def decode(self, packet: Packet, limits: Limits, names: KindNames = NO_KIND_NAMES) -> Message:
        """Return the one message of a packet; RemoteProtocolError whatever is wrong with it.

        Every application's kind is read by its number; `names` are those that may also come by name.
        """
        kind, fields = self._parse(packet, limits, names)
        make = MESSAGES_BY_KIND.get(kind)
        return Application(kind, tuple(fields)) if make is None else make(*fields)

    def encode(self, message: object) -> Packet:
        """Write a message; Unrepresentable if its body cannot go in this encoding, TooLarge if it gets too long."""
        number = _KIND_NUMBERS.get(type(message))
        if number is not None:
            packet = self._serialize((number, _struct_fields(message)))
        elif isinstance(message, Application):
            packet = self._serialize((message.kind, message.fields))
        else:
            raise LocalProtocolError(f"{type(message).__name__} is no message of LRPM")
        return self.check_size(packet)

    def check_size(self, packet: Packet) -> Packet:
        """Return a frame that is not too long; TooLarge if it is."""
        if len(packet.payload) > self.max_frame:
            raise TooLarge(f"a frame of {len(packet.payload)} bytes is too large for LRPM")
        return packet


JSON_CODEC: Final = Codec(JSON)
CBOR_CODEC: Final = Codec(CBOR)
