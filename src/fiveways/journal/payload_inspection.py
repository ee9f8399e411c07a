"""Selection of payloads to inspect by their first and last bytes: possible handshakes and malformed payloads."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

_FIRST: Final = 0
_SECOND: Final = 1
_THIRD: Final = 2
_LAST: Final = -1


def _table(characters: bytes) -> np.ndarray:
    table = np.zeros(256, bool)
    table[list(characters)] = True
    return table


_DIGITS: Final = _table(b"0123456789")
_UMQ: Final = _table(b"MRTCSX?UZE!-")
"""Letters of UMQ except those of handshakes and attachments; the letter of an attachment precedes another letter."""
_UMQ36: Final = _table(b"CRBTSE!?DUXF-")
_ARRAY: Final = 0x80
_CBOR_UINT8: Final = 0x18

ByteAt = Callable[[int], np.ndarray]

# An LRPM message without a two-digit kind may be a handshake in an unusual encoding.
_INSPECTION_RULES: Final[Sequence[tuple[str, Callable[[ByteAt], np.ndarray]]]] = (
    ("umq", lambda byte: ~_UMQ[byte(_FIRST)]),
    ("umq36", lambda byte: ~_UMQ36[byte(_FIRST)]),
    ("lrpm-json", lambda byte: ~(_DIGITS[byte(_SECOND)] & _DIGITS[byte(_THIRD)]) | ~_is_enclosed(byte, b"[", b"]")),
    ("lrpm-cbor", lambda byte: (byte(_SECOND) != _CBOR_UINT8) | (byte(_FIRST) & 0xE0 != _ARRAY)),
    ("nq", lambda byte: ~(_is_enclosed(byte, b"[", b"]") | _is_enclosed(byte, b"{", b"}"))),
)
"""Predicate by protocol for payloads that need inspection; `byte(n)` has the n-th byte of each payload."""


def needs_inspection(data: np.ndarray, offsets: np.ndarray, protocols: Sequence[str], codes: np.ndarray) -> np.ndarray:
    """Return which payloads need inspection; the protocol of the n-th payload is `protocols[codes[n]]`."""
    selected = np.zeros(len(offsets) - 1, bool)
    start, end, last = offsets[:-1], offsets[1:], len(data) - 1

    def byte(index: int) -> np.ndarray:
        position = start + index if index >= 0 else np.maximum(end + index, 0)
        values: np.ndarray = data[np.minimum(position, last)]
        return values

    for protocol, predicate in _INSPECTION_RULES:
        if protocol in protocols:
            is_protocol = np.array([name == protocol for name in protocols])[codes]
            selected |= is_protocol & predicate(byte)
    if "lrpm-cbor" in protocols:
        is_cbor = np.array([name == "lrpm-cbor" for name in protocols])[codes]
        chunked = np.searchsorted(offsets, _chunked_string_offsets(data), side="right") - 1
        chunked = chunked[(chunked >= 0) & (chunked < len(selected))]
        selected[chunked] |= is_cbor[chunked]
    return selected & (end > start)


def _is_enclosed(byte: ByteAt, opening: bytes, closing: bytes) -> np.ndarray:
    result: np.ndarray = (byte(_FIRST) == opening[0]) & (byte(_LAST) == closing[0])
    return result


def _chunked_string_offsets(data: np.ndarray) -> np.ndarray:
    """Return the possible offsets of chunked CBOR strings: a secret's name may be split between two chunks."""
    first_bytes = data[:-1]
    candidates = np.flatnonzero((first_bytes == 0x7F) | (first_bytes == 0x5F))
    next_bytes = data[candidates + 1]
    result: np.ndarray = candidates[(next_bytes >> 5 == first_bytes[candidates] >> 5) & (next_bytes & 0x1F <= 0x1B)]
    return result
