"""Conversion between frames and messages: one type for each valid combination of keys, fields in wire order.

Identifiers are strings regardless of their wire form (NQ-a03); `i` may contain several. `extra` contains the keys that
NQ does not assign, with their JSON text, to forward them unchanged (NQ-a09).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from fiveways.errors import Fault
from fiveways.protocols.nq import frames
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.frames import BadElement, Frame, FreeKeys, parse_id, parse_ids
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Payload

Ids = tuple[str, ...]
MAX_MISSING_NUMBERS: Final = 1024
"""Limit for the missing parts that a peer may request at once."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """Base class of the messages."""


class Request(Message, frozen=True):
    """`{t, r, d}`: a request; the same t and r again is a retransmission (NQ-07, NQ-13). No t: to the hub itself."""

    t: str
    r: str
    d: Payload | None = None
    v: bool | str = False
    s: str = ""
    extra: FreeKeys | None = None


class RequestPart(Message, frozen=True):
    """`{t, r, d, n, f}`: part n of a streamed request; the last part may lack d (NQ-a04)."""

    t: str
    r: str
    d: Payload | None
    n: int
    f: int | None = None
    v: bool | str = False
    s: str = ""
    extra: FreeKeys | None = None


class Poll(Message, frozen=True):
    """`{t, p}`: a question for the state of request t#p (NQ-a06)."""

    t: str
    p: str
    extra: FreeKeys | None = None


class Acceptance(Message, frozen=True):
    """`{a, i}`: request i is accepted; its backchannel is a (NQ-a01)."""

    a: str
    i: Ids
    extra: FreeKeys | None = None


class Answer(Message, frozen=True):
    """`{a, i, d}`: the complete answer (NQ-a04)."""

    a: str
    i: Ids
    d: Payload
    extra: FreeKeys | None = None


class AnswerPart(Message, frozen=True):
    """`{a, i, d, n, f}`: part n of a streamed answer; the last part may lack d or contain an error."""

    a: str
    i: Ids
    d: Payload | None
    e: ErrorObject | None
    n: int
    f: int | None = None
    extra: FreeKeys | None = None


class ErrorAnswer(Message, frozen=True):
    """`{a, i, e}` with e.fatal: the request failed (NQ-a07)."""

    a: str
    i: Ids
    d: Payload | None
    e: ErrorObject
    extra: FreeKeys | None = None


class Note(Message, frozen=True):
    """`{a, i, e}` without e.fatal: progress of a running request (NQ-a13)."""

    a: str
    i: Ids
    d: Payload | None
    e: ErrorObject
    extra: FreeKeys | None = None


class PollReply(Message, frozen=True):
    """`{a, i, e}` of type sys: pending, done or unknown (NQ-a06)."""

    a: str
    i: Ids
    e: ErrorObject
    extra: FreeKeys | None = None


class Ack(Message, frozen=True):
    """`{i}`: acknowledgement of the single answer on backchannel i (NQ-a02)."""

    i: Ids
    extra: FreeKeys | None = None


class Next(Message, frozen=True):
    """`{i, o}`: all parts below o arrived; with a parts of the streamed request i, else of the answer on i (NQ-a05)."""

    a: str
    i: Ids
    o: int
    extra: FreeKeys | None = None


class Missing(Message, frozen=True):
    """`{i, o: [...]}`: these parts are missing; a and i as in `Next` (NQ-a05)."""

    a: str
    i: Ids
    o: tuple[int, ...]
    extra: FreeKeys | None = None


class BackMessage(Message, frozen=True):
    """`{i, d}`, or with an e that is not fatal: a message on the backchannel (NQ-a02)."""

    i: Ids
    d: Payload | None
    e: ErrorObject | None = None
    extra: FreeKeys | None = None


class CancelRequest(Message, frozen=True):
    """`{i, e}` with e.fatal: a cancellation; before the acceptance t and i name the request (NQ-a02)."""

    t: str
    i: Ids
    e: ErrorObject
    extra: FreeKeys | None = None


class SystemNote(Message, frozen=True):
    """`{e}` alone: a note about the connection, not about a request."""

    e: ErrorObject
    extra: FreeKeys | None = None


class Farewell(Message, frozen=True):
    """`{e}` alone, of type sys and fatal: the sender closes the connection."""

    e: ErrorObject
    extra: FreeKeys | None = None


class Idle(Message, frozen=True):
    """`[]`: an empty packet that lets the peer send (NQ-a10)."""


class Bad(Message, frozen=True):
    """An invalid element, with the identifiers that could be read; the other elements are valid (NQ-a10)."""

    element: bytes
    fault: Fault
    code: str
    text: str
    rule: str
    r: str = ""
    a: str = ""
    i: Ids = ()


# Decoding.


def decode(packet: Packet, limits: Limits) -> list[Message]:
    """Return the messages of a packet; RemoteProtocolError if it is neither an object nor an array."""
    payload = frames.check_packet(packet, limits)
    parsed: Sequence[Frame] | None
    try:
        if payload[:1] == b"{":
            frame = frames.parse_frame(payload)
            if type(frame) is Frame:  # the common case: no free keys
                return [_read(frame, None, limits)]
            parsed = None if frame is None else (frame,)
        else:
            parsed = frames.parse_batch(payload, limits)
        if parsed is not None:
            return [
                _read(frame, None if type(frame) is Frame else frames.read_free_keys(frame, limits), limits)
                for frame in parsed
            ] or [Idle()]
    except BadElement:
        pass  # the general path below finds the invalid element
    return [_read_general(raw, limits) for raw in frames.split_elements(payload, limits)]


