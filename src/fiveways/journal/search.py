"""Whether one of a few words occurs in a lot of bytes: mostly it does not, and that is to be known quickly."""

from collections.abc import Collection
from typing import Final

import numpy as np

_TAIL: Final = 5
"""Bytes at the end of a word. Wherever they lie, four of them begin at an even place: the first four, or the last."""


class Search:
    """Looks for the ends of words, two bytes at a time, and at the next two where those occur."""

    def __init__(self, words: Collection[bytes]) -> None:
        tails = [word[-_TAIL:] for word in words]
        self._is_any = any(len(tail) < _TAIL for tail in tails)
        """A word is too short to be looked for like this: it may be anywhere."""
        fours = np.frombuffer(b"".join(tail[:4] + tail[1:] for tail in tails if len(tail) == _TAIL), np.uint16)
        self._fours = np.unique(_both(fours[::2], fours[1::2]))
        self._begins = np.zeros(1 << 16, bool)
        """For every two bytes, whether they begin one of these."""
        self._begins[fours[::2]] = True

    def may_find(self, data: np.ndarray) -> bool:
        """Say whether one of the words may be there; if not, none is."""
        if self._is_any:
            return True
        pairs = data[: len(data) // 2 * 2].view(np.uint16)
        at = np.flatnonzero(self._begins.take(pairs[:-1]))
        if not len(at):
            return False
        found = _both(pairs[at], pairs[at + 1])
        places = np.minimum(np.searchsorted(self._fours, found), len(self._fours) - 1)
        return bool((self._fours[places] == found).any())


def _both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    both: np.ndarray = first.astype(np.uint32) << 16 | second
    return both
