"""Request line and headers of an HTTP request."""

import re
from functools import lru_cache
from typing import Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from fiveways.transports.http import Response

_END: Final = b"\r\n\r\n"
_AUTHORITY: Final = re.compile(r"[^/?]+")
_SINGLE_HEADERS: Final = {
    "authorization",
    "content-length",
    "expect",
    "host",
    "origin",
    "sec-websocket-key",
    "sec-websocket-version",
    "transfer-encoding",
}
"""Headers that must not be repeated: two parsers could choose different values."""


class BadRequest(Exception):
    """Invalid or refused request. The connection closes after a response with `status` and `text`."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> Response:
        """Return the response to send."""
        return Response(self.status, f"{self.text}\n".encode(), headers=self.headers)


class Head(msgspec.Struct, frozen=True):
    """Request line and headers of a request."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool
    is_old: bool
    """The client uses HTTP/1.0."""
    length: int | None
    """Length of the body; None if it is chunked."""
    wants_websocket: bool
    wants_continue: bool
    """The client waits for `100 Continue` before it sends the body."""


class HeadReader:
    """Incremental parser for the head of one request.

    httptools neither limits the size of a head nor reports its end in the data. This class finds the end and passes
    no byte after it to httptools.
    """

    __slots__ = ("_lines", "_max_bytes", "_parser", "_tail", "size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size = 0
        self._tail = b""
        self._lines = _HeadCallbacks()
        self._parser = HttpRequestParser(self._lines)

    def feed(self, data: bytes, start: int) -> int | None:
        """Read from `start` on; return the end of the head in `data`, or None if it is incomplete; raise BadRequest."""
        end = self._end(data, start)
        stop = len(data) if end is None else end
        self.size += stop - start
        if self.size > self._max_bytes:
            raise BadRequest(431, f"the request line and the headers are longer than {self._max_bytes} bytes")
        piece = data[start:stop]
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade:
            pass  # raised at the end of the head, where feeding stops anyway
        except HttpParserError as exc:
            raise BadRequest(400, f"this is not HTTP/1.1: {exc}") from None
        if self._lines.completed != (end is not None):
            raise BadRequest(400, "this is not HTTP/1.1: invalid line ending")
        self._tail = (self._tail + piece[-3:])[-3:]
        return end

    def _end(self, data: bytes, start: int) -> int | None:
        if self._tail:
            across = (self._tail + data[start : start + 3]).find(_END)
            if across >= 0:
                return start + across + len(_END) - len(self._tail)
        position = data.find(_END, start)
        return None if position < 0 else position + len(_END)

    def head(self) -> Head:
        """Return the complete head; BadRequest if it asks for an unsupported feature."""
        parser = self._parser
        version = parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are supported")
        is_old = version == "1.0"
        method = parser.get_method().decode("ascii")
        headers = _headers(self._lines.headers)
        if "host" not in headers and not is_old:  # RFC 9112, 3.2
            raise BadRequest(400, "a request in HTTP/1.1 needs the header Host")
        if headers.get("content-encoding", "").lower() not in {"", "identity"}:  # RFC 9110, 15.5.16
            raise BadRequest(415, "content encodings are not supported", Accept_Encoding="identity")
        path, query = _target(method, self._lines.target, headers)
        length = _length(headers, is_old=is_old)
        expected = headers.get("expect", "").lower()
        if expected not in {"", "100-continue"}:
            raise BadRequest(417, "100-continue is the only supported expectation")
        connection = _tokens(headers.get("connection", ""))
        keep_alive = "close" not in connection and (not is_old or "keep-alive" in connection)
        # Browsers send "keep-alive, Upgrade" as well as "Upgrade".
        wants_websocket = "upgrade" in connection and "websocket" in _tokens(headers.get("upgrade", ""))
        wants_websocket = wants_websocket and method == "GET" and not is_old
        if wants_websocket and length != 0:
            raise BadRequest(400, "a WebSocket request must not have a body")
        return Head(
            method=method,
            path=path,
            query=query,
            headers=headers,
            keep_alive=keep_alive,
            is_old=is_old,
            length=length,
            wants_websocket=wants_websocket,
            wants_continue=bool(expected) and not is_old,
        )


class _HeadCallbacks:
    """Callbacks of httptools, without a reference to the parser: a cycle would need the garbage collector."""

    __slots__ = ("completed", "headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.completed = 0

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.completed += 1


def _headers(lines: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in lines:
        key, text = _key(name), value.decode("latin-1").strip(" \t")
        if key not in headers:
            headers[key] = text
        elif key in _SINGLE_HEADERS:
            raise BadRequest(400, f"duplicate header {key}")
        else:
            headers[key] += ("; " if key == "cookie" else ", ") + text
    return headers


@lru_cache(maxsize=512)
def _key(name: bytes) -> str:
    return name.decode("latin-1").lower()


def _target(method: str, target: bytes, headers: dict[str, str]) -> tuple[str, str]:
    """Return path and query. The host of an absolute target replaces the header Host (RFC 9112, 3.2.2)."""
    if method == "CONNECT":
        raise BadRequest(501, "this is not a proxy")
    text = target.partition(b"#")[0].decode("latin-1")
    if not text.startswith("/") and text != "*":
        _, _, authority_and_path = text.partition("://")
        authority = _AUTHORITY.match(authority_and_path)
        if authority is None:
            raise BadRequest(400, "the request target has no host")
        headers["host"] = authority[0]
        rest = authority_and_path[authority.end() :]
        text = rest if rest.startswith("/") else "/" + rest
    path, _, query = text.partition("?")
    return path, query


def _length(headers: dict[str, str], *, is_old: bool) -> int | None:
    # httptools rejects invalid lengths and, normally, both headers together. Checked again: request smuggling.
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        if is_old or length is not None:
            raise BadRequest(400, "the length of the body is ambiguous")
        if encoding.lower() != "chunked":
            raise BadRequest(501, "chunked is the only supported transfer encoding")
        return None
    return int(length or 0)


def _tokens(text: str) -> list[str]:
    return [token.strip() for token in text.lower().split(",")] if text else []