def _read_general(raw: bytes, limits: Limits) -> Message:
    try:
        frame, free = frames.parse_element(raw, limits)
        return _read(frame, free, limits)
    except BadElement as bad:
        return Bad(raw, bad.fault, bad.code, bad.text, bad.rule, **_readable_ids(raw, limits))


def _readable_ids(raw: bytes, limits: Limits) -> dict[str, Any]:
    """Return r, a and i as far as they can be read, to address the error."""
    ids: dict[str, Any] = {}
    with suppress(BadElement):
        keys = frames.read_keys(raw)
        for key in {"r", "a", "i"} & keys.keys():
            with suppress(BadElement):
                frame, _ = frames.parse_element(b'{"%b":%b}' % (key.encode(), bytes(keys[key])), limits)
                raw_id = getattr(frame, key)
                ids[key] = parse_ids(raw_id, limits) if key == "i" else parse_id(raw_id, limits, key)
    return ids


def _read(frame: Frame, free: FreeKeys | None, limits: Limits) -> Message:
    if frame.r is not UNSET:
        return _read_request(frame, frame.r, free, limits)
    if frame.p is not UNSET:
        if frame.a is not UNSET or frame.i is not UNSET:
            raise BadElement("a poll with keys of an answer", "NQ-a06")
        return Poll(frames.parse_target(frame, limits), parse_id(frame.p, limits, "p"), free)
    if frame.a is not UNSET:
        if frame.i is UNSET:
            raise BadElement("an answer without i", "NQ-a01")
        return _read_answer(frame, parse_id(frame.a, limits, "a"), parse_ids(frame.i, limits), free, limits)
    if frame.i is not UNSET:
        return _read_backchannel(frame, parse_ids(frame.i, limits), free, limits)
    if frame.e is not UNSET:
        error = frames.parse_error(frame)
        return (Farewell if error.fatal and error.type == "sys" else SystemNote)(error, free)
    raise BadElement("a message needs r, p, a, i or e", "NQ-13")


def _read_request(frame: Frame, r: str | int, free: FreeKeys | None, limits: Limits) -> Message:
    if not (frame.a is UNSET and frame.i is UNSET and frame.p is UNSET and frame.e is UNSET and frame.o is UNSET):
        raise BadElement("a request with keys of another message", "NQ-13")
    if type(r) is not str or not 0 < len(r) <= limits.max_id:
        r = parse_id(r, limits, "r")
    target = frames.parse_target(frame, limits)
    verbose = False if frame.v is UNSET else frame.v or False
    source = "" if frame.s is UNSET else frame.s
    body = None if frame.d is UNSET else Json(frames.check_raw(frame.d, limits))
    if frame.n is UNSET and frame.f is UNSET:
        return Request(target, r, body, verbose, source, free)
    n, f = frames.part_position(frame)
    part = None if n is None else RequestPart(target, r, body, n, f, verbose, source, free)
    return part or Request(target, r, body, verbose, source, free)


def _read_answer(frame: Frame, a: str, ids: Ids, free: FreeKeys | None, limits: Limits) -> Message:
    if frame.o is not UNSET:
        return _read_order(frame.o, a, ids, free)
    body = None if frame.d is UNSET else Json(frames.check_raw(frame.d, limits))
    if frame.e is not UNSET:
        error = frames.parse_error(frame)
        if error.type == "sys":
            return PollReply(a, ids, error, free)
        if not error.fatal:
            return Note(a, ids, body, error, free)
        if frame.n is UNSET:
            return ErrorAnswer(a, ids, body, error, free)
        n, f = frames.part_position(frame)
        if f != 0 or not n:
            raise BadElement("a fatal error before the end of its stream", "NQ-a04")
        return AnswerPart(a, ids, body, error, n, f, free)
    if frame.n is UNSET and frame.f is UNSET:
        return Acceptance(a, ids, free) if body is None else Answer(a, ids, body, free)
    n, f = frames.part_position(frame)
    if n is None and body is not None:
        return Answer(a, ids, body, free)
    return AnswerPart(a, ids, body, None, n or 0, f, free)


def _read_backchannel(frame: Frame, ids: Ids, free: FreeKeys | None, limits: Limits) -> Message:
    if frame.o is not UNSET:
        return _read_order(frame.o, "", ids, free)
    if frame.e is not UNSET:
        error = frames.parse_error(frame)
        if error.fatal:
            return CancelRequest(frames.parse_target(frame, limits), ids, error, free)
        return BackMessage(ids, None if frame.d is UNSET else Json(frames.check_raw(frame.d, limits)), error, free)
    if frame.d is not UNSET:
        return BackMessage(ids, Json(frames.check_raw(frame.d, limits)), None, free)
    return Ack(ids, free)


def _read_order(order: int | list[int], a: str, ids: Ids, free: FreeKeys | None) -> Message:
    numbers = order if isinstance(order, list) else [order]
    if not 0 < len(numbers) <= MAX_MISSING_NUMBERS or not all(0 < number <= frames.MAX_NUMBER for number in numbers):
        raise BadElement("o is neither a positive number nor an array of positive numbers", "NQ-a05")
    return Missing(a, ids, tuple(numbers), free) if isinstance(order, list) else Next(a, ids, order, free)


MESSAGES: Final = {kind.__name__: kind for kind in Message.__subclasses__()}
