"""Tests of the request parser without sockets."""

from hypothesis import given
from hypothesis import strategies as st

from fiveways.transports.http import HttpLimits
from fiveways.transports.http_head import BadRequest, Head
from fiveways.transports.http_reader import RequestReader

PIECES = [
    b"GET / HTTP/1.1\r\n",
    b"POST /x?y HTTP/1.1\r\n",
    b"GET http://h/p HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"\r\n",
    b"abc",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0\r\nA: b\r\n\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"\0",
    b"\xff",
]
LIMITS = HttpLimits(max_header=200, max_body=10)


def read(pieces: list[bytes]) -> tuple[list[tuple[Head, bytes]], bool]:
    """Return all requests, and whether invalid data follows them."""
    reader, requests = RequestReader(LIMITS), []
    try:
        for piece in pieces:
            reader.add(piece)
            while reader.has_unread:
                request = reader.read(lambda _: LIMITS.max_body)
                if request is not None:
                    requests.append(request)
    except BadRequest as exc:
        return requests, 400 <= exc.status < 600
    return requests, False


@given(st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join), st.data())
def test_requests_do_not_depend_on_fragmentation(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=10)))
    pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(pieces) == read([data])
    assert read([bytes((byte,)) for byte in data]) == read([data])


@given(st.binary(max_size=300))
def test_garbage_is_parsed_or_refused(data: bytes) -> None:
    read([data])
    read([b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data])
