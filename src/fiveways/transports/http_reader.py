"""Parser for the requests of one HTTP connection."""

from collections.abc import Callable
from enum import IntEnum

from fiveways.transports.http import HttpLimits
from fiveways.transports.http_body import ChunkedBody, SizedBody
from fiveways.transports.http_head import Head, HeadReader


class HttpState(IntEnum):
    """State of an HTTP connection."""

    READING = 0
    BUSY = 1
    """A request is being handled, or the connection waits for its next turn."""
    CLOSING = 2
    """The last response is written."""
    GONE = 3
    """Closed, or upgraded to WebSocket."""


class TimeoutKind(IntEnum):
    """Purpose of the running timeout."""

    REQUEST = 0
    HEAD = 1
    BODY = 2
    NONE = 3
    CLIENT = 4
    """The client must read some of the unsent response bytes."""


class ReadStage(IntEnum):
    """Part of the next request that has been read."""

    NOTHING = 0
    HEAD = 1
    BODY = 2


class RequestReader:
    """Received bytes that were not parsed yet, and the state of an incomplete request."""

    __slots__ = ("_at", "_body", "_head", "_limits", "_unread", "stage", "wants_continue")

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._unread = b""
        self._at = 0
        self._head: HeadReader | Head | None = None
        self._body: SizedBody | ChunkedBody | None = None
        self.stage = ReadStage.NOTHING
        self.wants_continue = False
        """The client waits for `100 Continue` before it sends the body; cleared when that is sent."""

    @property
    def has_unread(self) -> bool:
        """Whether received bytes are left to parse."""
        return bool(self._unread)

    @property
    def held(self) -> int:
        """Number of received bytes of the next request."""
        head, body = self._head, self._body
        return len(self._unread) + (head.size if isinstance(head, HeadReader) else 0) + (body.held if body else 0)

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._unread = self._unread + data if self._unread else data

    def rest(self) -> bytes:
        """Return and remove the bytes that were not parsed."""
        rest = self._unread[self._at :]
        self._unread, self._at = b"", 0
        return rest

    def read(self, check: Callable[[Head], int]) -> tuple[Head, bytes] | None:
        """Return the next request if it is complete; BadRequest if it is invalid or refused.

        `check` returns the body limit of a request, or raises BadRequest.
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
        """Skip empty lines between requests (RFC 9112, 2.2): some clients send one after a body."""
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
        max_body = check(head)
        if head.length != 0:
            self._body = ChunkedBody(max_body) if head.length is None else SizedBody(head.length, max_body)
            self._head = head
            self.stage = ReadStage.BODY
            self.wants_continue = head.wants_continue and end == len(data)
        return head
