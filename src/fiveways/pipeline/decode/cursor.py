"""Cursor of the fast paths: it steps through many frames at once and drops those that do not match."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import AnyArray, BoolArray, Int64Array
from fiveways.pipeline.decode.decoded_columns import DecodedColumns
from fiveways.pipeline.decode.json_bodies import valid_json

_MAX_DIGITS: Final = 18
"""Digits of a number that certainly fits into 63 bits."""
_MAX_TEXT_LENGTH: Final = 255
_BACKSLASH: Final = ord("\\")


class Cursor:
    """Positions in the remaining rows, with the columns read so far; dropped rows go to the general path."""

    def __init__(self, decoded: DecodedColumns, **columns: AnyArray) -> None:
        """Start at positions `at` in `rows` of the buffer, bounded by `ends`."""
        self.decoded = decoded
        self.buffer = decoded.buffer
        self.columns: dict[str, AnyArray] = columns

    def __getitem__(self, name: str) -> AnyArray:
        return self.columns[name]

    def __setitem__(self, name: str, column: AnyArray) -> None:
        self.columns[name] = column

    def __len__(self) -> int:
        return len(self["rows"])

    def select(self, good: BoolArray) -> None:
        """Keep only these rows."""
        if not good.all():
            self.columns = {name: column[good] for name, column in self.columns.items()}

    def subset(self, chosen: BoolArray) -> "Cursor":
        """Return a separate cursor over some of the rows."""
        return Cursor(self.decoded, **{name: column[chosen] for name, column in self.columns.items()})

    def skip_literal(self, text: bytes) -> None:
        """Keep rows with this text here, and step over it."""
        self.select((self["ends"] - self["at"] >= len(text)) & self.buffer.matches(self["at"], text))
        self["at"] = self["at"] + len(text)

    def read_number(self, name: str) -> None:
        """Keep rows with a whole number and a comma here; store its span and step to the comma."""
        buffer, at = self.buffer, self["at"]
        # The comma may be the first byte behind the row's own end: the one before the meta.
        comma = buffer.find(b",", at, np.maximum(self["ends"] + 1, at))
        size = comma - at
        digits = buffer.slices(at, np.maximum(comma, at)).view(pa.string())
        good = pc.ascii_is_decimal(digits).to_numpy(zero_copy_only=False)
        good &= (size <= _MAX_DIGITS) & ((buffer.bytes_at(at) != ord("0")) | (size == 1))
        self._store_span(name, at, comma)
        self["at"] = comma
        self.select(good)

    def read_text(self, name: str) -> None:
        """Keep rows with a short, unescaped string here; store its span without the quotes and step over it."""
        buffer, at = self.buffer, self["at"]
        begins = at + 1
        quote = buffer.find(b'"', begins, np.maximum(self["ends"], begins))
        size = quote - begins
        good = (buffer.bytes_at(at) == ord('"')) & (size > 0) & (size <= _MAX_TEXT_LENGTH)
        self._store_span(name, begins, quote)
        self["at"] = quote + 1
        self.select(good)

    def select_unescaped(self, name: str) -> pa.Array:
        """Keep rows with a string without escapes and control characters; return the strings."""
        buffer = self.buffer
        content = buffer.slices(*self.span(name))
        octets = np.frombuffer(content.buffers()[2] or b"", np.uint8)
        if ((octets < 0x20) | (octets == _BACKSLASH)).any():
            self.select(np.array([_is_unescaped(text) for text in content.to_pylist()], np.bool_))
            content = buffer.slices(*self.span(name))
        return content

    def read_body(self) -> None:
        """Keep rows with one JSON value as rest, and store its size as that of the body."""
        good: BoolArray = self["at"] < self["ends"]
        good[good] = valid_json(self.buffer, self["at"][good], self["ends"][good])
        self.select(good)
        self.decoded.body_size[self["rows"]] = self["ends"] - self["at"]

    def span(self, name: str) -> tuple[Int64Array, Int64Array]:
        """Return the starts and ends of a stored span."""
        return self[f"{name} from"], self[f"{name} to"]

    def _store_span(self, name: str, starts: Int64Array, ends: Int64Array) -> None:
        self[f"{name} from"], self[f"{name} to"] = starts, ends


def _is_unescaped(text: bytes) -> bool:
    return _BACKSLASH not in text and min(text, default=0x20) >= 0x20
