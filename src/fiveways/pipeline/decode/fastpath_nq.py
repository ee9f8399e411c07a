"""Fast path for NQ: common requests, answers, failures and acknowledgements, one to a frame, many frames at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode import nq_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct, method_codes
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.frames import is_name
from fiveways.wire.packet import Packet

_MIN_FRAME_LENGTH: Final = len('{"i":"x"}')
_TOPIC_KEY: Final = b',"topic":"'
_CACHE_SIZE: Final = 4096
_MAX_CACHED_LENGTH: Final = 255
_REQUEST_HEADS: Final = (b'{"t":"x","r":"y","d":0', b'{"t":"y","r":"x","d":10')
_ANSWER_HEADS: Final = (b'{"a":"x","i":"y"', b'{"a":"y","i":"x"')
"""Two heads each: if a tail gives the same row behind both, its meaning does not depend on the head."""


def scan(buffer: PayloadBuffer, from_hub: BoolArray, strings: StringTables) -> DecodedColumns:
    """Decode frames of NQ."""
    decoded = DecodedColumns(buffer, strings)
    starts, ends = buffer.starts, buffer.ends
    good = buffer.valid_utf8() & (ends - starts >= _MIN_FRAME_LENGTH)
    good &= (
        buffer.matches(starts, b'{"')
        & (buffer.bytes_at(starts + 3) == ord('"'))
        & (buffer.bytes_at(starts + 4) == ord(":"))
    )
    good &= buffer.bytes_at(ends - 1) == ord("}")
    key = buffer.bytes_at(starts + 2)
    for letter, decode in ((ord("t"), _request), (ord("a"), _answer), (ord("i"), _acknowledgement)):
        rows = np.flatnonzero(good & (key == letter))
        if len(rows):
            decode(Cursor(decoded, rows=rows, at=starts[rows] + 5, ends=ends[rows] - 1, hub=from_hub[rows]))
    return decoded


def _request(cursor: Cursor) -> None:
    cursor.read_text("target")
    cursor.skip_literal(b',"r":')
    cursor.read_text("id")
    cursor.skip_literal(b',"d":')
    cursor.select_unescaped("id")
    _event(cursor)
    cursor.read_body()
    decoded, rows = cursor.decoded, cursor["rows"]
    read = partial(_target_codes, decoded.strings)
    kind, method = map_distinct(cursor.buffer.slices(*cursor.span("target")), read, 2)
    # Requests of the hub that close a topic take the general path.
    closing = cursor["hub"] & (kind == _TOPIC_CLOSED_CODE)
    decoded.is_decoded[rows] = (kind != NONE) & ~closing
    kind = np.where(kind == _TOPIC_CLOSED_CODE, decoded.strings.kind.code("call"), kind)
    decoded.kind[rows], decoded.method[rows] = kind, method
    decoded.ids.set_spans(rows, *cursor.span("id"))
    decoded.targets.set_spans(rows, *cursor.span("target"))


_TOPIC_CLOSED_CODE: Final = -2


def _target_codes(strings: StringTables, written: bytes) -> tuple[int, int]:
    target = written.decode()
    if not is_name(target):
        return NONE, NONE
    kind, method = method_codes(strings, nq_rows.fold_target, True, written)
    return (_TOPIC_CLOSED_CODE if target == bridge.CLOSED_TARGET else kind), method


def _event(cursor: Cursor) -> None:
    """Decode requests of the hub that a key `topic` behind the body makes events; keep the other rows."""
    rows = np.flatnonzero(cursor["hub"])
    if not len(rows):
        return
    buffer = cursor.buffer
    behind = np.full(len(cursor), NONE, np.int64)
    behind[rows] = buffer.find(_TOPIC_KEY, cursor["at"][rows], cursor["ends"][rows], near=1 << 20)
    is_event = behind >= 0
    if not is_event.any():
        return
    events = cursor.subset(is_event)
    events["whole"], events["ends"] = events["ends"] + 1, behind[is_event]
    events.select_unescaped("target")
    events.read_body()
    decoded = cursor.decoded
    read = partial(_tail_codes, decoded.strings, _REQUEST_HEADS, True)
    kind, topic, *_ = map_distinct(buffer.slices(events["ends"], events["whole"]), read, 6)
    targets = map_distinct(
        buffer.slices(*events.span("target")), lambda target: (is_name(target.decode()) or NONE,), 1
    )[0]
    event_rows = events["rows"]
    decoded.is_decoded[event_rows] = (kind == decoded.strings.kind.code("event")) & (targets > 0)
    decoded.kind[event_rows], decoded.topic[event_rows] = kind, topic
    decoded.ids.set_spans(event_rows, *events.span("id"))
    decoded.targets.set_spans(event_rows, *events.span("target"))
    cursor.select(~is_event)


def _answer(cursor: Cursor) -> None:
    cursor.read_text("target")
    cursor.skip_literal(b',"i":')
    cursor.read_text("id")
    cursor.select_unescaped("target")
    cursor.select_unescaped("id")
    decoded, buffer = cursor.decoded, cursor.buffer
    accepted = cursor["at"] == cursor["ends"]
    rows = cursor["rows"]
    decoded.ids.set_spans(rows, *cursor.span("id"))
    decoded.targets.set_spans(rows, *cursor.span("target"))
    decoded.set_kind(rows[accepted], "accepted")
    cursor.select(~accepted)
    failed = (cursor["ends"] - cursor["at"] > 5) & buffer.matches(cursor["at"], b',"e":')
    _failures(decoded, cursor["rows"][failed], cursor["at"][failed], cursor["ends"][failed] + 1)
    cursor.select(~failed)
    cursor.skip_literal(b',"d":')
    cursor.read_body()
    decoded.set_kind(cursor["rows"], "result", "result")


def _failures(decoded: DecodedColumns, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> None:
    if len(rows):
        read = partial(_tail_codes, decoded.strings, _ANSWER_HEADS, False)
        kind, _, status, reason, code, size = map_distinct(decoded.buffer.slices(starts, ends), read, 6)
        decoded.is_decoded[rows] = kind != NONE
        decoded.kind[rows], decoded.status[rows], decoded.reason[rows], decoded.code[rows] = kind, status, reason, code
        decoded.body_size[rows] = size


def _tail_codes(
    strings: StringTables, heads: tuple[bytes, bytes], from_hub: bool, end: bytes
) -> tuple[int, int, int, int, int, int]:
    """Return the codes and body size of a message with this tail."""
    row = (_interpret_tail_cached if len(end) <= _MAX_CACHED_LENGTH else _interpret_tail)(heads, from_hub, end)
    if row is None:
        return NONE, NONE, NONE, NONE, NONE, NONE
    return (
        strings.kind.code(row.kind),
        strings.topic.code(row.topic),
        strings.status.code(row.status),
        strings.reason.code(row.reason),
        strings.code.code(row.code),
        row.body_size or 0,
    )


def _interpret_tail(heads: tuple[bytes, bytes], from_hub: bool, end: bytes) -> MessageRow | None:
    one, other = (_read_single(head + end, from_hub) for head in heads)
    if one is None or other is None or (one.target, one.id, other.target, other.id) != ("x", "y", "y", "x"):
        return None
    # The bodies of the two request heads differ in length by one; answers have their bodies in the tail.
    grows = (other.body_size or 0) - (one.body_size or 0)
    return one if grows == (heads is _REQUEST_HEADS) else None


_interpret_tail_cached: Final = lru_cache(_CACHE_SIZE)(_interpret_tail)


def _read_single(payload: bytes, from_hub: bool) -> MessageRow | None:
    try:
        messages = nq_rows.read(Packet(payload))
    except RemoteProtocolError:
        return None
    rows = nq_rows.to_rows(messages[0], from_hub=from_hub) if len(messages) == 1 else []
    return rows[0] if len(rows) == 1 else None


def _acknowledgement(cursor: Cursor) -> None:
    cursor.read_text("target")
    cursor.select(cursor["at"] == cursor["ends"])
    cursor.select_unescaped("target")
    cursor.decoded.set_kind(cursor["rows"], "ack")
    cursor.decoded.targets.set_spans(cursor["rows"], *cursor.span("target"))
