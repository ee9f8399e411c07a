"""Fast path for UMQ 1.0.0 and UMQ36: common calls, results, failures and updates, many frames at once."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Reason
from fiveways.model import names
from fiveways.model.names import NameStyle
from fiveways.pipeline.arrays import BoolArray, Int64Array, UInt8Array
from fiveways.pipeline.decode import message_row, umq_rows
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct, method_codes
from fiveways.pipeline.decode.json_bodies import valid_json
from fiveways.pipeline.decode.message_row import STATUS_OF_REASON
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer

_MAX_ID_LENGTH: Final = 255
_MAX_ID_DIGITS: Final = 12
"""Base-36 digits of an id that certainly fits into 64 bits."""
_CODE_WINDOW: Final = 10
"""Bytes in which a failure code and the blank behind it must lie."""


def scan(buffer: PayloadBuffer, from_hub: BoolArray, strings: StringTables) -> DecodedColumns:
    """Decode frames of UMQ 1.0.0."""
    decoded = DecodedColumns(buffer, strings)
    line = buffer.find(b"\n", buffer.starts, buffer.ends)
    size = line - buffer.starts
    good = buffer.valid_utf8() & (size >= 2) & (size <= _MAX_ID_LENGTH + 1)
    letter = buffer.bytes_at(buffer.starts)
    calls = np.flatnonzero(good & (letter == ord("M")))
    if len(calls):
        _decode_calls(decoded, calls, line[calls] + 1)
    _decode_others(decoded, letter, good, line, from_hub, umq_rows.umq_reason)
    return decoded


def scan36(buffer: PayloadBuffer, from_hub: BoolArray, strings: StringTables) -> DecodedColumns:
    """Decode frames of UMQ36."""
    decoded = DecodedColumns(buffer, strings)
    line = buffer.find(b":", buffer.starts, buffer.ends)
    size = line - buffer.starts
    good = buffer.valid_utf8() & (size >= 2) & (size <= _MAX_ID_DIGITS + 1)
    _drop_invalid_ids(buffer, good, line)
    letter = buffer.bytes_at(buffer.starts)
    calls = np.flatnonzero(good & (letter == ord("C")))
    if len(calls):
        _decode_array_calls(decoded, calls, line[calls])
    _decode_others(decoded, letter, good, line, from_hub, umq_rows.umq36_reason)
    return decoded


def _drop_invalid_ids(buffer: PayloadBuffer, good: BoolArray, line: Int64Array) -> None:
    """Clear rows with an id that is not in upper-case digits, or has a leading zero."""
    rows = np.flatnonzero(good)
    numbers = buffer.slices(buffer.starts[rows] + 1, line[rows]).view(pa.string())
    digits = pc.and_(pc.ascii_is_alnum(numbers), pc.equal(numbers, pc.ascii_upper(numbers)))
    good[rows] = digits.to_numpy(zero_copy_only=False) & (buffer.bytes_at(buffer.starts[rows] + 1) != ord("0"))


def _decode_calls(decoded: DecodedColumns, rows: Int64Array, names_at: Int64Array) -> None:
    buffer = decoded.buffer
    ends = buffer.ends[rows]
    line = buffer.find(b"\n", names_at, ends)
    whole = line >= 0
    rows, names_at, line, ends = rows[whole], names_at[whole], line[whole], ends[whole]
    _set_method(decoded, rows, names_at, line, names.UMQ, quoted=False)
    decoded.ids.set_spans(rows, buffer.starts[rows] + 1, names_at - 1)
    decoded.body_size[rows] = ends - line - 1


def _decode_array_calls(decoded: DecodedColumns, rows: Int64Array, colon: Int64Array) -> None:
    """Decode calls with an array of the method and its arguments as payload."""
    buffer = decoded.buffer
    ends = buffer.ends[rows]
    array = (ends - colon > len(':[""]')) & buffer.matches(colon + 1, b'["') & (buffer.bytes_at(ends - 1) == ord("]"))
    rows, colon, ends = rows[array], colon[array], ends[array]
    quote = buffer.find(b'"', colon + 3, ends)
    behind = buffer.bytes_at(quote + 1)
    alone = (quote >= 0) & (quote + 2 == ends)
    several = (quote >= 0) & (behind == ord(",")) & (quote + 3 < ends)
    several[several] = valid_json(buffer, colon[several] + 1, ends[several]) & _without_outer_space(
        buffer, quote[several] + 2, ends[several] - 1
    )
    good = alone | several
    rows, colon, ends, quote = rows[good], colon[good], ends[good], quote[good]
    _set_method(decoded, rows, colon + 3, quote, names.UMQ36, quoted=True)
    decoded.ids.set_spans(rows, buffer.starts[rows] + 1, colon)
    decoded.body_size[rows] = np.maximum(ends - quote - 3, 0)


def _without_outer_space(buffer: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Return which spans have no whitespace at either end."""
    return (buffer.bytes_at(starts) > ord(" ")) & (buffer.bytes_at(ends - 1) > ord(" "))


def _set_method(
    decoded: DecodedColumns, rows: Int64Array, starts: Int64Array, ends: Int64Array, style: NameStyle, *, quoted: bool
) -> None:
    """Decode calls from the spans of their method names."""
    written = decoded.buffer.slices(starts, ends)
    read = partial(method_codes, decoded.strings, partial(message_row.fold_or_none, style=style), quoted)
    kind, method = map_distinct(written, read, 2)
    is_known = kind != NONE
    decoded.is_decoded[rows] = is_known
    decoded.kind[rows] = kind
    decoded.method[rows] = method
    decoded.targets.set_spans(rows, starts, ends)


ReasonReader = Callable[..., tuple[Reason, str | None]]


def _decode_others(
    decoded: DecodedColumns,
    letter: UInt8Array,
    good: BoolArray,
    line: Int64Array,
    from_hub: BoolArray,
    reason_of: ReasonReader,
) -> None:
    buffer = decoded.buffer
    results = np.flatnonzero(good & (letter == ord("R")))
    decoded.set_kind(results, "result", "result")
    events = np.flatnonzero(good & (letter == ord("T")))
    decoded.set_kind(events, "event")
    decoded.targets.set_spans(events, buffer.starts[events] + 1, line[events])
    parts = [results, events]
    for sign in "E!":
        for hub in (False, True):
            rows = np.flatnonzero(good & (letter == ord(sign)) & (from_hub == hub))
            if len(rows):
                _decode_failures(decoded, rows, line[rows] + 1, partial(reason_of, letter=sign, from_hub=hub))
                decoded.ids.set_spans(rows, buffer.starts[rows] + 1, line[rows])
                parts.append(rows)
    decoded.ids.set_spans(results, buffer.starts[results] + 1, line[results])
    for rows in parts:
        decoded.body_size[rows] = buffer.ends[rows] - line[rows] - 1


def _decode_failures(decoded: DecodedColumns, rows: Int64Array, texts_at: Int64Array, reason_of: ReasonReader) -> None:
    decoded.set_kind(rows, "failure")
    heads = decoded.buffer.slices(texts_at, np.minimum(texts_at + _CODE_WINDOW, decoded.buffer.ends[rows]))

    def read(head: bytes) -> tuple[int, int, int]:
        reason, code = reason_of(head.decode(errors="ignore"))
        strings = decoded.strings
        return (
            strings.status.code(STATUS_OF_REASON[reason]),
            strings.reason.code(reason.value),
            strings.code.code(code),
        )

    decoded.status[rows], decoded.reason[rows], decoded.code[rows] = map_distinct(heads, read, 3)
