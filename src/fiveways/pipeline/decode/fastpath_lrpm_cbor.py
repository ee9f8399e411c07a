"""Plain calls, results, failures, publications and events of LRPM in CBOR, many at once.

All frames step from item to item together. What is neither a short item, nor an array or map of a known, small number
of items, is left to the plain way.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.fastpath_umq import method_codes
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, STATUS_OF_REASON, canonical_topic
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.cbor_scan import ITEM_WIDTH
from fiveways.wire.packet import Packet

_MAX_ITEMS: Final = 64
"""Items of a body; there are few containers among so few of them."""
_WIDTHS: Final = np.array(ITEM_WIDTH, np.int64)
_RESULT_HEAD: Final = b"\x84\x18\x29\x00\xf6"
_CACHE_SIZE: Final = 1 << 16
_EMPTY_META: Final = b"\xa0"


def scan(slab: PayloadBuffer, from_hub: BoolArray, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of LRPM in CBOR."""
    told = DecodedColumns(slab, vocabulary)
    told.ids.values = told.targets.values = pa.nulls(slab.count, pa.string())
    found = _IdColumns(slab.count)
    starts = slab.starts
    long = slab.ends - starts > 5
    array, kind, number = slab.bytes_at(starts), slab.bytes_at(starts + 1), slab.bytes_at(starts + 2)
    for items, code, tell in _READERS:
        rows = np.flatnonzero(long & (array == 0x80 + items) & (kind == 0x18) & (number == code))
        if len(rows):
            tell(_CborCursor(told, rows=rows, at=starts[rows] + 3, ends=slab.ends[rows], hub=from_hub[rows]), found)
    # The kind of the request that failed is in a byte of its own, and any will do.
    rows = np.flatnonzero(long & (array == 0x86) & (kind == 0x14) & (number == 0x18))
    if len(rows):
        _error(_CborCursor(told, rows=rows, at=starts[rows] + 4, ends=slab.ends[rows], hub=from_hub[rows]), found)
    told.ids.values, told.targets.values = found.ids(), found.targets(slab)
    return told


class _IdColumns:
    """The ids and targets of all rows: numbers, or in a target's place a span."""

    def __init__(self, count: int) -> None:
        self.id = np.zeros(count, np.uint64)
        self.has_id = np.zeros(count, np.bool_)
        self.target = np.zeros(count, np.uint64)
        self.has_target = np.zeros(count, np.bool_)
        self.starts = np.full(count, NONE, np.int64)
        self.ends = np.full(count, NONE, np.int64)

    def ids(self) -> pa.Array:
        """Return the ids, written down."""
        return pa.array(self.id, mask=~self.has_id).cast(pa.string())

    def targets(self, slab: PayloadBuffer) -> pa.Array:
        """Return the targets."""
        spans = self.starts >= 0
        written = slab.slices(self.starts[spans], self.ends[spans]).view(pa.string())
        numbers = pa.array(self.target[self.has_target]).cast(pa.string())
        places = np.where(spans, np.cumsum(spans) - 1, len(written) + np.cumsum(self.has_target) - 1)
        return pa.concat_arrays([written, numbers]).take(pa.array(places, mask=~(spans | self.has_target)))


