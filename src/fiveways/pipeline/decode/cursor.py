"""Steps through many frames of one form at once; those that are not of that form fall behind, for the plain way."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.decode.decoded_columns import DecodedColumns
from fiveways.pipeline.decode.json_bodies import valid_json
from fiveways.pipeline.decode.payload_buffer import AnyArray, BoolArray, Int64Array

_MAX_DIGITS: Final = 18
"""Of a number that surely has no more than 63 bits."""
_MAX_TEXT_LENGTH: Final = 255
_BACKSLASH: Final = ord("\\")


class Cursor:
    """Rows that are still on the way, where each of them stands, and what is known of them."""

    def __init__(self, told: DecodedColumns, **known: AnyArray) -> None:
        """Begin with `rows` of the slab that stand `at` some place, and at most at their `ends`."""
        self.decoded = told
        self.buffer = told.buffer
        self.columns: dict[str, AnyArray] = known

    def __getitem__(self, name: str) -> AnyArray:
        return self.columns[name]

    def __setitem__(self, name: str, column: AnyArray) -> None:
        self.columns[name] = column

    def __len__(self) -> int:
        return len(self["rows"])

    def select(self, good: BoolArray) -> None:
        """Go on with these alone."""
        if not good.all():
            self.columns = {name: column[good] for name, column in self.columns.items()}

    def subset(self, some: BoolArray) -> "Cursor":
        """Return a walk of its own for some of them."""
        return Cursor(self.decoded, **{name: column[some] for name, column in self.columns.items()})

    def skip_literal(self, text: bytes) -> None:
        """Step over a text that must stand here."""
        self.select((self["ends"] - self["at"] >= len(text)) & self.buffer.matches(self["at"], text))
        self["at"] = self["at"] + len(text)

    def read_number(self, name: str) -> None:
        """Step over a whole number up to the comma behind it, and remember it as a span."""
        slab, at = self.buffer, self["at"]
        # The comma may be the first byte behind the rows' own end: that of the meta.
        comma = slab.find(b",", at, np.maximum(self["ends"] + 1, at))
        size = comma - at
        digits = slab.slices(at, np.maximum(comma, at)).view(pa.string())
        good = pc.ascii_is_decimal(digits).to_numpy(zero_copy_only=False)
        good &= (size <= _MAX_DIGITS) & ((slab.bytes_at(at) != ord("0")) | (size == 1))
        self._store_span(name, at, comma)
        self["at"] = comma
        self.select(good)

    def read_text(self, name: str) -> None:
        """Step over a short, unescaped string, both of its quotes, and remember it as a span."""
        slab, at = self.buffer, self["at"]
        begins = at + 1
        quote = slab.find(b'"', begins, np.maximum(self["ends"], begins))
        size = quote - begins
        good = (slab.bytes_at(at) == ord('"')) & (size > 0) & (size <= _MAX_TEXT_LENGTH)
        self._store_span(name, begins, quote)
        self["at"] = quote + 1
        self.select(good)

    def select_unescaped(self, name: str) -> pa.Array:
        """Keep those whose string needs no closer look: no escape and no control character; return the strings."""
        slab = self.buffer
        content = slab.slices(*self.span(name))
        octets = np.frombuffer(content.buffers()[2] or b"", np.uint8)
        if ((octets < 0x20) | (octets == _BACKSLASH)).any():
            self.select(np.array([_is_unescaped(each) for each in content.to_pylist()], np.bool_))
            content = slab.slices(*self.span(name))
        return content

    def read_body(self) -> None:
        """Step over the body, which must be all that is left, and one JSON value."""
        good: BoolArray = self["at"] < self["ends"]
        good[good] = valid_json(self.buffer, self["at"][good], self["ends"][good])
        self.select(good)
        self.decoded.body_size[self["rows"]] = self["ends"] - self["at"]

    def span(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Return where what was remembered begins, and where it ends."""
        return self[f"{name} from"], self[f"{name} to"]

    def _store_span(self, name: str, starts: Int64Array, ends: Int64Array) -> None:
        self[f"{name} from"], self[f"{name} to"] = starts, ends


def _is_unescaped(text: bytes) -> bool:
    return _BACKSLASH not in text and min(text, default=0x20) >= 0x20
