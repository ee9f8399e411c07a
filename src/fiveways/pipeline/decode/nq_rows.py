"""What the messages of NQ tell. A frame may hold several, and one may be about several requests: a row for each."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from fiveways.errors import Malformed
from fiveways.model import names, topics
from fiveways.pipeline.decode import rows
from fiveways.pipeline.decode.rows import LIMITS, Message, topic_of
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq import messages as nq
from fiveways.protocols.nq.errors import Err
from fiveways.protocols.nq.frames import Free
from fiveways.wire import jsontext
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Payload

STYLES: Final = rows.styles_of(names.NQ, topics.NQ)


def read(packet: Packet) -> list[nq.Message]:
    """Return the messages of a frame, those that break a rule among them."""
    return nq.decode(packet, LIMITS)


def tell(message: nq.Message, *, from_hub: bool) -> list[Message]:
    """Return what a message tells of each request that it is about."""
    return list(_READERS[type(message)](message, from_hub))


def method_of(target: str) -> str | None:
    """Return the hub's form of a target's name; None if it is none."""
    return rows.folded(target, names.NQ) if target else None


def why(bad: nq.Bad) -> str:
    """Return what is wrong with a message."""
    return f"{bad.text} [{bad.rule}]"


def _size(body: Payload | None) -> int:
    return len(getattr(body, "raw", b""))


def _request(message: nq.Request, from_hub: bool) -> Iterator[Message]:
    target, size = message.t, _size(message.d)
    # What a caller's own key `topic` says never comes out of the hub again, so this one is the hub's.
    if from_hub and message.extra is not None and "topic" in message.extra:
        yield Message("event", message.r, target, None, _topic(message.extra), body_size=size)
    elif from_hub and target == bridge.CLOSED:
        yield Message("topic_closed", message.r, target, body_size=size)
    else:
        yield _call(message.t, message.r, message.d)


def _call(target: str, r: str, body: Payload | None) -> Message:
    told = rows.call(r, target, method_of(target), body or NULL, STYLES, _size(body))
    return told if target else told._replace(target=None)


def _request_part(message: nq.RequestPart, _from_hub: bool) -> Iterator[Message]:
    if message.n <= 1:
        yield _call(message.t, message.r, message.d)
    else:
        yield Message("call_part", message.r, message.t or None, body_size=_size(message.d))


def _topic(free: Free) -> str | None:
    try:
        written = jsontext.parse_text(free["topic"])
    except Malformed:
        return None
    return topic_of(written, topics.NQ) if isinstance(written, str) else None


def _answer(message: nq.Answer, _from_hub: bool) -> Iterator[Message]:
    for r in message.i:
        yield rows.result(r, message.a, _size(message.d))


def _answer_part(message: nq.AnswerPart, _from_hub: bool) -> Iterator[Message]:
    for r in message.i:
        if message.e is not None:
            yield _failure(r, message.a, message.e, message.d)
        elif message.f == 0:
            yield rows.result(r, message.a, _size(message.d))
        else:
            yield Message("part", r, message.a, body_size=_size(message.d))


def _error(message: nq.ErrorAnswer, _from_hub: bool) -> Iterator[Message]:
    for r in message.i:
        yield _failure(r, message.a, message.e, message.d)


def _failure(r: str, a: str, error: Err, body: Payload | None) -> Message:
    return rows.failure(r, bridge.failure_of("", error, body).reason, error.code, a, _size(body))


def _said(kind: str) -> Callable[[Any, bool], Iterator[Message]]:
    """Return how to tell of a message on the backchannel `a` of request `i`."""

    def told(message: Any, _from_hub: bool) -> Iterator[Message]:  # noqa: ANN401  any with a and i
        for r in message.i:
            yield Message(kind, r, message.a or None, body_size=_size(getattr(message, "d", None)))

    return told


def _back(kind: str) -> Callable[[Any, bool], Iterator[Message]]:
    """Return how to tell of a message that names the backchannel `i` of a request, which its answers have as target."""

    def told(message: Any, _from_hub: bool) -> Iterator[Message]:  # noqa: ANN401  any with i
        for a in message.i:
            yield Message(kind, None, a, body_size=_size(getattr(message, "d", None)))

    return told


def _order(kind: str) -> Callable[[Any, bool], Iterator[Message]]:
    """Return how to tell of a message about parts: with `a` they are those of request `i`, else of its answer."""
    said, back = _said(kind), _back(kind)
    return lambda message, from_hub: (said if message.a else back)(message, from_hub)


def _cancel(message: nq.CancelRequest, _from_hub: bool) -> Iterator[Message]:
    for each in message.i:
        # Before acceptance the request is named, after it its backchannel.
        yield (
            Message("cancel", each, message.t, body_size=0) if message.t else Message("cancel", None, each, body_size=0)
        )


def _note(message: nq.SystemNote, from_hub: bool) -> Iterator[Message]:
    error = message.e
    kind = "error" if error.fatal else "other"
    if error.type == "sys" and error.note in ("peer", "hello"):
        kind = "welcome" if from_hub else "hello"
    yield Message(kind, code=error.code or None, body_size=0)


def _farewell(message: nq.Farewell, _from_hub: bool) -> Iterator[Message]:
    yield Message("goodbye", code=message.e.code or None, body_size=0)


def _poll(message: nq.Poll, _from_hub: bool) -> Iterator[Message]:
    yield Message("other", message.p, message.t or None, body_size=0)


def _idle(_message: nq.Idle, _from_hub: bool) -> Iterator[Message]:
    yield Message("ping", body_size=0)


def _bad(_message: nq.Bad, _from_hub: bool) -> Iterator[Message]:
    yield from ()


_READERS: Final[dict[type, Callable[[Any, bool], Iterator[Message]]]] = {
    nq.Request: _request,
    nq.RequestPart: _request_part,
    nq.Poll: _poll,
    nq.Acceptance: _said("accepted"),
    nq.Answer: _answer,
    nq.AnswerPart: _answer_part,
    nq.ErrorAnswer: _error,
    nq.Note: _said("progress"),
    nq.PollReply: _said("other"),
    nq.Ack: _back("ack"),
    nq.Next: _order("ack"),
    nq.Missing: _order("other"),
    nq.BackMessage: _back("other"),
    nq.CancelRequest: _cancel,
    nq.SystemNote: _note,
    nq.Farewell: _farewell,
    nq.Idle: _idle,
    nq.Bad: _bad,
}
