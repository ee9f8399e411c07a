"""Conversion between frames and messages of UMQ 1.0.0. Only `Call` and `Discover` are specific to this dialect."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError
from fiveways.protocols.umq.frames import parse_frame, serialize_frame
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

_CONTROLS: Final = frozenset(map(chr, range(32)))


class Call(UmqMessage, frozen=True):
    """`M<id>`, method name, arguments."""

    id: str
    method: str
    payload: str = ""
    count: int = 0


class Discover(UmqMessage, frozen=True):
    """`?<id>`, name: empty to list everything, a route to list it, a method for its documentation."""

    id: str
    name: str = ""
    count: int = 0


def decode(packet: Packet, limits: Limits) -> UmqMessage:
    """Return the message in a packet; RemoteProtocolError if it is invalid."""
    if not packet.is_text:
        return read_binary(packet)
    kind, identifier, payload, count = parse_frame(packet, limits)
    reader = _WITH_ID.get(kind)
    if reader is None:
        reader = _ID_OPTIONAL.get(kind)
        if reader is None:
            raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"type {kind!r}", "UMQ1-a11")
    elif not identifier:
        raise RemoteProtocolError(Fault.MALFORMED, f"{kind!r} without an identifier", "UMQ1-a03")
    return reader(identifier, payload, count)


def _read_call(identifier: str, payload: str, count: int) -> Call:
    method, _, arguments = payload.partition("\n")
    return Call(identifier, method, arguments, count)


def _read_callback(identifier: str, payload: str, count: int) -> Callback:
    token, _, arguments = payload.partition("\n")
    return Callback(identifier, token, arguments, count)


def _read_error(identifier: str, payload: str, count: int) -> Error | Fatal:
    return Error(identifier, payload, count) if identifier else Fatal(payload, count)


def _read_not_run(identifier: str, payload: str, count: int) -> NotRun | Fatal:
    return NotRun(identifier, payload, count) if identifier else Fatal(payload, count)


def _read_set(identifier: str, payload: str, count: int) -> SetVariable:
    return SetVariable(_read_variable_name(identifier), payload, count)


def _read_unset(identifier: str, _payload: str, count: int) -> UnsetVariable:
    return UnsetVariable(_read_variable_name(identifier), count)


def is_variable_name(name: str) -> bool:
    """Return whether a variable may have that name."""
    return bool(name) and _CONTROLS.isdisjoint(name)


def _read_variable_name(name: str) -> str:
    if not is_variable_name(name):
        raise RemoteProtocolError(Fault.MALFORMED, "a control character in a variable name", "UMQ1-a16")
    return name


_WITH_ID: Final[dict[str, Callable[[str, str, int], UmqMessage]]] = {
    "M": _read_call,
    "R": Result,
    "T": TopicUpdate,
    "C": _read_callback,
    "S": _read_set,
    "X": _read_unset,
    "?": Discover,
    "U": lambda identifier, _payload, count: Unsubscribe(identifier, count),
    "Z": lambda identifier, _payload, count: TopicClose(identifier, count),
    "H": Hello,
    "W": Welcome,
}
_ID_OPTIONAL: Final[dict[str, Callable[[str, str, int], UmqMessage]]] = {
    "E": _read_error,
    "!": _read_not_run,
    "-": lambda _identifier, payload, count: AttachmentError(payload, count),
}


def encode(message: UmqMessage) -> Packet:
    """Return a message as the packet that existing peers expect."""
    return _WRITERS[type(message)](message)


def _write_call(message: Call) -> Packet:
    return serialize_frame("M", message.id, f"{check_one_line(message.method)}\n{message.payload}", message.count)


def _write_callback(message: Callback) -> Packet:
    return serialize_frame("C", message.id, f"{check_one_line(message.callback)}\n{message.payload}", message.count)


def _write_set(message: SetVariable) -> Packet:
    return serialize_frame("S", _write_variable_name(message.name), message.payload, message.count)


def _write_unset(message: UnsetVariable) -> Packet:
    return serialize_frame("X", _write_variable_name(message.name), "", message.count)


def check_one_line(name: str) -> str:
    """Return the name; LocalProtocolError if it contains a line feed."""
    if "\n" in name:
        raise LocalProtocolError(f"UMQ cannot write the name {name!r}")
    return name


def _write_variable_name(name: str) -> str:
    if not is_variable_name(name):
        raise LocalProtocolError(f"UMQ cannot write the variable name {name!r}")
    return name


_WRITERS: Final[dict[type[UmqMessage], Callable[[Any], Packet]]] = {
    Data: write_binary,
    Call: _write_call,
    Result: lambda message: serialize_frame("R", message.id, message.payload, message.count),
    Callback: _write_callback,
    Error: lambda message: serialize_frame("E", message.id, message.text, message.count),
    NotRun: lambda message: serialize_frame("!", message.id, message.text, message.count),
    Discover: lambda message: serialize_frame("?", message.id, message.name, message.count),
    TopicUpdate: lambda message: serialize_frame("T", message.id, message.payload, message.count),
    TopicClose: lambda message: serialize_frame("Z", message.id, "", message.count),
    Unsubscribe: lambda message: serialize_frame("U", message.id, "", message.count),
    SetVariable: _write_set,
    UnsetVariable: _write_unset,
    AttachmentError: lambda message: serialize_frame("-", "", message.text, message.count),
    Hello: lambda message: serialize_frame("H", message.version, message.payload, message.count),
    Welcome: lambda message: serialize_frame("W", message.version, message.payload, message.count),
    Fatal: lambda message: serialize_frame("E", "", message.text, message.count),
}

MESSAGES: Final[dict[str, type]] = {kind.__name__: kind for kind in _WRITERS}
