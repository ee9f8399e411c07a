"""Plain calls, results, failures and updates of both dialects of UMQ, many at once."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Reason
from fiveways.model import names
from fiveways.model.names import NameStyle
from fiveways.pipeline.decode import message_row as told_rows
from fiveways.pipeline.decode import umq_rows
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.json_bodies import valid_json
from fiveways.pipeline.decode.message_row import STATUS_OF_REASON
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer, UInt8Array

_MAX_ID_LENGTH: Final = 255
_MAX_ID_DIGITS: Final = 12
"""Of base 36: too few to be beyond 64 bits."""
_CODE_WINDOW: Final = 10
"""Bytes in which a code and the blank behind it stand, if a text has one."""
_CONTROLS: Final = frozenset(range(0x20))
_BACKSLASH: Final = ord("\\")


def scan(slab: PayloadBuffer, from_hub: BoolArray, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of UMQ 1.0.0."""
    told = DecodedColumns(slab, vocabulary)
    line = slab.find(b"\n", slab.starts, slab.ends)
    size = line - slab.starts
    plain = slab.valid_utf8() & (size >= 2) & (size <= _MAX_ID_LENGTH + 1)
    letter = slab.bytes_at(slab.starts)
    calls = np.flatnonzero(plain & (letter == ord("M")))
    if len(calls):
        _decode_calls(told, calls, line[calls] + 1)
    _decode_others(told, letter, plain, line, from_hub, umq_rows.umq_reason)
    return told


