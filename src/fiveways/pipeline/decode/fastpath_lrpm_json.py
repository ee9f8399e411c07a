"""Fast path for LRPM in JSON: common calls, results, failures, publications and events, many frames at once.

It decodes a frame that consists of a head known byte by byte, a body that is one JSON value, and a tail that the
protocol's own codec accepts behind another body.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct, method_codes
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, STATUS_OF_REASON, canonical_topic
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.packet import Packet

_EMPTY_META_TAIL: Final = b",{}]"
_HEAD_LENGTH: Final = len("[40,")
_MIN_FRAME_LENGTH: Final = len("[41,0,0,{}]")
_RESULT_HEAD: Final = b"[41,0,0"
_MAX_META_LENGTH: Final = 128
_CACHE_SIZE: Final = 1 << 16


def scan(buffer: PayloadBuffer, from_hub: BoolArray, strings: StringTables) -> DecodedColumns:
    """Decode frames of LRPM in JSON."""
    decoded = DecodedColumns(buffer, strings)
    starts = buffer.starts
    good = buffer.valid_utf8() & (buffer.ends - starts >= _MIN_FRAME_LENGTH)
    good &= (buffer.bytes_at(starts) == ord("[")) & (buffer.bytes_at(starts + 3) == ord(","))
    tails, result, event, topic = _find_meta(decoded, good)
    good &= tails >= 0
    tens, ones = buffer.bytes_at(starts + 1), buffer.bytes_at(starts + 2)
    for kind, decode in _READERS.items():
        rows = np.flatnonzero(good & (tens == kind[0]) & (ones == kind[1]))
        if len(rows):
            columns = {"result": result[rows], "event": event[rows], "topic": topic[rows], "hub": from_hub[rows]}
            decode(Cursor(decoded, rows=rows, at=starts[rows] + _HEAD_LENGTH, ends=tails[rows], **columns))
    return decoded


def _find_meta(decoded: DecodedColumns, good: BoolArray) -> tuple[Int64Array, ...]:
    """Return the position of the comma before each meta, NONE if unknown, and the kinds and topic that it implies."""
    buffer, strings = decoded.buffer, decoded.strings
    meanings = [np.full(buffer.count, code, np.int64) for code in (NONE, *_meta_codes(strings, _EMPTY_META_TAIL)[1:])]
    tails = meanings[0]
    empty = good & buffer.matches(buffer.ends - len(_EMPTY_META_TAIL), _EMPTY_META_TAIL)
    tails[empty] = buffer.ends[empty] - len(_EMPTY_META_TAIL)
    rows = np.flatnonzero(good & ~empty)
    if len(rows):
        comma = _last_brace_positions(buffer, rows) - 1
        inside = comma > buffer.starts[rows] + _HEAD_LENGTH
        rows, comma = rows[inside], comma[inside]
        codes = map_distinct(buffer.slices(comma, buffer.ends[rows]), partial(_meta_codes, strings), 4)
        known = codes[0] >= 0
        tails[rows[known]] = comma[known]
        for meaning, column in zip(meanings[1:], codes[1:], strict=True):
            meaning[rows[known]] = column[known]
    return tuple(meanings)


def _last_brace_positions(buffer: PayloadBuffer, rows: Int64Array) -> Int64Array:
    """Return the position of the last opening brace in each row; 0 if it is not near the end."""
    starts = np.maximum(buffer.starts[rows], buffer.ends[rows] - _MAX_META_LENGTH)
    near = PayloadBuffer(buffer.slices(starts, buffer.ends[rows]))
    braces = np.concatenate([[NONE], np.flatnonzero(near.data == ord("{"))])
    last = braces[np.searchsorted(braces, near.ends) - 1]
    return np.where(last >= near.starts, last - near.starts + starts, 0)


def _meta_codes(strings: StringTables, tail: bytes) -> tuple[int, int, int, int]:
    meaning = _interpret_meta(tail)
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, strings.kind.code(result), strings.kind.code(event), strings.topic.code(topic)


@lru_cache(_CACHE_SIZE)
def _interpret_meta(tail: bytes) -> tuple[str, str, str | None] | None:
    """Return the kinds of a RESULT and an EVENT with this tail, and its topic; None if the tail is invalid."""
    try:
        message = lrpm.JSON_CODEC.decode(Packet(_RESULT_HEAD + tail), DECODE_LIMITS)
    except RemoteProtocolError:
        return None
    if not tail.startswith(b",{") or not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.result_kind(message.meta), *lrpm_rows.event_kind_and_topic(message.meta)


def _call(cursor: Cursor) -> None:
    cursor.read_number("id")
    cursor.skip_literal(b",")
    cursor.read_text("target")
    cursor.skip_literal(b",")
    cursor.read_body()
    decoded = cursor.decoded
    read = partial(method_codes, decoded.strings, lrpm_rows.fold_procedure, True)
    kind, method = map_distinct(cursor.buffer.slices(*cursor.span("target")), read, 2)
    rows = cursor["rows"]
    decoded.is_decoded[rows] = kind != NONE
    decoded.kind[rows], decoded.method[rows] = kind, method
    decoded.ids.set_spans(rows, *cursor.span("id"))
    decoded.targets.set_spans(rows, *cursor.span("target"))


def _result(cursor: Cursor) -> None:
    cursor.read_number("id")
    cursor.skip_literal(b",")
    cursor.read_body()
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.is_decoded[rows] = True
    decoded.kind[rows] = cursor["result"]
    is_end = cursor["result"] == decoded.strings.kind.code("result")
    decoded.status[rows] = np.where(is_end, decoded.strings.status.code("result"), NONE)
    decoded.ids.set_spans(rows, *cursor.span("id"))


def _error(cursor: Cursor) -> None:
    buffer, at = cursor.buffer, cursor["at"]
    # The kind of the failed request; the kinds of all requests have two digits.
    tens, ones = buffer.bytes_at(at) - np.uint8(ord("0")), buffer.bytes_at(at + 1) - np.uint8(ord("0"))
    cursor.select((tens > 0) & (tens < 10) & (ones < 10))
    cursor["at"] = cursor["at"] + 2
    cursor.skip_literal(b",")
    cursor.read_number("id")
    cursor.skip_literal(b",")
    cursor.read_text("uri")
    cursor.skip_literal(b",")
    cursor.read_body()
    uris = cursor.select_unescaped("uri")
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.set_kind(rows, "failure")
    decoded.ids.set_spans(rows, *cursor.span("id"))

    def read(uri: bytes) -> tuple[int, int, int, int, int]:
        strings, written = decoded.strings, uri.decode()
        numbers = [strings.code.code(written)]
        for hub in (False, True):
            reason = lrpm_rows.error_reason(written, from_hub=hub)
            numbers += strings.status.code(STATUS_OF_REASON[reason]), strings.reason.code(reason.value)
        code, status, reason_code, hub_status, hub_reason = numbers
        return code, status, reason_code, hub_status, hub_reason

    code, status, reason, hub_status, hub_reason = map_distinct(uris, read, 5)
    decoded.code[rows] = code
    decoded.status[rows] = np.where(cursor["hub"], hub_status, status)
    decoded.reason[rows] = np.where(cursor["hub"], hub_reason, reason)


def _event(cursor: Cursor) -> None:
    cursor.read_number("publication")
    cursor.skip_literal(b",")
    cursor.read_number("target")
    cursor.skip_literal(b",")
    cursor.read_body()
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.is_decoded[rows] = True
    decoded.kind[rows], decoded.topic[rows] = cursor["event"], cursor["topic"]
    decoded.targets.set_spans(rows, *cursor.span("target"))


def _publish(cursor: Cursor) -> None:
    cursor.read_number("id")
    cursor.skip_literal(b",")
    cursor.read_text("target")
    cursor.skip_literal(b",")
    cursor.read_body()
    written = cursor.select_unescaped("target")
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.set_kind(rows, "publish")
    decoded.ids.set_spans(rows, *cursor.span("id"))
    decoded.targets.set_spans(rows, *cursor.span("target"))
    topic_code = decoded.strings.topic.code
    (decoded.topic[rows],) = map_distinct(
        written, lambda topic: (topic_code(canonical_topic(topic.decode(), topics.LRPM)),), 1
    )


def _published(cursor: Cursor) -> None:
    cursor.read_number("id")
    cursor.skip_literal(b",")
    cursor.read_number("target")
    cursor.select(cursor["at"] == cursor["ends"])
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.set_kind(rows, "result", "result")
    decoded.ids.set_spans(rows, *cursor.span("id"))
    decoded.targets.set_spans(rows, *cursor.span("target"))


_READERS: Final[dict[bytes, Callable[[Cursor], None]]] = {
    b"40": _call,
    b"41": _result,
    b"20": _error,
    b"60": _event,
    b"61": _publish,
    b"62": _published,
}
