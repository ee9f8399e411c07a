"""Frame <-> Message: the types of UMQ 1.0.0. All but the call and the discover message are those of the family."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.protocols.umq.frames import Frame, parse_frame
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
    """`?<id>`, name: nothing for a list, a route for its list, a method for its documentation."""

    id: str
    name: str = ""
    count: int = 0


def decode(packet: Packet, limits: Limits) -> UmqMessage:
    """The message in a packet; RemoteProtocolError whatever is wrong with it."""
    if not packet.is_text:
        return Data(packet.payload)
    frame = parse_frame(packet, limits)
    reader = _WITH_ID.get(frame.kind)
    if reader is not None:
        if not frame.id:
            raise RemoteProtocolError(Fault.MALFORMED, f"{frame.kind!r} without an identifier", "UMQ1-a03")
        return reader(frame)
    reader = _ID_OPTIONAL.get(frame.kind)
    if reader is None:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"type {frame.kind!r}", "UMQ1-a11")
    return reader(frame)


def _read_call(frame: Frame) -> Call:
    method, _, arguments = frame.payload.partition("\n")
    return Call(frame.id, method, arguments, frame.count)


def _read_callback(frame: Frame) -> Callback:
    token, _, arguments = frame.payload.partition("\n")
    return Callback(frame.id, token, arguments, frame.count)


def _read_error(frame: Frame) -> Error | Fatal:
    return Error(frame.id, frame.payload, frame.count) if frame.id else Fatal(frame.payload, frame.count)


def _read_not_run(frame: Frame) -> NotRun | Fatal:
    return NotRun(frame.id, frame.payload, frame.count) if frame.id else Fatal(frame.payload, frame.count)


def _read_set(frame: Frame) -> SetVariable:
    return SetVariable(_variable(frame.id), frame.payload, frame.count)


def _read_unset(frame: Frame) -> UnsetVariable:
    return UnsetVariable(_variable(frame.id), frame.count)


def _variable(name: str) -> str:
    if not _CONTROLS.isdisjoint(name):
        raise RemoteProtocolError(Fault.MALFORMED, "a control character in a variable's name", "UMQ1-a16")
    return name


_WITH_ID: Final[dict[str, Callable[[Frame], UmqMessage]]] = {
    "M": _read_call,
    "R": lambda frame: Result(frame.id, frame.payload, frame.count),
    "T": lambda frame: TopicUpdate(frame.id, frame.payload, frame.count),
    "C": _read_callback,
    "S": _read_set,
    "X": _read_unset,
    "?": lambda frame: Discover(frame.id, frame.payload, frame.count),
    "U": lambda frame: Unsubscribe(frame.id, frame.count),
    "Z": lambda frame: TopicClose(frame.id, frame.count),
    "H": lambda frame: Hello(frame.id, frame.payload, frame.count),
    "W": lambda frame: Welcome(frame.id, frame.payload, frame.count),
}
_ID_OPTIONAL: Final[dict[str, Callable[[Frame], UmqMessage]]] = {
    "E": _read_error,
    "!": _read_not_run,
    "-": lambda frame: AttachmentError(frame.payload, frame.count),
}


def encode(message: UmqMessage) -> Packet:
    """One message as the packet that existing peers expect."""
    if type(message) is Data:
        return Packet(message.data, is_text=False)
    text = _WRITERS[type(message)](message)
    if message.count:
        text = f"A{message.count}\n{text}"
    try:
        return Packet(text.encode())
    except UnicodeEncodeError as exc:
        raise Unrepresentable("lone surrogate in a text") from exc


def _write_call(message: Call) -> str:
    return f"M{message.id}\n{_one_line(message.method)}\n{message.payload}"


def _write_callback(message: Callback) -> str:
    return f"C{message.id}\n{_one_line(message.callback)}\n{message.payload}"


def _write_set(message: SetVariable) -> str:
    return f"S{_writable(message.name)}\n{message.payload}"


def _write_unset(message: UnsetVariable) -> str:
    return f"X{_writable(message.name)}"


def _one_line(name: str) -> str:
    if "\n" in name:
        raise LocalProtocolError(f"UMQ cannot write the name {name!r}")
    return name


def _writable(name: str) -> str:
    if not name or not _CONTROLS.isdisjoint(name):
        raise LocalProtocolError(f"UMQ cannot write the variable name {name!r}")
    return name


# The line feed is left out only where there is never a payload (UMQ1-a05).
_WRITERS: Final[dict[type[UmqMessage], Callable[[Any], str]]] = {
    Call: _write_call,
    Result: lambda message: f"R{message.id}\n{message.payload}",
    Callback: _write_callback,
    Error: lambda message: f"E{message.id}\n{message.text}",
    NotRun: lambda message: f"!{message.id}\n{message.text}",
    Discover: lambda message: f"?{message.id}\n{message.name}",
    TopicUpdate: lambda message: f"T{message.id}\n{message.payload}",
    TopicClose: lambda message: f"Z{message.id}",
    Unsubscribe: lambda message: f"U{message.id}",
    SetVariable: _write_set,
    UnsetVariable: _write_unset,
    AttachmentError: lambda message: f"-\n{message.text}",
    Hello: lambda message: f"H{message.version}\n{message.payload}",
    Welcome: lambda message: f"W{message.version}\n{message.payload}",
    Fatal: lambda message: f"E\n{message.text}",
}

MESSAGES: Final[dict[str, type]] = {"Data": Data} | {kind.__name__: kind for kind in _WRITERS}
