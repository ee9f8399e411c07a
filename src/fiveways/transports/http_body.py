"""HTTP request bodies, with Content-Length or chunked."""

import re
from enum import Enum
from typing import Final

from fiveways.transports.http_head import BadRequest

_MAX_LINE: Final = 1 << 10
_MAX_TRAILERS: Final = 1 << 13
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r]*)?\r\n")
_TRAILER: Final = re.compile(rb"[^\r:]+:[^\r]*\r\n")
_EMPTY: Final = b"\r\n"


class SizedBody:
    """Body with a Content-Length."""

    __slots__ = ("_held", "_missing", "body")

    def __init__(self, length: int, max_bytes: int) -> None:
        if length > max_bytes:
            raise too_large(max_bytes)
        self._missing = length
        self._held = bytearray()
        self.body = b""

    @property
    def held(self) -> int:
        """Number of received bytes."""
        return len(self._held)

    def feed(self, data: bytes, start: int) -> int | None:
        """Read from `start` on; return the end of the body in `data`, or None if it is incomplete."""
        piece = data[start : start + self._missing]
        self._missing -= len(piece)
        if self._missing:
            self._held += piece
            return None
        self.body = bytes(self._held + piece) if self._held else piece
        return start + len(piece)


class _LineKind(Enum):
    """Kind of the next line of a chunked body."""

    SIZE = "size"
    END_OF_CHUNK = "end of chunk"
    TRAILER = "trailer"


class ChunkedBody:
    """Chunked body. Chunk extensions and trailers are bounded and discarded."""

    __slots__ = ("_held", "_left", "_line", "_max_bytes", "_next", "_trailers", "body")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._line = b""
        self._left = 0
        self._next = _LineKind.SIZE
        self._trailers = 0
        self.body = b""

    @property
    def held(self) -> int:
        """Number of received bytes in memory."""
        return len(self._held) + len(self._line)

    def feed(self, data: bytes, start: int) -> int | None:
        """Read from `start` on; return the end of the body in `data`, or None if it is incomplete; raise BadRequest."""
        at = start
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._held += piece
                self._left -= len(piece)
                at += len(piece)
                continue
            stop = data.find(b"\n", at) + 1
            self._line += data[at : stop or len(data)]
            if len(self._line) > _MAX_LINE:
                raise BadRequest(400, "a chunk header or trailer is too long")
            if not stop:
                return None
            at = stop
            line, self._line = self._line, b""
            if self._handle_line(line):
                self.body = bytes(self._held)
                return at
        return None

    def _handle_line(self, line: bytes) -> bool:
        if self._next is _LineKind.SIZE:
            self._begin_chunk(line)
        elif self._next is _LineKind.END_OF_CHUNK:
            if line != _EMPTY:
                raise BadRequest(400, "a chunk is longer than its size")
            self._next = _LineKind.SIZE
        else:
            if line == _EMPTY:
                return True
            self._trailers += len(line)
            if self._trailers > _MAX_TRAILERS or _TRAILER.fullmatch(line) is None:
                raise BadRequest(400, "the trailers after the last chunk are invalid or too long")
        return False

    def _begin_chunk(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise BadRequest(400, "a chunk has no valid size")
        self._left = int(match[1], 16)
        if len(self._held) + self._left > self._max_bytes:
            raise too_large(self._max_bytes)
        self._next = _LineKind.END_OF_CHUNK if self._left else _LineKind.TRAILER


def too_large(max_bytes: int) -> BadRequest:
    """Return the error for a body over the limit."""
    return BadRequest(413, f"the body is longer than {max_bytes} bytes")
