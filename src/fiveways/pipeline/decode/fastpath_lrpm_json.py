"""Plain calls, results, failures, publications and events of LRPM in JSON, many at once.

A frame is sure if it is a beginning that is known byte by byte, a body that is one JSON value, and an end that the
protocol's own reader takes behind another body.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.fastpath_umq import method_codes
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, STATUS_OF_REASON, canonical_topic
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.packet import Packet

_EMPTY_META_TAIL: Final = b",{}]"
_HEAD_LENGTH: Final = len("[40,")
_MIN_FRAME_LENGTH: Final = len("[41,0,0,{}]")
_RESULT_HEAD: Final = b"[41,0,0"
_MAX_META_LENGTH: Final = 128
_CACHE_SIZE: Final = 1 << 16


def scan(slab: PayloadBuffer, from_hub: BoolArray, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of LRPM in JSON."""
    told = DecodedColumns(slab, vocabulary)
    starts = slab.starts
    good = slab.valid_utf8() & (slab.ends - starts >= _MIN_FRAME_LENGTH)
    good &= (slab.bytes_at(starts) == ord("[")) & (slab.bytes_at(starts + 3) == ord(","))
    tails, result, event, topic = _find_meta(told, good)
    good &= tails >= 0
    tens, ones = slab.bytes_at(starts + 1), slab.bytes_at(starts + 2)
    for kind, tell in _READERS.items():
        rows = np.flatnonzero(good & (tens == kind[0]) & (ones == kind[1]))
        if len(rows):
            known = {"result": result[rows], "event": event[rows], "topic": topic[rows], "hub": from_hub[rows]}
            tell(Cursor(told, rows=rows, at=starts[rows] + _HEAD_LENGTH, ends=tails[rows], **known))
    return told


def _find_meta(told: DecodedColumns, good: BoolArray) -> tuple[Int64Array, ...]:
    """Return where the comma before each meta stands, NONE if that is not known, and what the meta makes of a frame."""
    slab, words = told.buffer, told.strings
    meanings = [np.full(slab.count, each, np.int64) for each in (NONE, *_meta_codes(words, _EMPTY_META_TAIL)[1:])]
    tails = meanings[0]
    empty = good & slab.matches(slab.ends - len(_EMPTY_META_TAIL), _EMPTY_META_TAIL)
    tails[empty] = slab.ends[empty] - len(_EMPTY_META_TAIL)
    rows = np.flatnonzero(good & ~empty)
    if len(rows):
        comma = _last_brace_positions(slab, rows) - 1
        inside = comma > slab.starts[rows] + _HEAD_LENGTH
        rows, comma = rows[inside], comma[inside]
        found = map_distinct(slab.slices(comma, slab.ends[rows]), partial(_meta_codes, words), 4)
        known = found[0] >= 0
        tails[rows[known]] = comma[known]
        for meaning, column in zip(meanings[1:], found[1:], strict=True):
            meaning[rows[known]] = column[known]
    return tuple(meanings)


def _last_brace_positions(slab: PayloadBuffer, rows: Int64Array) -> Int64Array:
    """Return where the last opening brace stands in these rows, 0 if it is not near their ends."""
    starts = np.maximum(slab.starts[rows], slab.ends[rows] - _MAX_META_LENGTH)
    near = PayloadBuffer(slab.slices(starts, slab.ends[rows]))
    braces = np.concatenate([[NONE], np.flatnonzero(near.data == ord("{"))])
    last = braces[np.searchsorted(braces, near.ends) - 1]
    return np.where(last >= near.starts, last - near.starts + starts, 0)


def _meta_codes(words: StringTables, tail: bytes) -> tuple[int, int, int, int]:
    meaning = _interpret_meta(tail)
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, words.kind.code(result), words.kind.code(event), words.topic.code(topic)


@lru_cache(_CACHE_SIZE)
def _interpret_meta(tail: bytes) -> tuple[str, str, str | None] | None:
    """Return what a RESULT and an EVENT are that end so, and the topic that they name; None if nothing ends so."""
    try:
        message = lrpm.JSON_CODEC.decode(Packet(_RESULT_HEAD + tail), DECODE_LIMITS)
    except RemoteProtocolError:
        return None
    if not tail.startswith(b",{") or not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.result_kind(message.meta), *lrpm_rows.event_kind_and_topic(message.meta)


