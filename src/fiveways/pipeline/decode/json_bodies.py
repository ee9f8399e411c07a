"""Whether bodies are JSON, as `wire/jsontext` has it: of many at once, and of each where that does not tell.

Many bodies are read as one array by the reader that the protocols use. Each is one value exactly if the array's items
are as long as the bodies are, one by one.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Malformed
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer
from fiveways.wire import strict_json

GROUP_SIZE: Final = 128
"""Bodies that are read together: one that is bad among them costs all of them a closer look."""
MAX_GROUPED_BODY: Final = 200
"""In so few bytes no number can be too long and nothing nested too deep."""
_SPACE: Final = ord(" ")
"""No value begins or ends with a byte that is not greater."""
_ZERO: Final = np.uint8(ord("0"))
_decode_raw_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError)


def valid_json(slab: PayloadBuffer, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Tell which spans are JSON. They must be valid UTF-8, or lie in rows that are."""
    good = np.zeros(len(starts), np.bool_)
    sizes = ends - starts
    filled = sizes > 0
    fitting = filled & (slab.bytes_at(starts) > _SPACE) & (slab.bytes_at(np.maximum(ends - 1, 0)) > _SPACE)
    rows = np.flatnonzero(fitting & (sizes <= MAX_GROUPED_BODY))
    bodies = slab.slices(starts[rows], ends[rows])
    exponents = _rows_with_large_exponents(bodies)
    if len(exponents):
        rows = np.delete(rows, exponents)
        bodies = slab.slices(starts[rows], ends[rows])
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
        good[rest] = [_is_json(each) for each in slab.slices(starts[rest], ends[rest]).to_pylist()]
    return good


def _check_groups(bodies: pa.Array, sizes: Int64Array) -> list[bool]:
    count = len(bodies)
    bounds = np.append(np.arange(0, count, GROUP_SIZE, dtype=np.int32), np.int32(count))
    groups = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), bodies), b",").to_pylist()
    lengths = sizes.tolist()
    found = []
    for first, group in zip(bounds.tolist(), groups, strict=False):
        try:
            items = _decode_raw_items(b"[%b]" % group)
        except _DECODE_ERRORS:
            found.append(False)
        else:
            found.append(list(map(len, items)) == lengths[first : first + GROUP_SIZE])
    return found


def _is_json(body: bytes) -> bool:
    try:
        strict_json.check(body)
    except Malformed:
        return False
    return True


def _rows_with_large_exponents(bodies: pa.Array) -> Int64Array:
    """Return which may hold a number with an exponent of three digits: it may be no finite double."""
    found = PayloadBuffer(bodies)
    data = found.data
    if len(data) < len("1e100"):
        return np.zeros(0, np.int64)
    near = (data[1:] | 0x20) == ord("e")
    near &= data[:-1] - _ZERO < 10
    marks = np.flatnonzero(near) + 1
    if len(marks):
        for step in (1, 2, 3):
            octets = found.bytes_at(marks + step)
            marks = marks[(octets - _ZERO < 10) | (octets == ord("+"))]
    return np.unique(np.searchsorted(found.ends, marks, side="right"))
