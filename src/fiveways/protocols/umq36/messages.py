"""Conversion between frames and messages of UMQ36. Only `Call` is specific to this dialect."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError
from fiveways.protocols.umq36.frames import canonical_id, parse_frame, serialize_frame
from fiveways.protocols.umq_family.frames import read_binary, write_binary
from fiveways.protocols.umq_family.messages import (
    AttachmentError,
    Callback,
    Data,
    Error,
    Fatal,
    Hello,
    NotRun,
    Result,
    SetVariable,
    TopicClose,
    TopicUpdate,
    UmqMessage,
    UnsetVariable,
    Unsubscribe,
    Welcome,
)
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


class Call(UmqMessage, frozen=True):
    """`C` id `:` payload. The payload contains the method and the arguments."""

    id: str
    payload: str = ""
    count: int = 0


def decode(packet: Packet, limits: Limits) -> UmqMessage:
    """Return the message in a packet; RemoteProtocolError if it is invalid."""
    if not packet.is_text:
        return read_binary(packet)
    command, identifier, payload, count = parse_frame(packet, limits)
    reader = _WITH_ATTACHMENTS.get(command)
    if reader is not None:
        return reader(identifier, payload, count)
    bare_reader = _WITHOUT_ATTACHMENTS.get(command)
    if bare_reader is None:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"command {command!r}", "UMQ36-a07")
    if count:
        raise RemoteProtocolError(Fault.MALFORMED, f"attachments on {command!r}", "UMQ36-a17")
    return bare_reader(identifier, payload)


def _read_callback(identifier: str, payload: str, count: int) -> Callback:
    token, colon, argument = payload.partition(":")
    if not colon:
        raise RemoteProtocolError(Fault.MALFORMED, "a callback without a second ':'", "UMQ36-a07")
    return Callback(identifier, canonical_id(token), argument, count)


def _read_set(_identifier: str, payload: str, count: int) -> SetVariable:
    name, equals, value = payload.partition("=")
    if not equals or not name:
        raise RemoteProtocolError(Fault.MALFORMED, "an attribute without name and '='", "UMQ36-a07")
    return SetVariable(name, value, count)


def _read_unset(_identifier: str, payload: str) -> UnsetVariable:
    if not payload:
        raise RemoteProtocolError(Fault.MALFORMED, "an attribute without name", "UMQ36-a07")
    return UnsetVariable(payload)


_WITH_ATTACHMENTS: Final[dict[str, Callable[[str, str, int], UmqMessage]]] = {
    "C": Call,
    "R": Result,
    "B": _read_callback,
    "T": TopicUpdate,
    "S": _read_set,
    "H": Hello,
    "W": Welcome,
}
_WITHOUT_ATTACHMENTS: Final[dict[str, Callable[[str, str], UmqMessage]]] = {
    "E": Error,
    # Not in the spec, but existing peers send it (UMQ36-a09).
    "!": NotRun,
    "-": lambda _identifier, payload: AttachmentError(payload),
    "D": lambda identifier, _payload: TopicClose(identifier),
    "U": lambda identifier, _payload: Unsubscribe(identifier),
    "X": _read_unset,
    "F": lambda _identifier, payload: Fatal(payload),
}


def encode(message: UmqMessage) -> Packet:
    """Return a message as the packet that existing peers expect."""
    return _WRITERS[type(message)](message)


def _write_set(message: SetVariable) -> Packet:
    if "=" in message.name or not message.name:
        raise LocalProtocolError(f"UMQ36 cannot write the attribute name {message.name!r}")
    return serialize_frame("S", "", f"{message.name}={message.payload}", message.count)


def _write_unset(message: UnsetVariable) -> Packet:
    if not message.name:
        raise LocalProtocolError("UMQ36 cannot write an empty attribute name")
    return serialize_frame("X", "", message.name, message.count)


# Unused identifiers have the form of the spec: zero after F, nothing after -, S and X (UMQ36-a02).
_WRITERS: Final[dict[type[UmqMessage], Callable[[Any], Packet]]] = {
    Data: write_binary,
    Call: lambda message: serialize_frame("C", message.id, message.payload, message.count),
    Result: lambda message: serialize_frame("R", message.id, message.payload, message.count),
    Callback: lambda message: serialize_frame("B", message.id, f"{message.callback}:{message.payload}", message.count),
    Error: lambda message: serialize_frame("E", message.id, message.text, message.count),
    NotRun: lambda message: serialize_frame("!", message.id, message.text, message.count),
    TopicUpdate: lambda message: serialize_frame("T", message.id, message.payload, message.count),
    TopicClose: lambda message: serialize_frame("D", message.id, "", message.count),
    Unsubscribe: lambda message: serialize_frame("U", message.id, "", message.count),
    SetVariable: _write_set,
    UnsetVariable: _write_unset,
    AttachmentError: lambda message: serialize_frame("-", "", message.text, message.count),
    Hello: lambda message: serialize_frame("H", message.version, message.payload, message.count),
    Welcome: lambda message: serialize_frame("W", message.version, message.payload, message.count),
    Fatal: lambda message: serialize_frame("F", "0", message.text, message.count),
}

MESSAGES: Final[dict[str, type]] = {kind.__name__: kind for kind in _WRITERS}
