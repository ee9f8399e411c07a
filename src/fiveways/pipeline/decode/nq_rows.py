"""Rows of NQ messages. A frame may contain several messages, and one message may concern several requests."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from fiveways.errors import Malformed
from fiveways.model import names, topics
from fiveways.pipeline.decode import message_row
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, MessageRow, canonical_topic
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.protocols.nq.frames import FreeKeys
from fiveways.wire import strict_json
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload

STYLES: Final = message_row.naming_styles(names.NQ, topics.NQ)


def read(packet: Packet) -> list[nq.Message]:
    """Decode the messages of a frame, including invalid ones."""
    return nq.decode(packet, DECODE_LIMITS)


def to_rows(message: nq.Message, *, from_hub: bool) -> list[MessageRow]:
    """Convert a message to rows, one for each request that it concerns."""
    return list(_READERS[type(message)](message, from_hub))


def fold_target(target: str) -> str | None:
    """Return the folded name of a target; None if the name is invalid."""
    return message_row.fold_or_none(target, names.NQ) if target else None


def error_text(bad: nq.Bad) -> str:
    """Return the error text of an invalid message."""
    return f"{bad.text} [{bad.rule}]"


def _body_size(body: Payload | None) -> int:
    return len(getattr(body, "raw", b""))


def _request(message: nq.Request, from_hub: bool) -> Iterator[MessageRow]:
    target, size = message.t, _body_size(message.d)
    # The hub never forwards a caller's own key `topic`, so in its requests the key is from the hub itself.
    if from_hub and message.extra is not None and "topic" in message.extra:
        yield MessageRow("event", message.r, target, topic=_event_topic(message.extra), body_size=size)
    elif from_hub and target == bridge.CLOSED_TARGET:
        yield MessageRow("topic_closed", message.r, target, body_size=size)
    else:
        yield _call(message.t, message.r, message.d)


def _call(target: str, r: str, body: Payload | None) -> MessageRow:
    row = message_row.call_row(r, target, fold_target(target), body or NULL, STYLES, _body_size(body))
    return row if target else row._replace(target=None)


def _request_part(message: nq.RequestPart, _from_hub: bool) -> Iterator[MessageRow]:
    if message.n <= 1:
        yield _call(message.t, message.r, message.d)
    else:
        yield MessageRow("call_part", message.r, message.t or None, body_size=_body_size(message.d))


def _event_topic(free: FreeKeys) -> str | None:
    try:
        written = strict_json.parse_text(free["topic"])
    except Malformed:
        return None
    return canonical_topic(written, topics.NQ) if isinstance(written, str) else None


def _answer(message: nq.Answer, _from_hub: bool) -> Iterator[MessageRow]:
    for r in message.i:
        yield message_row.result_row(r, message.a, _body_size(message.d))


def _answer_part(message: nq.AnswerPart, _from_hub: bool) -> Iterator[MessageRow]:
    for r in message.i:
        if message.e is not None:
            yield _failure(r, message.a, message.e, message.d)
        elif message.f == 0:
            yield message_row.result_row(r, message.a, _body_size(message.d))
        else:
            yield MessageRow("part", r, message.a, body_size=_body_size(message.d))


def _error(message: nq.ErrorAnswer, _from_hub: bool) -> Iterator[MessageRow]:
    for r in message.i:
        yield _failure(r, message.a, message.e, message.d)


def _failure(r: str, a: str, error: ErrorObject, body: Payload | None) -> MessageRow:
    return message_row.failure_row(
        r, bridge.failure_from_error("", error, body).reason, error.code, a, _body_size(body)
    )


def _request_rows(kind: str) -> Callable[[Any, bool], Iterator[MessageRow]]:
    """Return a reader for messages with request `i` and backchannel `a`."""

    def rows(message: Any, _from_hub: bool) -> Iterator[MessageRow]:  # noqa: ANN401  any with a and i
        for r in message.i:
            yield MessageRow(kind, r, message.a or None, body_size=_body_size(getattr(message, "d", None)))

    return rows


def _backchannel_rows(kind: str) -> Callable[[Any, bool], Iterator[MessageRow]]:
    """Return a reader for messages with backchannel `i`, which the request's answers have as target."""

    def rows(message: Any, _from_hub: bool) -> Iterator[MessageRow]:  # noqa: ANN401  any with i
        for a in message.i:
            yield MessageRow(kind, None, a, body_size=_body_size(getattr(message, "d", None)))

    return rows


def _part_rows(kind: str) -> Callable[[Any, bool], Iterator[MessageRow]]:
    """Return a reader for messages about parts: with `a` those of request `i`, else those of its answer."""
    of_request, of_answer = _request_rows(kind), _backchannel_rows(kind)
    return lambda message, from_hub: (of_request if message.a else of_answer)(message, from_hub)


def _cancel(message: nq.CancelRequest, _from_hub: bool) -> Iterator[MessageRow]:
    for identifier in message.i:
        # A request is named by its id before acceptance, by its backchannel after it.
        yield (
            MessageRow("cancel", identifier, message.t, body_size=0)
            if message.t
            else MessageRow("cancel", None, identifier, body_size=0)
        )


def _note(message: nq.SystemNote, from_hub: bool) -> Iterator[MessageRow]:
    error = message.e
    kind = "error" if error.fatal else "other"
    if error.type == "sys" and error.note in ("peer", "hello"):
        kind = "welcome" if from_hub else "hello"
    yield MessageRow(kind, code=error.code or None, body_size=0)


def _farewell(message: nq.Farewell, _from_hub: bool) -> Iterator[MessageRow]:
    yield MessageRow("goodbye", code=message.e.code or None, body_size=0)


def _poll(message: nq.Poll, _from_hub: bool) -> Iterator[MessageRow]:
    yield MessageRow("other", message.p, message.t or None, body_size=0)


def _idle(_message: nq.Idle, _from_hub: bool) -> Iterator[MessageRow]:
    yield MessageRow("ping", body_size=0)


def _bad(_message: nq.Bad, _from_hub: bool) -> Iterator[MessageRow]:
    yield from ()


_READERS: Final[dict[type, Callable[[Any, bool], Iterator[MessageRow]]]] = {
    nq.Request: _request,
    nq.RequestPart: _request_part,
    nq.Poll: _poll,
    nq.Acceptance: _request_rows("accepted"),
    nq.Answer: _answer,
    nq.AnswerPart: _answer_part,
    nq.ErrorAnswer: _error,
    nq.Note: _request_rows("progress"),
    nq.PollReply: _request_rows("other"),
    nq.Ack: _backchannel_rows("ack"),
    nq.Next: _part_rows("ack"),
    nq.Missing: _part_rows("other"),
    nq.BackMessage: _backchannel_rows("other"),
    nq.CancelRequest: _cancel,
    nq.SystemNote: _note,
    nq.Farewell: _farewell,
    nq.Idle: _idle,
    nq.Bad: _bad,
}
