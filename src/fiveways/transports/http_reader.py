"""Requests, one after the other, out of the bytes of a connection."""

from collections.abc import Callable
from enum import IntEnum

from fiveways.transports.http import HttpLimits
from fiveways.transports.http_body import ChunkedBody, SizedBody
from fiveways.transports.http_head import Head, HeadReader


class ReadStage(IntEnum):
    """How much of the next request has been read."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


class RequestReader:
    """Holds what came and was not asked for yet, and the request that is half read."""

    __slots__ = ("_at", "_body", "_head", "_limits", "_unread", "stage", "wants_continue")

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._unread = b""
        self._at = 0
        self._head: HeadReader | Head | None = None
        self._body: SizedBody | ChunkedBody | None = None
        self.stage = ReadStage.NOTHING
        self.wants_continue = False
        """The client waits for a word before it sends the body; who says it clears this."""

    @property
    def has_unread(self) -> bool:
        """Whether there is more to read before more has to come."""
        return bool(self._unread)

    @property
    def held(self) -> int:
        """The number of bytes that have come of the next request."""
        head, body = self._head, self._body
        return len(self._unread) + (head.size if isinstance(head, HeadReader) else 0) + (body.held if body else 0)

    def add(self, data: bytes) -> None:
        """Take what came."""
        self._unread = self._unread + data if self._unread else data

    def rest(self) -> bytes:
        """Return what was not read, and forget it."""
        rest = self._unread[self._at :]
        self._unread, self._at = b"", 0
        return rest

    def read(self, check: Callable[[Head], int]) -> tuple[Head, bytes] | None:
        """Return the next request if all of it is there; BadRequest if it cannot be answered.

        `check` returns how large the body of a request may be, or raises BadRequest.
        """
        head = self._head if isinstance(self._head, Head) else self._read_head(check)
        body = b""
        if head is not None and self._body is not None:
            end = self._body.feed(self._unread, self._at)
            if end is None:
                head = None
            else:
                self._at, body = end, self._body.body
        if head is not None:
            self._skip_empty_lines()
        if head is None or self._at == len(self._unread):
            self._unread, self._at = b"", 0
        if head is None:
            return None
        self._head = self._body = None
        self.stage = ReadStage.NOTHING
        return head, body

    def _skip_empty_lines(self) -> None:
        """Skip those between two requests (RFC 9112, 2.2): some clients end a body with one."""
        while self._unread.startswith((b"\r", b"\n"), self._at):
            self._at += 1

    def _read_head(self, check: Callable[[Head], int]) -> Head | None:
        data = self._unread
        if not isinstance(self._head, HeadReader):
            self._skip_empty_lines()
            if self._at == len(data):
                return None
            self._head = HeadReader(self._limits.max_header)
            self.stage = ReadStage.HEAD
        end = self._head.feed(data, self._at)
        if end is None:
            return None
        head, self._at = self._head.head(), end
        most = check(head)
        if head.length != 0:
            self._body = ChunkedBody(most) if head.length is None else SizedBody(head.length, most)
            self._head = head
            self.stage = ReadStage.BODY
            self.wants_continue = head.wants_continue and end == len(data)
        return head
