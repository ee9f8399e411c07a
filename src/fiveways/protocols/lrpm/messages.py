"""Conversion between frames and messages: the fifteen messages of the spec, and application messages."""

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
    """Base class of the messages. The fields are in wire order."""


class Goodbye(Message, frozen=True, gc=False):
    """GOODBYE (1): the end of the session, in any state."""

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
    """PROOF (4): the client's response to PROVE."""

    body: Payload
    meta: Meta = NO_META


class Error(Message, frozen=True, gc=False):
    """ERROR (20): the request with that kind and id failed."""

    request_kind: int
    request_id: int
    error: str
    body: Payload
    meta: Meta = NO_META


class Cancel(Message, frozen=True, gc=False):
    """CANCEL (21): the response to that request is not needed any more; it has no id of its own."""

    request_id: int
    meta: Meta = NO_META


class Call(Message, frozen=True, gc=False):
    """CALL (40): a call of a procedure."""

    request_id: int
    procedure: str
    body: Payload
    meta: Meta = NO_META


class Result(Message, frozen=True, gc=False):
    """RESULT (41): the result of a call, or with `meta.part` a part of it, or with `meta.progress` progress."""

    request_id: int
    body: Payload
    meta: Meta = NO_META


class Event(Message, frozen=True, gc=False):
    """EVENT (60): a publication for one subscription."""

    publication_id: int
    subscription_id: int
    body: Payload
    meta: Meta = NO_META


class Publish(Message, frozen=True, gc=False):
    """PUBLISH (61): a publication for all subscribers of the topic."""

    request_id: int
    topic: str
    body: Payload
    meta: Meta = NO_META


class Published(Message, frozen=True, gc=False):
    """PUBLISHED (62): the response to PUBLISH with the publication's id."""

    request_id: int
    publication_id: int
    meta: Meta = NO_META


class Subscribe(Message, frozen=True, gc=False):
    """SUBSCRIBE (63): a request for the events of a topic."""

    request_id: int
    topic: str
    meta: Meta = NO_META


class Subscribed(Message, frozen=True, gc=False):
    """SUBSCRIBED (64): the response with the subscription's id, which its EVENTs contain."""

    request_id: int
    subscription_id: int
    meta: Meta = NO_META


class Unsubscribe(Message, frozen=True, gc=False):
    """UNSUBSCRIBE (65): a request to end a subscription."""

    request_id: int
    subscription_id: int
    meta: Meta = NO_META


class Unsubscribed(Message, frozen=True, gc=False):
    """UNSUBSCRIBED (66): the response to UNSUBSCRIBE."""

    request_id: int
    meta: Meta = NO_META


class Application(Message, frozen=True, gc=False):
    """A kind from 127 to 255 with a meaning defined by the application."""

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
    """Encoder and decoder of messages in one encoding; `max_frame` limits the encoded frames."""

    def __init__(self, encoding: Encoding, max_frame: int = sys.maxsize) -> None:
        self.encoding = encoding
        self.max_frame = max_frame
        self.write_call = encoding.write_call
        self.write_result = encoding.write_result
        self._parse = encoding.parse_frame
        self._serialize = encoding.serialize_frame

    def decode(self, packet: Packet, limits: Limits, names: KindNames = NO_KIND_NAMES) -> Message:
        """Return the message in a packet; RemoteProtocolError if it is invalid.

        Every application kind is accepted by number; `names` are those accepted by name.
        """
        kind, fields = self._parse(packet, limits, names)
        message_type = MESSAGES_BY_KIND.get(kind)
        return Application(kind, tuple(fields)) if message_type is None else message_type(*fields)

    def encode(self, message: object) -> Packet:
        """Return the packet of a message.

        Raises:
            Unrepresentable: the encoding cannot express the body.
            TooLarge: the frame exceeds `max_frame`.
        """
        number = _KIND_NUMBERS.get(type(message))
        if number is not None:
            packet = self._serialize((number, _struct_fields(message)))
        elif isinstance(message, Application):
            packet = self._serialize((message.kind, message.fields))
        else:
            raise LocalProtocolError(f"{type(message).__name__} is not an LRPM message")
        return self.check_size(packet)

    def check_size(self, packet: Packet) -> Packet:
        """Return the frame; TooLarge if it exceeds `max_frame`."""
        if len(packet.payload) > self.max_frame:
            raise TooLarge(f"a frame of {len(packet.payload)} bytes is too large for LRPM")
        return packet


JSON_CODEC: Final = Codec(JSON)
CBOR_CODEC: Final = Codec(CBOR)
