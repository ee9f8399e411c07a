"""Serializer for WebSocket frames.

picows writes each frame separately; one write for all frames of an event loop iteration is several times cheaper.
"""

import os
from collections.abc import Sequence
from typing import Final

from fiveways.wire.packet import Packet

TEXT: Final = 1
BINARY: Final = 2
_CONTINUATION: Final = 0
_FINAL: Final = 0x80
_MASKED: Final = 0x80
_number: Final = int.from_bytes


def _header(first: int, size: int, masked: int) -> bytes:
    if size < 126:
        return bytes((first, masked | size))
    if size < 1 << 16:
        return bytes((first, masked | 126)) + size.to_bytes(2, "big")
    return bytes((first, masked | 127)) + size.to_bytes(8, "big")


_CACHED_SIZES: Final = 1024
"""Headers of text frames below this size are precomputed."""
_SERVER_TEXT: Final = [_header(_FINAL | TEXT, size, 0) for size in range(_CACHED_SIZES)]
_CLIENT_TEXT: Final = [_header(_FINAL | TEXT, size, _MASKED) for size in range(_CACHED_SIZES)]


def server_text(payload: bytes) -> bytes:
    """Return a text message as an unmasked frame."""
    size = len(payload)
    return (_SERVER_TEXT[size] if size < _CACHED_SIZES else _header(_FINAL | TEXT, size, 0)) + payload


def server_frame(payload: bytes, opcode: int, *, first: bool = True, last: bool = True) -> bytes:
    """Return an unmasked frame, for a server."""
    return _header(_first_byte(opcode, first=first, last=last), len(payload), 0) + payload


def server_frames(packets: Sequence[Packet]) -> bytes:
    """Return several messages as unmasked frames."""
    parts: list[bytes] = []
    for packet in packets:
        payload, is_text = packet.payload, packet.is_text
        size = len(payload)
        is_cached = is_text and size < _CACHED_SIZES
        parts.append(_SERVER_TEXT[size] if is_cached else _header(_FINAL | (TEXT if is_text else BINARY), size, 0))
        parts.append(payload)
    return b"".join(parts)


def client_texts(payloads: Sequence[bytes]) -> bytes:
    """Return several text messages as masked frames."""
    keys, at = os.urandom(4 * len(payloads)), 0
    frames: list[bytes] = []
    for payload in payloads:
        size, key = len(payload), keys[at : at + 4]
        at += 4
        header = _CLIENT_TEXT[size] if size < _CACHED_SIZES else _header(_FINAL | TEXT, size, _MASKED)
        frames += (header, key, _masked(payload, key))
    return b"".join(frames)


def client_frame(payload: bytes, opcode: int, *, first: bool = True, last: bool = True) -> bytes:
    """Return a frame for a client, masked with a fresh key."""
    key = os.urandom(4)
    return _header(_first_byte(opcode, first=first, last=last), len(payload), _MASKED) + key + _masked(payload, key)


def _masked(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (_number(payload, "little") ^ _number(mask, "little")).to_bytes(size, "little")


def _first_byte(opcode: int, *, first: bool, last: bool) -> int:
    return (_FINAL if last else 0) | (opcode if first else _CONTINUATION)
