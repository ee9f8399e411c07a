"""Steps through many frames of one form at once; those that are not of that form fall behind, for the plain way."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.decode.bodies import are_json
from fiveways.pipeline.decode.slab import Column, Flags, Places
from fiveways.pipeline.decode.told import Told

_MOST_DIGITS: Final = 18
"""Of a number that surely has no more than 63 bits."""
_LONGEST_TEXT: Final = 255
_BACKSLASH: Final = ord("\\")


class Walk:
    """Rows that are still on the way, where each of them stands, and what is known of them."""

    def __init__(self, told: Told, **known: Column) -> None:
        """Begin with `rows` of the slab that stand `at` some place, and at most at their `ends`."""
        self.told = told
        self.slab = told.slab
        self.columns: dict[str, Column] = known

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __setitem__(self, name: str, column: Column) -> None:
        self.columns[name] = column

    def __len__(self) -> int:
        return len(self["rows"])

    def keep(self, good: Flags) -> None:
        """Go on with these alone."""
        if not good.all():
            self.columns = {name: column[good] for name, column in self.columns.items()}

    def fork(self, some: Flags) -> "Walk":
        """Return a walk of its own for some of them."""
        return Walk(self.told, **{name: column[some] for name, column in self.columns.items()})

    def skip(self, text: bytes) -> None:
        """Step over a text that must stand here."""
        self.keep((self["ends"] - self["at"] >= len(text)) & self.slab.has(self["at"], text))
        self["at"] = self["at"] + len(text)

    def number(self, name: str) -> None:
        """Step over a whole number up to the comma behind it, and remember it as a span."""
        slab, at = self.slab, self["at"]
        # The comma may be the first byte behind the rows' own end: that of the meta.
        comma = slab.find(b",", at, np.maximum(self["ends"] + 1, at))
        size = comma - at
        digits = slab.cut(at, np.maximum(comma, at)).view(pa.string())
        good = pc.ascii_is_decimal(digits).to_numpy(zero_copy_only=False)
        good &= (size <= _MOST_DIGITS) & ((slab.at(at) != ord("0")) | (size == 1))
        self._remember(name, at, comma)
        self["at"] = comma
        self.keep(good)

    def text(self, name: str) -> None:
        """Step over a short, unescaped string, both of its quotes, and remember it as a span."""
        slab, at = self.slab, self["at"]
        begins = at + 1
        quote = slab.find(b'"', begins, np.maximum(self["ends"], begins))
        size = quote - begins
        good = (slab.at(at) == ord('"')) & (size > 0) & (size <= _LONGEST_TEXT)
        self._remember(name, begins, quote)
        self["at"] = quote + 1
        self.keep(good)

    def plain(self, name: str) -> pa.Array:
        """Keep those whose string needs no closer look: no escape and no control character; return the strings."""
        slab = self.slab
        content = slab.cut(*self.span(name))
        octets = np.frombuffer(content.buffers()[2] or b"", np.uint8)
        if ((octets < 0x20) | (octets == _BACKSLASH)).any():
            self.keep(np.array([_is_plain(each) for each in content.to_pylist()], np.bool_))
            content = slab.cut(*self.span(name))
        return content

    def body(self) -> None:
        """Step over the body, which must be all that is left, and one JSON value."""
        good: Flags = self["at"] < self["ends"]
        good[good] = are_json(self.slab, self["at"][good], self["ends"][good])
        self.keep(good)
        self.told.body_size[self["rows"]] = self["ends"] - self["at"]

    def span(self, name: str) -> tuple[Places, Places]:
        """Return where what was remembered begins, and where it ends."""
        return self[f"{name} from"], self[f"{name} to"]

    def _remember(self, name: str, starts: Places, ends: Places) -> None:
        self[f"{name} from"], self[f"{name} to"] = starts, ends


def _is_plain(text: bytes) -> bool:
    return _BACKSLASH not in text and min(text, default=0x20) >= 0x20
