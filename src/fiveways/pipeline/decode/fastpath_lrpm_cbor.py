"""Fast path for LRPM in CBOR: common calls, results, failures, publications and events, many frames at once.

All frames advance item by item together. Frames with long items, or with arrays or maps of indefinite or large length,
take the general path.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct, method_codes
from fiveways.pipeline.decode.message_row import DECODE_LIMITS, STATUS_OF_REASON, canonical_topic
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.cbor_scan import ITEM_WIDTH
from fiveways.wire.packet import Packet

_MAX_ITEMS: Final = 64
"""Maximum items of a body; containers nested deeper than the protocol allows need more."""
_WIDTHS: Final = np.array(ITEM_WIDTH, np.int64)
_RESULT_HEAD: Final = b"\x84\x18\x29\x00\xf6"
_CACHE_SIZE: Final = 1 << 16
_EMPTY_META: Final = b"\xa0"


def scan(buffer: PayloadBuffer, from_hub: BoolArray, strings: StringTables) -> DecodedColumns:
    """Decode frames of LRPM in CBOR."""
    decoded = DecodedColumns.without_ids(buffer, strings)
    columns = _IdColumns(buffer.count)
    starts = buffer.starts
    long = buffer.ends - starts > 5
    array, kind, number = buffer.bytes_at(starts), buffer.bytes_at(starts + 1), buffer.bytes_at(starts + 2)
    for items, code, decode in _READERS:
        rows = np.flatnonzero(long & (array == 0x80 + items) & (kind == 0x18) & (number == code))
        if len(rows):
            decode(
                _CborCursor(decoded, rows=rows, at=starts[rows] + 3, ends=buffer.ends[rows], hub=from_hub[rows]),
                columns,
            )
    # In an ERROR the kind of the failed request takes a byte of its own; any kind is accepted.
    rows = np.flatnonzero(long & (array == 0x86) & (kind == 0x14) & (number == 0x18))
    if len(rows):
        _error(
            _CborCursor(decoded, rows=rows, at=starts[rows] + 4, ends=buffer.ends[rows], hub=from_hub[rows]), columns
        )
    decoded.ids.values, decoded.targets.values = columns.ids(), columns.targets(buffer)
    return decoded


class _IdColumns:
    """Ids and targets of all rows: ids are numbers, targets are numbers or spans."""

    def __init__(self, count: int) -> None:
        self.id = np.zeros(count, np.uint64)
        self.has_id = np.zeros(count, np.bool_)
        self.target = np.zeros(count, np.uint64)
        self.has_target = np.zeros(count, np.bool_)
        self.starts = np.full(count, NONE, np.int64)
        self.ends = np.full(count, NONE, np.int64)

    def ids(self) -> pa.Array:
        """Return the ids as text."""
        return pa.array(self.id, mask=~self.has_id).cast(pa.string())

    def targets(self, buffer: PayloadBuffer) -> pa.Array:
        """Return the targets as text."""
        spans = self.starts >= 0
        written = buffer.slices(self.starts[spans], self.ends[spans]).view(pa.string())
        numbers = pa.array(self.target[self.has_target]).cast(pa.string())
        indexes = np.where(spans, np.cumsum(spans) - 1, len(written) + np.cumsum(self.has_target) - 1)
        return pa.concat_arrays([written, numbers]).take(pa.array(indexes, mask=~(spans | self.has_target)))


class _CborCursor(Cursor):
    """Cursor for CBOR items."""

    def read_uint(self, name: str) -> None:
        """Keep rows with an unsigned integer here; store it and step over it."""
        buffer, at = self.buffer, self["at"]
        code = buffer.bytes_at(at)
        value = code.astype(np.uint64)
        width = np.zeros(len(at), np.int64)
        for low, size in ((0x18, 1), (0x19, 2), (0x1A, 4), (0x1B, 8)):
            rows = np.flatnonzero(code == low)
            width[rows] = size
            number = np.zeros(len(rows), np.uint64)
            for step in range(1, size + 1):
                number = number << np.uint64(8) | buffer.bytes_at(at[rows] + step)
            value[rows] = number
        self[name] = value.view(np.int64)
        self["at"] = at + 1 + width
        self.select((code <= 0x1B) & (self["at"] < self["ends"]))

    def read_string(self, name: str) -> None:
        """Keep rows with a short text here; store its span, which may be invalid UTF-8, and step over it."""
        buffer, at = self.buffer, self["at"]
        code = buffer.bytes_at(at).astype(np.int64)
        longer = code == 0x78
        begins = at + 1 + longer
        size = np.where(longer, buffer.bytes_at(at + 1), code - 0x60)
        self._store_span(name, begins, begins + size)
        self["at"] = begins + size
        self.select(((code >= 0x60) & (code < 0x78) | longer) & (self["at"] < self["ends"]))

    def read_body_and_meta(self) -> None:
        """Step over the body, item by item, and interpret the meta behind it."""
        begins = self["at"]
        self["at"] = _item_ends(self.buffer, begins, self["ends"])
        self["body"] = self["at"] - begins
        self.select(self["at"] >= 0)
        strings = self.decoded.strings
        only_empty = (self["ends"] - self["at"] == 1) & (self.buffer.bytes_at(self["at"]) == _EMPTY_META[0])
        result, event, topic = (np.full(len(self), code, np.int64) for code in _meta_codes(strings, _EMPTY_META)[1:])
        good = only_empty.copy()
        rest = np.flatnonzero(~only_empty)
        if len(rest):
            metas = self.buffer.slices(self["at"][rest], self["ends"][rest])
            known, result[rest], event[rest], topic[rest] = map_distinct(metas, partial(_meta_codes, strings), 4)
            good[rest] = known >= 0
        self["result"], self["event"], self["topic"] = result, event, topic
        self.select(good)
        self.decoded.body_size[self["rows"]] = self["body"]


def _item_ends(buffer: PayloadBuffer, at: Int64Array, ends: Int64Array) -> Int64Array:
    """Return the positions behind well-formed items; NONE if the general path has to check them."""
    item_ends = np.full(len(at), NONE, np.int64)
    rows = np.arange(len(at))
    items_left = np.ones(len(at), np.int64)
    for _ in range(_MAX_ITEMS):
        if not len(rows):
            break
        code = buffer.bytes_at(at)
        width = _WIDTHS[code]
        low = (code & 0x1F).astype(np.int64)
        is_array, is_map = (code >= 0x80) & (code < 0x98), (code >= 0xA0) & (code < 0xB8)
        is_longer = code == 0x78
        text = (width < 0) | is_longer
        step = np.abs(width)
        step[is_array | is_map] = 1
        if is_longer.any():
            step[is_longer] = 2 + buffer.bytes_at(at[is_longer] + 1)
        good = (step > 0) & (at + step <= ends)
        good[good & text] = _valid_utf8(buffer, (at + 1 + is_longer)[good & text], (at + step)[good & text])
        items_left = items_left - 1 + low * is_array + 2 * low * is_map
        at = at + step
        done = good & (items_left == 0)
        item_ends[rows[done]] = at[done]
        unfinished = good & ~done
        rows, at, ends, items_left = rows[unfinished], at[unfinished], ends[unfinished], items_left[unfinished]
    return item_ends


def _valid_utf8(buffer: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    texts = buffer.slices(starts, ends)
    octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not len(octets) or octets.max() < 0x80:
        return np.ones(len(starts), np.bool_)
    return PayloadBuffer(texts).valid_utf8()


def _meta_codes(strings: StringTables, meta: bytes) -> tuple[int, int, int, int]:
    meaning = _interpret_meta(meta) if len(meta) <= 255 else None
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, strings.kind.code(result), strings.kind.code(event), strings.topic.code(topic)


@lru_cache(_CACHE_SIZE)
def _interpret_meta(meta: bytes) -> tuple[str, str, str | None] | None:
    """Return the kinds of a RESULT and an EVENT with this meta, and its topic; None if the meta is invalid."""
    try:
        message = lrpm.CBOR_CODEC.decode(Packet(_RESULT_HEAD + meta, is_text=False), DECODE_LIMITS)
    except RemoteProtocolError:
        return None
    if not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.result_kind(message.meta), *lrpm_rows.event_kind_and_topic(message.meta)


def _set_ids(cursor: _CborCursor, columns: _IdColumns) -> Int64Array:
    rows = cursor["rows"]
    columns.id[rows] = cursor["id"].view(np.uint64)
    columns.has_id[rows] = True
    return rows


def _call(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("id")
    cursor.read_string("target")
    cursor.read_body_and_meta()
    decoded, rows = cursor.decoded, _set_ids(cursor, columns)
    written = cursor.buffer.slices(*cursor.span("target"))
    kind, method = map_distinct(written, partial(_uri_codes, decoded.strings), 2)
    decoded.is_decoded[rows] = kind != NONE
    decoded.kind[rows], decoded.method[rows] = kind, method
    columns.starts[rows], columns.ends[rows] = cursor.span("target")


def _uri_codes(strings: StringTables, uri: bytes) -> tuple[int, int]:
    return method_codes(strings, lrpm_rows.fold_procedure, False, uri) if uri.isascii() else (NONE, NONE)


def _result(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("id")
    cursor.read_body_and_meta()
    decoded, rows = cursor.decoded, _set_ids(cursor, columns)
    decoded.is_decoded[rows] = True
    decoded.kind[rows] = cursor["result"]
    is_end = cursor["result"] == decoded.strings.kind.code("result")
    decoded.status[rows] = np.where(is_end, decoded.strings.status.code("result"), NONE)


def _error(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("id")
    cursor.read_string("uri")
    cursor.read_body_and_meta()
    decoded, rows = cursor.decoded, _set_ids(cursor, columns)
    hub = cursor["hub"]

    def read(uri: bytes) -> tuple[int, ...]:
        strings = decoded.strings
        if not uri.isascii():
            return (NONE,) * 5
        numbers = [strings.code.code(uri.decode() or None)]
        for from_hub in (False, True):
            reason = lrpm_rows.error_reason(uri.decode(), from_hub=from_hub)
            numbers += strings.status.code(STATUS_OF_REASON[reason]), strings.reason.code(reason.value)
        return tuple(numbers)

    code, status, reason, hub_status, hub_reason = map_distinct(cursor.buffer.slices(*cursor.span("uri")), read, 5)
    decoded.set_kind(rows, "failure")
    decoded.is_decoded[rows] = status != NONE
    decoded.code[rows] = code
    decoded.status[rows] = np.where(hub, hub_status, status)
    decoded.reason[rows] = np.where(hub, hub_reason, reason)


def _event(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("publication")
    cursor.read_uint("target")
    cursor.read_body_and_meta()
    decoded, rows = cursor.decoded, cursor["rows"]
    decoded.is_decoded[rows] = True
    decoded.kind[rows], decoded.topic[rows] = cursor["event"], cursor["topic"]
    columns.target[rows] = cursor["target"].view(np.uint64)
    columns.has_target[rows] = True


def _publish(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("id")
    cursor.read_string("target")
    cursor.read_body_and_meta()
    decoded, rows = cursor.decoded, _set_ids(cursor, columns)
    topic_code = decoded.strings.topic.code

    def read(topic: bytes) -> tuple[int, int]:
        return (0, topic_code(canonical_topic(topic.decode(), topics.LRPM))) if topic.isascii() else (NONE, NONE)

    known, topic = map_distinct(cursor.buffer.slices(*cursor.span("target")), read, 2)
    decoded.set_kind(rows, "publish")
    decoded.is_decoded[rows] = known >= 0
    decoded.topic[rows] = topic
    columns.starts[rows], columns.ends[rows] = cursor.span("target")


def _published(cursor: _CborCursor, columns: _IdColumns) -> None:
    cursor.read_uint("id")
    cursor.read_uint("target")
    cursor.select((cursor["ends"] - cursor["at"] == 1) & (cursor.buffer.bytes_at(cursor["at"]) == _EMPTY_META[0]))
    rows = _set_ids(cursor, columns)
    cursor.decoded.set_kind(rows, "result", "result")
    columns.target[rows] = cursor["target"].view(np.uint64)
    columns.has_target[rows] = True


_READERS: Final[tuple[tuple[int, int, Callable[[_CborCursor, _IdColumns], None]], ...]] = (
    (5, 40, _call),
    (4, 41, _result),
    (5, 60, _event),
    (5, 61, _publish),
    (4, 62, _published),
)
"""Number of items, kind, and decoder of each message."""
