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
from fiveways.pipeline.decode.slab import Flags, Places, Slab
from fiveways.wire import jsontext

TOGETHER: Final = 128
"""Bodies that are read together: one that is bad among them costs all of them a closer look."""
SHORT: Final = 200
"""In so few bytes no number can be too long and nothing nested too deep."""
_BLANK: Final = ord(" ")
"""No value begins or ends with a byte that is not greater."""
_ZERO: Final = np.uint8(ord("0"))
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BAD: Final = (msgspec.DecodeError, RecursionError)


def are_json(slab: Slab, starts: Places, ends: Places) -> Flags:
    """Tell which spans are JSON. They must be valid UTF-8, or lie in rows that are."""
    good = np.zeros(len(starts), np.bool_)
    sizes = ends - starts
    filled = sizes > 0
    fitting = filled & (slab.at(starts) > _BLANK) & (slab.at(np.maximum(ends - 1, 0)) > _BLANK)
    rows = np.flatnonzero(fitting & (sizes <= SHORT))
    bodies = slab.cut(starts[rows], ends[rows])
    exponents = _rows_with_exponents(bodies)
    if len(exponents):
        rows = np.delete(rows, exponents)
        bodies = slab.cut(starts[rows], ends[rows])
    fitting[rows] = False
    doubtful = [np.flatnonzero(fitting)]
    for first, is_good in enumerate(_read_together(bodies, sizes[rows])):
        group = rows[first * TOGETHER : (first + 1) * TOGETHER]
        if is_good:
            good[group] = True
        else:
            doubtful.append(group)
    rest = np.concatenate(doubtful)
    if len(rest):
        rest.sort()
        good[rest] = [_is_json(each) for each in slab.cut(starts[rest], ends[rest]).to_pylist()]
    return good


def _read_together(bodies: pa.Array, sizes: Places) -> list[bool]:
    count = len(bodies)
    bounds = np.append(np.arange(0, count, TOGETHER, dtype=np.int32), np.int32(count))
    groups = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), bodies), b",").to_pylist()
    lengths = sizes.tolist()
    found = []
    for first, group in zip(bounds.tolist(), groups, strict=False):
        try:
            items = _items(b"[%b]" % group)
        except _BAD:
            found.append(False)
        else:
            found.append(list(map(len, items)) == lengths[first : first + TOGETHER])
    return found


def _is_json(body: bytes) -> bool:
    try:
        jsontext.check(body)
    except Malformed:
        return False
    return True


def _rows_with_exponents(bodies: pa.Array) -> Places:
    """Return which may hold a number with an exponent of three digits: it may be no finite double."""
    found = Slab(bodies)
    data = found.data
    if len(data) < len("1e100"):
        return np.zeros(0, np.int64)
    near = (data[1:] | 0x20) == ord("e")
    near &= data[:-1] - _ZERO < 10
    marks = np.flatnonzero(near) + 1
    if len(marks):
        for step in (1, 2, 3):
            octets = found.at(marks + step)
            marks = marks[(octets - _ZERO < 10) | (octets == ord("+"))]
    return np.unique(np.searchsorted(found.ends, marks, side="right"))
