"""WebSocket frames as bytes, so that many of them can be written at once.

picows writes each frame by itself; one write for all that a loop pass has to say costs a fraction of that.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final

TEXT: Final = 1
BINARY: Final = 2
_CONTINUATION: Final = 0
_FINAL: Final = 0x80
_MASKED: Final = 0x80


def _header(first: int, size: int, masked: int) -> bytes:
    if size < 126:
        return bytes((first, masked | size))
    if size < 1 << 16:
        return bytes((first, masked | 126)) + size.to_bytes(2, "big")
    return bytes((first, masked | 127)) + size.to_bytes(8, "big")


_KNOWN: Final = 1024
"""Headers of text frames below this size, as most are, are made once."""
_SERVER_TEXT: Final = [_header(_FINAL | TEXT, size, 0) for size in range(_KNOWN)]
_NOTHING: Final = [bytes(size + 4) for size in range(11)]
"""Where a header and a key stand, by the size of the header."""
_CLIENT_TEXT: Final = [_header(_FINAL | TEXT, size, _MASKED) for size in range(_KNOWN)]


def server_text(payload: bytes) -> bytes:
    """Return a whole text message as a server sends it."""
    size = len(payload)
    return (_SERVER_TEXT[size] if size < _KNOWN else _header(_FINAL | TEXT, size, 0)) + payload


def server_frame(payload: bytes, opcode: int, *, first: bool = True, last: bool = True) -> bytes:
    """Return a frame as a server sends it."""
    return _header(_first_byte(opcode, first=first, last=last), len(payload), 0) + payload


def client_texts(payloads: Iterable[bytes]) -> bytes:
    """Return whole text messages as a client sends them."""
    return _masked(
        [
            (_CLIENT_TEXT[size] if (size := len(payload)) < _KNOWN else _header(_FINAL | TEXT, size, _MASKED), payload)
            for payload in payloads
        ]
    )


def client_frame(payload: bytes, opcode: int, *, first: bool = True, last: bool = True) -> bytes:
    """Return a frame as a client sends it: masked."""
    return _masked([(_header(_first_byte(opcode, first=first, last=last), len(payload), _MASKED), payload)])


def _masked(frames: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return frames, each a header and a payload, with fresh masking keys between and under them.

    A mask is as long as its frame, nothing where header and key stand, so that all of them are laid on at once.
    """
    plain: list[bytes] = []
    masks: list[bytes] = []
    keys, at = os.urandom(4 * len(frames)), 0
    for header, payload in frames:
        key, size = keys[at : at + 4], len(payload)
        at += 4
        plain += (header, key, payload)
        masks += (_NOTHING[len(header)], (key * (size // 4 + 1))[:size])
    data = b"".join(plain)
    covered = int.from_bytes(data, "little") ^ int.from_bytes(b"".join(masks), "little")
    return covered.to_bytes(len(data), "little")


def _first_byte(opcode: int, *, first: bool, last: bool) -> int:
    return (_FINAL if last else 0) | (opcode if first else _CONTINUATION)
