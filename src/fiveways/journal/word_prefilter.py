"""Finds places in a buffer where one of a few words may begin, whatever its case: mostly there is none."""

from collections.abc import Collection
from itertools import pairwise
from typing import Final

import numpy as np

_TAIL: Final = 5
"""Bytes at the end of a word: the first four or the last four of them begin at an even offset."""
_EXACT, _NEXT, _PREVIOUS = 1, 2, 4
"""Neighbours of a pair of bytes to compare: the next pair, its first byte, the last byte of the previous pair."""
_CASE: Final = 0x20
"""This bit is set in lower-case letters. Other characters become equal to more of their kind, which costs a look."""


class WordPrefilter:
    """Compares two bytes at a time with a table, and their neighbours where the table has them."""

    def __init__(self, words: Collection[bytes]) -> None:
        """Prepare the tables; a word of fewer than three bytes may be anywhere."""
        self._matches_everywhere = any(len(word) < _TAIL - 2 for word in words)
        self._candidate_pairs = np.zeros(1 << 16, bool)
        """For every two bytes, whether something has to be compared."""
        wanted: dict[int, set[int]] = {_EXACT: set(), _NEXT: set(), _PREVIOUS: set()}
        for word in words:
            for kind, pair, other in _tail_entries(bytes(byte | _CASE for byte in word[-_TAIL:])):
                wanted[kind].add(pair << 16 | other)
                self._candidate_pairs[pair] = True
        self._neighbours = {kind: np.array(sorted(found), np.uint32) for kind, found in wanted.items()}

    def find_candidates(self, data: np.ndarray) -> np.ndarray:
        """Return offsets at or beside which a word may be; outside of these there is none."""
        if self._matches_everywhere:
            return np.arange(0, len(data), 2)
        pairs = _fold_to_pairs(data)
        at = np.flatnonzero(self._candidate_pairs.take(pairs[:-1]))
        if not len(at):
            return at
        here, behind, before = pairs[at], pairs[at + 1], pairs[np.maximum(at - 1, 0)]
        found = self._matches_neighbour(_EXACT, here, behind)
        found |= self._matches_neighbour(_NEXT, here, behind & 0xFF)
        found |= self._matches_neighbour(_PREVIOUS, here, before >> 8)
        places: np.ndarray = at[found] * 2
        return places

    def _matches_neighbour(self, kind: int, pair: np.ndarray, other: np.ndarray) -> np.ndarray:
        wanted = self._neighbours[kind]
        if not len(wanted):
            return np.zeros(len(pair), bool)
        both = pair.astype(np.uint32) << 16 | other
        found: np.ndarray = wanted[np.minimum(np.searchsorted(wanted, both), len(wanted) - 1)] == both
        return found


def _tail_entries(tail: bytes) -> list[tuple[int, int, int]]:
    """Return how the end of a word is found at an even offset and at an odd one: what to compare, a pair, the other."""
    pairs = [low | high << 8 for low, high in pairwise(tail)]
    match len(tail):
        case 5:
            return [(_EXACT, pairs[0], pairs[2]), (_EXACT, pairs[1], pairs[3])]
        case 4:
            return [(_EXACT, pairs[0], pairs[2]), (_NEXT, pairs[1], tail[3])]
        case 3:
            return [(_NEXT, pairs[0], tail[2]), (_PREVIOUS, pairs[1], tail[0])]
        case _:
            return []


def _fold_to_pairs(data: np.ndarray) -> np.ndarray:
    """Return the bytes without case, in pairs, with at least a pair behind the last."""
    padded = np.full(len(data) + 4 - len(data) % 2, _CASE, np.uint8)
    np.bitwise_or(data, _CASE, out=padded[: len(data)])
    pairs: np.ndarray = padded.view("<u2")
    return pairs