def _call(walk: Cursor) -> None:
    walk.read_number("id")
    walk.skip_literal(b",")
    walk.read_text("target")
    walk.skip_literal(b",")
    walk.read_body()
    told = walk.decoded
    read = partial(method_codes, told.strings, lrpm_rows.fold_procedure, True)
    kind, method = map_distinct(walk.buffer.slices(*walk.span("target")), read, 2)
    rows = walk["rows"]
    told.is_decoded[rows] = kind != NONE
    told.kind[rows], told.method[rows] = kind, method
    told.ids.set_spans(rows, *walk.span("id"))
    told.targets.set_spans(rows, *walk.span("target"))


def _result(walk: Cursor) -> None:
    walk.read_number("id")
    walk.skip_literal(b",")
    walk.read_body()
    told, rows = walk.decoded, walk["rows"]
    told.is_decoded[rows] = True
    told.kind[rows] = walk["result"]
    is_end = walk["result"] == told.strings.kind.code("result")
    told.status[rows] = np.where(is_end, told.strings.status.code("result"), NONE)
    told.ids.set_spans(rows, *walk.span("id"))


def _error(walk: Cursor) -> None:
    slab, at = walk.buffer, walk["at"]
    # The kind of the request, of two digits as all kinds of requests are.
    tens, ones = slab.bytes_at(at) - np.uint8(ord("0")), slab.bytes_at(at + 1) - np.uint8(ord("0"))
    walk.select((tens > 0) & (tens < 10) & (ones < 10))
    walk["at"] = walk["at"] + 2
    walk.skip_literal(b",")
    walk.read_number("id")
    walk.skip_literal(b",")
    walk.read_text("uri")
    walk.skip_literal(b",")
    walk.read_body()
    uris = walk.select_unescaped("uri")
    told, rows = walk.decoded, walk["rows"]
    told.set_kind(rows, "failure")
    told.ids.set_spans(rows, *walk.span("id"))

    def read(uri: bytes) -> tuple[int, int, int, int, int]:
        words, written = told.strings, uri.decode()
        numbers = [words.code.code(written)]
        for hub in (False, True):
            reason = lrpm_rows.error_reason(written, from_hub=hub)
            numbers += words.status.code(STATUS_OF_REASON[reason]), words.reason.code(reason.value)
        code, status, why, hub_status, hub_why = numbers
        return code, status, why, hub_status, hub_why

    code, status, why, hub_status, hub_why = map_distinct(uris, read, 5)
    told.code[rows] = code
    told.status[rows] = np.where(walk["hub"], hub_status, status)
    told.reason[rows] = np.where(walk["hub"], hub_why, why)


def _event(walk: Cursor) -> None:
    walk.read_number("publication")
    walk.skip_literal(b",")
    walk.read_number("target")
    walk.skip_literal(b",")
    walk.read_body()
    told, rows = walk.decoded, walk["rows"]
    told.is_decoded[rows] = True
    told.kind[rows], told.topic[rows] = walk["event"], walk["topic"]
    told.targets.set_spans(rows, *walk.span("target"))


def _publish(walk: Cursor) -> None:
    walk.read_number("id")
    walk.skip_literal(b",")
    walk.read_text("target")
    walk.skip_literal(b",")
    walk.read_body()
    written = walk.select_unescaped("target")
    told, rows = walk.decoded, walk["rows"]
    told.set_kind(rows, "publish")
    told.ids.set_spans(rows, *walk.span("id"))
    told.targets.set_spans(rows, *walk.span("target"))
    number = told.strings.topic.code
    (told.topic[rows],) = map_distinct(written, lambda each: (number(canonical_topic(each.decode(), topics.LRPM)),), 1)


def _published(walk: Cursor) -> None:
    walk.read_number("id")
    walk.skip_literal(b",")
    walk.read_number("target")
    walk.select(walk["at"] == walk["ends"])
    told, rows = walk.decoded, walk["rows"]
    told.set_kind(rows, "result", "result")
    told.ids.set_spans(rows, *walk.span("id"))
    told.targets.set_spans(rows, *walk.span("target"))


_READERS: Final[dict[bytes, Callable[[Cursor], None]]] = {
    b"40": _call,
    b"41": _result,
    b"20": _error,
    b"60": _event,
    b"61": _publish,
    b"62": _published,
}
