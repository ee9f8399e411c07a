"""Serialization of messages as JSON objects, ready for a batch."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fiveways.protocols.nq import errors
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.frames import FreeKeys
from fiveways.protocols.nq.messages import (
    Acceptance,
    Ack,
    Answer,
    AnswerPart,
    BackMessage,
    Bad,
    CancelRequest,
    ErrorAnswer,
    Farewell,
    Idle,
    Ids,
    Message,
    Missing,
    Next,
    Note,
    Poll,
    PollReply,
    Request,
    RequestPart,
    SystemNote,
)
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

to_json: Final = msgspec.json.Encoder().encode


class FastAnswer(msgspec.Struct, gc=False):
    """An `Answer` to one request without free keys."""

    a: str
    i: str
    d: msgspec.Raw


def encode(message: Message) -> Packet:
    """Return a message as a packet of its own."""
    if type(message) is Idle:
        return Packet(b"[]")
    raw = write(message)
    return Packet(raw if raw[:1] == b"{" else b"[%b]" % raw)


def write(message: Message) -> bytes:
    """Return a message as a JSON object, ready for a batch."""
    raw = _WRITERS[type(message)](message)
    extra: FreeKeys | None = getattr(message, "extra", None)
    if not extra:
        return raw
    return raw[:-1] + b"".join(b",%b:%b" % (to_json(key), value.encode()) for key, value in extra.items()) + b"}"


def _write_ids(ids: Ids) -> bytes:
    return to_json(ids[0]) if len(ids) == 1 else to_json(ids)


def _write_request(m: Request) -> bytes:
    if m.t and m.d is not None and not m.v and not m.s:  # the common case
        return b'{"t":%b,"r":%b,"d":%b}' % (to_json(m.t), to_json(m.r), m.d.nq())
    return _write_request_start(m) + _write_options(m) + b"}"


def _write_options(message: Request | RequestPart) -> bytes:
    verbose = b',"v":%b' % to_json(message.v) if message.v else b""
    return verbose + b',"s":%b' % to_json(message.s) if message.s else verbose


def _write_request_start(message: Request | RequestPart) -> bytes:
    return b'{%b"r":%b%b' % (_write_optional(b"t", message.t), to_json(message.r), _write_body(message.d))


def _write_position(n: int, f: int | None) -> bytes:
    return b',"n":%d' % n if f is None else b',"n":%d,"f":%d' % (n, f)


def _write_answer_start(message: Acceptance | Answer | AnswerPart | ErrorAnswer | Note | PollReply) -> bytes:
    return answer_start(message.a, message.i)


def answer_start(a: str, ids: Ids) -> bytes:
    """Return the start of any message on the backchannel `a` of one or more requests."""
    return b'{"a":%b,"i":%b' % (to_json(a), _write_ids(ids))


def write_answer(start: bytes, body: Payload) -> bytes:
    """Return an answer without free keys from its `answer_start`."""
    return b'%b,"d":%b}' % (start, body.nq())


def _write_body(body: Payload | None, error: ErrorObject | None = None) -> bytes:
    data = b"" if body is None else b',"d":%b' % body.nq()
    return data if error is None else data + b',"e":%b' % errors.write(error)


def _write_order(message: Next | Missing) -> bytes:
    return b'{%b"i":%b,"o":%b}' % (_write_optional(b"a", message.a), _write_ids(message.i), to_json(message.o))


def _write_optional(key: bytes, name: str) -> bytes:
    return b'"%b":%b,' % (key, to_json(name)) if name else b""


_WRITERS: Final[dict[type[Message], Callable[[Any], bytes]]] = {
    Request: _write_request,
    RequestPart: lambda m: _write_request_start(m) + _write_position(m.n, m.f) + _write_options(m) + b"}",
    Poll: lambda m: b'{%b"p":%b}' % (_write_optional(b"t", m.t), to_json(m.p)),
    Acceptance: lambda m: _write_answer_start(m) + b"}",
    Answer: lambda m: write_answer(_write_answer_start(m), m.d),
    AnswerPart: lambda m: _write_answer_start(m) + _write_body(m.d, m.e) + _write_position(m.n, m.f) + b"}",
    ErrorAnswer: lambda m: _write_answer_start(m) + _write_body(m.d, m.e) + b"}",
    Note: lambda m: _write_answer_start(m) + _write_body(m.d, m.e) + b"}",
    PollReply: lambda m: _write_answer_start(m) + _write_body(None, m.e) + b"}",
    Ack: lambda m: b'{"i":%b}' % _write_ids(m.i),
    Next: _write_order,
    Missing: _write_order,
    BackMessage: lambda m: b'{"i":%b%b}' % (_write_ids(m.i), _write_body(m.d, m.e)),
    CancelRequest: lambda m: b'{%b"i":%b%b}' % (_write_optional(b"t", m.t), _write_ids(m.i), _write_body(None, m.e)),
    SystemNote: lambda m: b'{"e":%b}' % errors.write(m.e),
    Farewell: lambda m: b'{"e":%b}' % errors.write(m.e),
    Bad: lambda m: m.element,
}
