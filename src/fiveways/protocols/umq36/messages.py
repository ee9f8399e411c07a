"""Frame <-> Message: the commands of UMQ36. All but the call are those of the family."""

from collections.abc import Callable
from typing import Any, Final

from fiveways.errors import Fault, LocalProtocolError, RemoteProtocolError, Unrepresentable
from fiveways.protocols.umq36.frames import Frame, canonical, parse_frame
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
from fiveways.wire import base36
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


class Call(UmqMessage, frozen=True):
    """`C` id `:` payload. What is called, and with what, is up to the payload."""

    id: str
    payload: str = ""
    count: int = 0


def decode(packet: Packet, limits: Limits) -> UmqMessage:
    """The message in a packet; RemoteProtocolError whatever is wrong with it."""
    if not packet.is_text:
        return Data(packet.payload)
    frame = parse_frame(packet, limits)
    reader = _WITH_ATTACHMENTS.get(frame.command)
    if reader is not None:
        return reader(frame)
    reader = _WITHOUT_ATTACHMENTS.get(frame.command)
    if reader is None:
        raise RemoteProtocolError(Fault.UNKNOWN_KIND, f"command {frame.command!r}", "UMQ36-a07")
    if frame.count:
        raise RemoteProtocolError(Fault.MALFORMED, f"attachments on {frame.command!r}", "UMQ36-a17")
    return reader(frame)


def _read_callback(frame: Frame) -> Callback:
    token, colon, argument = frame.payload.partition(":")
    if not colon:
        raise RemoteProtocolError(Fault.MALFORMED, "a callback without a second ':'", "UMQ36-a07")
    return Callback(frame.id, canonical(token), argument, frame.count)


def _read_set(frame: Frame) -> SetVariable:
    name, equals, value = frame.payload.partition("=")
    if not equals or not name:
        raise RemoteProtocolError(Fault.MALFORMED, "an attribute without name and '='", "UMQ36-a07")
    return SetVariable(name, value, frame.count)


def _read_unset(frame: Frame) -> UnsetVariable:
    if not frame.payload:
        raise RemoteProtocolError(Fault.MALFORMED, "an attribute without name", "UMQ36-a07")
    return UnsetVariable(frame.payload)


_WITH_ATTACHMENTS: Final[dict[str, Callable[[Frame], UmqMessage]]] = {
    "C": lambda frame: Call(frame.id, frame.payload, frame.count),
    "R": lambda frame: Result(frame.id, frame.payload, frame.count),
    "B": _read_callback,
    "T": lambda frame: TopicUpdate(frame.id, frame.payload, frame.count),
    "S": _read_set,
    "H": lambda frame: Hello(frame.id, frame.payload, frame.count),
    "W": lambda frame: Welcome(frame.id, frame.payload, frame.count),
}
_WITHOUT_ATTACHMENTS: Final[dict[str, Callable[[Frame], UmqMessage]]] = {
    "E": lambda frame: Error(frame.id, frame.payload),
    # Not in the document, but existing peers send it (UMQ36-a09).
    "!": lambda frame: NotRun(frame.id, frame.payload),
    "-": lambda frame: AttachmentError(frame.payload),
    "D": lambda frame: TopicClose(frame.id),
    "U": lambda frame: Unsubscribe(frame.id),
    "X": _read_unset,
    "F": lambda frame: Fatal(frame.payload),
}


def encode(message: UmqMessage) -> Packet:
    """One message as the packet that existing peers expect."""
    if type(message) is Data:
        return Packet(message.data, is_text=False)
    text = _WRITERS[type(message)](message)
    if message.count:
        text = f"A{base36.write(message.count)}:{text}"
    try:
        return Packet(text.encode())
    except UnicodeEncodeError as exc:
        raise Unrepresentable("lone surrogate in a text") from exc


def _write_set(message: SetVariable) -> str:
    if "=" in message.name or not message.name:
        raise LocalProtocolError(f"UMQ36 cannot write the attribute name {message.name!r}")
    return f"S:{message.name}={message.payload}"


def _write_unset(message: UnsetVariable) -> str:
    if not message.name:
        raise LocalProtocolError("UMQ36 cannot write an empty attribute name")
    return f"X:{message.name}"


def _write_not_run(_message: NotRun) -> str:
    raise LocalProtocolError("existing peers do not understand '!' (UMQ36-a09): say E")


# Unused identifiers as the document prints them: zero behind F, nothing behind -, S and X (UMQ36-a02).
_WRITERS: Final[dict[type[UmqMessage], Callable[[Any], str]]] = {
    Call: lambda message: f"C{message.id}:{message.payload}",
    Result: lambda message: f"R{message.id}:{message.payload}",
    Callback: lambda message: f"B{message.id}:{message.callback}:{message.payload}",
    Error: lambda message: f"E{message.id}:{message.text}",
    NotRun: _write_not_run,
    TopicUpdate: lambda message: f"T{message.id}:{message.payload}",
    TopicClose: lambda message: f"D{message.id}:",
    Unsubscribe: lambda message: f"U{message.id}:",
    SetVariable: _write_set,
    UnsetVariable: _write_unset,
    AttachmentError: lambda message: f"-:{message.text}",
    Hello: lambda message: f"H{message.version}:{message.payload}",
    Welcome: lambda message: f"W{message.version}:{message.payload}",
    Fatal: lambda message: f"F0:{message.text}",
}

MESSAGES: Final[dict[str, type]] = {"Data": Data} | {kind.__name__: kind for kind in _WRITERS}