class _CborCursor(Cursor):
    """The same steps in another encoding."""

    def read_uint(self, name: str) -> None:
        """Step over an unsigned integer, and remember it."""
        slab, at = self.buffer, self["at"]
        code = slab.bytes_at(at)
        value = code.astype(np.uint64)
        width = np.zeros(len(at), np.int64)
        for low, size in ((0x18, 1), (0x19, 2), (0x1A, 4), (0x1B, 8)):
            rows = np.flatnonzero(code == low)
            width[rows] = size
            number = np.zeros(len(rows), np.uint64)
            for step in range(1, size + 1):
                number = number << np.uint64(8) | slab.bytes_at(at[rows] + step)
            value[rows] = number
        self[name] = value.view(np.int64)
        self["at"] = at + 1 + width
        self.select((code <= 0x1B) & (self["at"] < self["ends"]))

    def read_string(self, name: str) -> None:
        """Step over a short text, and remember it as a span; it may still not be UTF-8."""
        slab, at = self.buffer, self["at"]
        code = slab.bytes_at(at).astype(np.int64)
        longer = code == 0x78
        begins = at + 1 + longer
        size = np.where(longer, slab.bytes_at(at + 1), code - 0x60)
        self._store_span(name, begins, begins + size)
        self["at"] = begins + size
        self.select(((code >= 0x60) & (code < 0x78) | longer) & (self["at"] < self["ends"]))

    def read_body_and_meta(self) -> None:
        """Step over the body, item by item, and read the meta behind it by number."""
        begins = self["at"]
        self["at"] = _item_ends(self.buffer, begins, self["ends"])
        self["body"] = self["at"] - begins
        self.select(self["at"] >= 0)
        words = self.decoded.strings
        only_empty = (self["ends"] - self["at"] == 1) & (self.buffer.bytes_at(self["at"]) == _EMPTY_META[0])
        result, event, topic = (np.full(len(self), each, np.int64) for each in _meta_codes(words, _EMPTY_META)[1:])
        good = only_empty.copy()
        rest = np.flatnonzero(~only_empty)
        if len(rest):
            metas = self.buffer.slices(self["at"][rest], self["ends"][rest])
            known, result[rest], event[rest], topic[rest] = map_distinct(metas, partial(_meta_codes, words), 4)
            good[rest] = known >= 0
        self["result"], self["event"], self["topic"] = result, event, topic
        self.select(good)
        self.decoded.body_size[self["rows"]] = self["body"]


def _item_ends(slab: PayloadBuffer, at: Int64Array, ends: Int64Array) -> Int64Array:
    """Return the places behind items that are found well-formed; -1 where that takes a closer look."""
    found = np.full(len(at), NONE, np.int64)
    rows = np.arange(len(at))
    todo = np.ones(len(at), np.int64)
    for _ in range(_MAX_ITEMS):
        if not len(rows):
            break
        code = slab.bytes_at(at)
        width = _WIDTHS[code]
        low = (code & 0x1F).astype(np.int64)
        is_array, is_map = (code >= 0x80) & (code < 0x98), (code >= 0xA0) & (code < 0xB8)
        is_longer = code == 0x78
        text = (width < 0) | is_longer
        step = np.abs(width)
        step[is_array | is_map] = 1
        if is_longer.any():
            step[is_longer] = 2 + slab.bytes_at(at[is_longer] + 1)
        good = (step > 0) & (at + step <= ends)
        good[good & text] = _valid_utf8(slab, (at + 1 + is_longer)[good & text], (at + step)[good & text])
        todo = todo - 1 + low * is_array + 2 * low * is_map
        at = at + step
        done = good & (todo == 0)
        found[rows[done]] = at[done]
        on = good & ~done
        rows, at, ends, todo = rows[on], at[on], ends[on], todo[on]
    return found


