"""Payloads to look at by their first and last bytes: those that may be handshakes, and those that may be malformed."""

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
"""Letters of UMQ but those of handshakes, and of attachments, which stand before another one."""
_UMQ36: Final = _table(b"CRBTSE!?DUXF-")
_ARRAY: Final = 0x80
_CBOR_UINT8: Final = 0x18

ByteAt = Callable[[int], np.ndarray]

# An LRPM message whose kind has not two digits may be a handshake, written in an unusual way.
_INSPECTION_RULES: Final[Sequence[tuple[str, Callable[[ByteAt], np.ndarray]]]] = (
    ("umq", lambda byte: ~_UMQ[byte(_FIRST)]),
    ("umq36", lambda byte: ~_UMQ36[byte(_FIRST)]),
    ("lrpm-json", lambda byte: ~(_DIGITS[byte(_SECOND)] & _DIGITS[byte(_THIRD)]) | ~_is_enclosed(byte, b"[", b"]")),
    ("lrpm-cbor", lambda byte: (byte(_SECOND) != _CBOR_UINT8) | (byte(_FIRST) & 0xE0 != _ARRAY)),
    ("nq", lambda byte: ~(_is_enclosed(byte, b"[", b"]") | _is_enclosed(byte, b"{", b"}"))),
)
"""Protocols, and how a payload begins or ends that has to be looked at; `byte(n)` is the n-th of each."""


def needs_inspection(data: np.ndarray, offsets: np.ndarray, protocols: Sequence[str], codes: np.ndarray) -> np.ndarray:
    """Return which payloads to look at; the n-th one's protocol is `protocols[codes[n]]`."""
    found = np.zeros(len(offsets) - 1, bool)
    start, end, last = offsets[:-1], offsets[1:], len(data) - 1

    def byte(at: int) -> np.ndarray:
        place = start + at if at >= 0 else np.maximum(end + at, 0)
        taken: np.ndarray = data[np.minimum(place, last)]
        return taken

    for protocol, is_doubtful in _INSPECTION_RULES:
        if protocol in protocols:
            is_spoken = np.array([each == protocol for each in protocols])[codes]
            found |= is_spoken & is_doubtful(byte)
    if "lrpm-cbor" in protocols:
        spoken = np.array([each == "lrpm-cbor" for each in protocols])[codes]
        chunked = np.searchsorted(offsets, _chunked_string_offsets(data), side="right") - 1
        chunked = chunked[(chunked >= 0) & (chunked < len(found))]
        found[chunked] |= spoken[chunked]
    return found & (end > start)


def _is_enclosed(byte: ByteAt, opening: bytes, closing: bytes) -> np.ndarray:
    found: np.ndarray = (byte(_FIRST) == opening[0]) & (byte(_LAST) == closing[0])
    return found


def _chunked_string_offsets(data: np.ndarray) -> np.ndarray:
    """Return where a CBOR text or byte string may begin that comes in chunks: a name may be divided between them."""
    kind = data[:-1]
    at = np.flatnonzero((kind == 0x7F) | (kind == 0x5F))
    following = data[at + 1]
    found: np.ndarray = at[(following >> 5 == kind[at] >> 5) & (following & 0x1F <= 0x1B)]
    return found