def scan36(slab: PayloadBuffer, from_hub: BoolArray, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of UMQ36."""
    told = DecodedColumns(slab, vocabulary)
    line = slab.find(b":", slab.starts, slab.ends)
    size = line - slab.starts
    plain = slab.valid_utf8() & (size >= 2) & (size <= _MAX_ID_DIGITS + 1)
    _drop_invalid_ids(slab, plain, line)
    letter = slab.bytes_at(slab.starts)
    calls = np.flatnonzero(plain & (letter == ord("C")))
    if len(calls):
        _decode_array_calls(told, calls, line[calls])
    _decode_others(told, letter, plain, line, from_hub, umq_rows.umq36_reason)
    return told


def _drop_invalid_ids(slab: PayloadBuffer, plain: BoolArray, line: Int64Array) -> None:
    """Leave what is not written in digits without a zero before them."""
    rows = np.flatnonzero(plain)
    numbers = slab.slices(slab.starts[rows] + 1, line[rows]).view(pa.string())
    digits = pc.and_(pc.ascii_is_alnum(numbers), pc.equal(numbers, pc.ascii_upper(numbers)))
    plain[rows] = digits.to_numpy(zero_copy_only=False) & (slab.bytes_at(slab.starts[rows] + 1) != ord("0"))


def _decode_calls(told: DecodedColumns, rows: Int64Array, names_at: Int64Array) -> None:
    slab = told.buffer
    ends = slab.ends[rows]
    line = slab.find(b"\n", names_at, ends)
    whole = line >= 0
    rows, names_at, line, ends = rows[whole], names_at[whole], line[whole], ends[whole]
    _set_method(told, rows, names_at, line, names.UMQ, quoted=False)
    told.ids.set_spans(rows, slab.starts[rows] + 1, names_at - 1)
    told.body_size[rows] = ends - line - 1


def _decode_array_calls(told: DecodedColumns, rows: Int64Array, colon: Int64Array) -> None:
    """Tell of calls whose payload is an array of the method and its arguments."""
    slab = told.buffer
    ends = slab.ends[rows]
    array = (ends - colon > len(':[""]')) & slab.matches(colon + 1, b'["') & (slab.bytes_at(ends - 1) == ord("]"))
    rows, colon, ends = rows[array], colon[array], ends[array]
    quote = slab.find(b'"', colon + 3, ends)
    behind = slab.bytes_at(quote + 1)
    alone = (quote >= 0) & (quote + 2 == ends)
    several = (quote >= 0) & (behind == ord(",")) & (quote + 3 < ends)
    several[several] = valid_json(slab, colon[several] + 1, ends[several]) & _without_outer_space(
        slab, quote[several] + 2, ends[several] - 1
    )
    good = alone | several
    rows, colon, ends, quote = rows[good], colon[good], ends[good], quote[good]
    _set_method(told, rows, colon + 3, quote, names.UMQ36, quoted=True)
    told.ids.set_spans(rows, slab.starts[rows] + 1, colon)
    told.body_size[rows] = np.maximum(ends - quote - 3, 0)


def _without_outer_space(slab: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Tell which spans have no blank at either end."""
    return (slab.bytes_at(starts) > ord(" ")) & (slab.bytes_at(ends - 1) > ord(" "))


def _set_method(
    told: DecodedColumns, rows: Int64Array, starts: Int64Array, ends: Int64Array, style: NameStyle, *, quoted: bool
) -> None:
    """Tell of calls by what they call."""
    written = told.buffer.slices(starts, ends)
    read = partial(method_codes, told.strings, partial(told_rows.fold_or_none, style=style), quoted)
    kind, method = map_distinct(written, read, 2)
    sure = kind != NONE
    told.is_decoded[rows] = sure
    told.kind[rows] = kind
    told.method[rows] = method
    told.targets.set_spans(rows, starts, ends)


def method_codes(
    words: StringTables, fold: Callable[[str], str | None], quoted: bool, written: bytes
) -> tuple[int, int]:
    """Return the kind of a request and its method, by number; NONE for what takes a closer look."""
    if quoted and (_BACKSLASH in written or not _CONTROLS.isdisjoint(written)):
        return NONE, NONE
    method = fold(written.decode())
    if method in told_rows.METHODS_WITH_TOPIC:
        return NONE, NONE
    if method is not None and method.startswith(told_rows.CALLBACK_PREFIX):
        return words.kind.code("callback"), NONE
    return words.kind.code("call"), words.method.code(method)


ReasonReader = Callable[..., tuple[Reason, str | None]]


def _decode_others(
    told: DecodedColumns,
    letter: UInt8Array,
    plain: BoolArray,
    line: Int64Array,
    from_hub: BoolArray,
    reason_of: ReasonReader,
) -> None:
    slab = told.buffer
    results = np.flatnonzero(plain & (letter == ord("R")))
    told.set_kind(results, "result", "result")
    events = np.flatnonzero(plain & (letter == ord("T")))
    told.set_kind(events, "event")
    told.targets.set_spans(events, slab.starts[events] + 1, line[events])
    parts = [results, events]
    for sign in "E!":
        for hub in (False, True):
            rows = np.flatnonzero(plain & (letter == ord(sign)) & (from_hub == hub))
            if len(rows):
                _decode_failures(told, rows, line[rows] + 1, partial(reason_of, letter=sign, from_hub=hub))
                told.ids.set_spans(rows, slab.starts[rows] + 1, line[rows])
                parts.append(rows)
    told.ids.set_spans(results, slab.starts[results] + 1, line[results])
    for rows in parts:
        told.body_size[rows] = slab.ends[rows] - line[rows] - 1


def _decode_failures(told: DecodedColumns, rows: Int64Array, texts_at: Int64Array, reason_of: ReasonReader) -> None:
    told.set_kind(rows, "failure")
    beginnings = told.buffer.slices(texts_at, np.minimum(texts_at + _CODE_WINDOW, told.buffer.ends[rows]))

    def read(beginning: bytes) -> tuple[int, int, int]:
        reason, code = reason_of(beginning.decode(errors="ignore"))
        words = told.strings
        return (
            words.status.code(STATUS_OF_REASON[reason]),
            words.reason.code(reason.value),
            words.code.code(code),
        )

    told.status[rows], told.reason[rows], told.code[rows] = map_distinct(beginnings, read, 3)
