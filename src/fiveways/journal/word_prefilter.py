"""Prefilter for a few words in a buffer, independent of case. It is fast because most buffers contain none."""

from collections.abc import Collection
from itertools import pairwise
from typing import Final

import numpy as np

_TAIL: Final = 5
"""Bytes to compare at the end of a word: its first four or last four bytes begin at an even offset."""
_EXACT, _NEXT, _PREVIOUS = 1, 2, 4
"""Neighbours of a byte pair to compare: the next pair, its first byte, or the last byte of the previous pair."""
_CASE: Final = 0x20
"""The bit that is set in lower-case letters. Setting it merges some other characters, which causes false candidates."""


class WordPrefilter:
    """Looks up byte pairs in a table, and compares the neighbours of candidates."""

    def __init__(self, words: Collection[bytes]) -> None:
        """Build the tables; a word of fewer than three bytes makes all offsets candidates."""
        self._matches_everywhere = any(len(word) < _TAIL - 2 for word in words)
        self._candidate_pairs = np.zeros(1 << 16, bool)
        """For each byte pair, whether its neighbours must be compared."""
        neighbours: dict[int, set[int]] = {_EXACT: set(), _NEXT: set(), _PREVIOUS: set()}
        for word in words:
            for kind, pair, neighbour in _tail_entries(bytes(byte | _CASE for byte in word[-_TAIL:])):
                neighbours[kind].add(pair << 16 | neighbour)
                self._candidate_pairs[pair] = True
        self._neighbours = {kind: np.array(sorted(values), np.uint32) for kind, values in neighbours.items()}

    def find_candidates(self, data: np.ndarray) -> np.ndarray:
        """Return offsets at or next to which a word may be; all other offsets are excluded."""
        if self._matches_everywhere:
            return np.arange(0, len(data), 2)
        pairs = _fold_to_pairs(data)
        indices = np.flatnonzero(self._candidate_pairs.take(pairs[:-1]))
        if not len(indices):
            return indices
        current, following, preceding = pairs[indices], pairs[indices + 1], pairs[np.maximum(indices - 1, 0)]
        is_match = self._matches_neighbour(_EXACT, current, following)
        is_match |= self._matches_neighbour(_NEXT, current, following & 0xFF)
        is_match |= self._matches_neighbour(_PREVIOUS, current, preceding >> 8)
        offsets: np.ndarray = indices[is_match] * 2
        return offsets

    def _matches_neighbour(self, kind: int, pair: np.ndarray, neighbour: np.ndarray) -> np.ndarray:
        entries = self._neighbours[kind]
        if not len(entries):
            return np.zeros(len(pair), bool)
        keys = pair.astype(np.uint32) << 16 | neighbour
        result: np.ndarray = entries[np.minimum(np.searchsorted(entries, keys), len(entries) - 1)] == keys
        return result


def _tail_entries(tail: bytes) -> list[tuple[int, int, int]]:
    """Return the table entries for the end of a word at an even and at an odd offset.

    Each entry is the kind of neighbour, the pair, and the neighbour.
    """
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
    """Return the bytes without case as pairs, with padding of at least one pair."""
    padded = np.full(len(data) + 4 - len(data) % 2, _CASE, np.uint8)
    np.bitwise_or(data, _CASE, out=padded[: len(data)])
    pairs: np.ndarray = padded.view("<u2")
    return pairs