def _valid_utf8(slab: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    texts = slab.slices(starts, ends)
    octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not len(octets) or octets.max() < 0x80:
        return np.ones(len(starts), np.bool_)
    return PayloadBuffer(texts).valid_utf8()


def _meta_codes(words: StringTables, meta: bytes) -> tuple[int, int, int, int]:
    meaning = _interpret_meta(meta) if len(meta) <= 255 else None
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, words.kind.code(result), words.kind.code(event), words.topic.code(topic)


@lru_cache(_CACHE_SIZE)
def _interpret_meta(meta: bytes) -> tuple[str, str, str | None] | None:
    """Return what a RESULT and an EVENT are with this meta, and the topic that they name; None if it is none."""
    try:
        message = lrpm.CBOR_CODEC.decode(Packet(_RESULT_HEAD + meta, is_text=False), DECODE_LIMITS)
    except RemoteProtocolError:
        return None
    if not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.result_kind(message.meta), *lrpm_rows.event_kind_and_topic(message.meta)


def _set_ids(steps: _CborCursor, found: _IdColumns) -> Int64Array:
    rows = steps["rows"]
    found.id[rows] = steps["id"].view(np.uint64)
    found.has_id[rows] = True
    return rows


def _call(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("id")
    steps.read_string("target")
    steps.read_body_and_meta()
    told, rows = steps.decoded, _set_ids(steps, found)
    written = steps.buffer.slices(*steps.span("target"))
    kind, method = map_distinct(written, partial(_uri_codes, told.strings), 2)
    told.is_decoded[rows] = kind != NONE
    told.kind[rows], told.method[rows] = kind, method
    found.starts[rows], found.ends[rows] = steps.span("target")


def _uri_codes(words: StringTables, uri: bytes) -> tuple[int, int]:
    return method_codes(words, lrpm_rows.fold_procedure, False, uri) if uri.isascii() else (NONE, NONE)


def _result(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("id")
    steps.read_body_and_meta()
    told, rows = steps.decoded, _set_ids(steps, found)
    told.is_decoded[rows] = True
    told.kind[rows] = steps["result"]
    is_end = steps["result"] == told.strings.kind.code("result")
    told.status[rows] = np.where(is_end, told.strings.status.code("result"), NONE)


def _error(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("id")
    steps.read_string("uri")
    steps.read_body_and_meta()
    told, rows = steps.decoded, _set_ids(steps, found)
    hub = steps["hub"]

    def read(uri: bytes) -> tuple[int, ...]:
        words = told.strings
        if not uri.isascii():
            return (NONE,) * 5
        numbers = [words.code.code(uri.decode() or None)]
        for from_hub in (False, True):
            reason = lrpm_rows.error_reason(uri.decode(), from_hub=from_hub)
            numbers += words.status.code(STATUS_OF_REASON[reason]), words.reason.code(reason.value)
        return tuple(numbers)

    code, status, why, hub_status, hub_why = map_distinct(steps.buffer.slices(*steps.span("uri")), read, 5)
    told.set_kind(rows, "failure")
    told.is_decoded[rows] = status != NONE
    told.code[rows] = code
    told.status[rows], told.reason[rows] = np.where(hub, hub_status, status), np.where(hub, hub_why, why)


def _event(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("publication")
    steps.read_uint("target")
    steps.read_body_and_meta()
    told, rows = steps.decoded, steps["rows"]
    told.is_decoded[rows] = True
    told.kind[rows], told.topic[rows] = steps["event"], steps["topic"]
    found.target[rows] = steps["target"].view(np.uint64)
    found.has_target[rows] = True


def _publish(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("id")
    steps.read_string("target")
    steps.read_body_and_meta()
    told, rows = steps.decoded, _set_ids(steps, found)
    number = told.strings.topic.code

    def read(topic: bytes) -> tuple[int, int]:
        return (0, number(canonical_topic(topic.decode(), topics.LRPM))) if topic.isascii() else (NONE, NONE)

    known, topic = map_distinct(steps.buffer.slices(*steps.span("target")), read, 2)
    told.set_kind(rows, "publish")
    told.is_decoded[rows] = known >= 0
    told.topic[rows] = topic
    found.starts[rows], found.ends[rows] = steps.span("target")


def _published(steps: _CborCursor, found: _IdColumns) -> None:
    steps.read_uint("id")
    steps.read_uint("target")
    steps.select((steps["ends"] - steps["at"] == 1) & (steps.buffer.bytes_at(steps["at"]) == _EMPTY_META[0]))
    rows = _set_ids(steps, found)
    steps.decoded.set_kind(rows, "result", "result")
    found.target[rows] = steps["target"].view(np.uint64)
    found.has_target[rows] = True


_READERS: Final[tuple[tuple[int, int, Callable[[_CborCursor, _IdColumns], None]], ...]] = (
    (5, 40, _call),
    (4, 41, _result),
    (5, 60, _event),
    (5, 61, _publish),
    (4, 62, _published),
)
"""The items of a frame, its kind, and who tells of it."""
