"""Vectorized check that bodies are valid JSON, with the same result as `wire.strict_json`.

Many bodies are decoded together as one array. All of them are single values if the items of the array have the same
lengths as the bodies; otherwise each body is checked by itself.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Malformed
from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.wire import strict_json

GROUP_SIZE: Final = 128
"""Bodies checked together; one invalid body makes all of them be checked one by one."""
MAX_GROUPED_BODY: Final = 200
"""Bytes; such a short body cannot contain a too long number or be nested too deeply."""
_SPACE: Final = ord(" ")
"""A JSON value begins and ends with bytes greater than this."""
_ZERO: Final = np.uint8(ord("0"))
_decode_raw_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError)


def valid_json(buffer: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Return which spans are JSON; they must be valid UTF-8, or lie in rows that are."""
    good = np.zeros(len(starts), np.bool_)
    sizes = ends - starts
    filled = sizes > 0
    fitting = filled & (buffer.bytes_at(starts) > _SPACE) & (buffer.bytes_at(np.maximum(ends - 1, 0)) > _SPACE)
    rows = np.flatnonzero(fitting & (sizes <= MAX_GROUPED_BODY))
    bodies = buffer.slices(starts[rows], ends[rows])
    exponents = _rows_with_large_exponents(bodies)
    if len(exponents):
        rows = np.delete(rows, exponents)
        bodies = buffer.slices(starts[rows], ends[rows])
    fitting[rows] = False
    doubtful = [np.flatnonzero(fitting)]
    for first, is_good in enumerate(_check_groups(bodies, sizes[rows])):
        group = rows[first * GROUP_SIZE : (first + 1) * GROUP_SIZE]
        if is_good:
            good[group] = True
        else:
            doubtful.append(group)
    rest = np.concatenate(doubtful)
    if len(rest):
        rest.sort()
        good[rest] = [_is_json(body) for body in buffer.slices(starts[rest], ends[rest]).to_pylist()]
    return good


def _check_groups(bodies: pa.Array, sizes: Int64Array) -> list[bool]:
    count = len(bodies)
    bounds = np.append(np.arange(0, count, GROUP_SIZE, dtype=np.int32), np.int32(count))
    groups = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), bodies), b",").to_pylist()
    lengths = sizes.tolist()
    valid = []
    for first, group in zip(bounds.tolist(), groups, strict=False):
        try:
            items = _decode_raw_items(b"[%b]" % group)
        except _DECODE_ERRORS:
            valid.append(False)
        else:
            valid.append(list(map(len, items)) == lengths[first : first + GROUP_SIZE])
    return valid


def _is_json(body: bytes) -> bool:
    try:
        strict_json.check(body)
    except Malformed:
        return False
    return True


def _rows_with_large_exponents(bodies: pa.Array) -> Int64Array:
    """Return bodies with a possible three-digit exponent; such a number may not be a finite double."""
    buffer = PayloadBuffer(bodies)
    data = buffer.data
    if len(data) < len("1e100"):
        return np.zeros(0, np.int64)
    near = (data[1:] | 0x20) == ord("e")
    near &= data[:-1] - _ZERO < 10
    marks = np.flatnonzero(near) + 1
    if len(marks):
        for step in (1, 2, 3):
            octets = buffer.bytes_at(marks + step)
            marks = marks[(octets - _ZERO < 10) | (octets == ord("+"))]
    return np.unique(np.searchsorted(buffer.ends, marks, side="right"))
