"""Browser support: responses readable across origins, and tokens in WebSocket subprotocols."""

import asyncio
from base64 import urlsafe_b64encode
from typing import ParamSpec

import pytest

from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, ServerSettings
from fiveways.transports.http import bearer_token
from tests.support.nq_peers import ask, packed, posters
from tests.support.raw_peers import hub, settings
from tests.support.running import async_test

P = ParamSpec("P")
PAGE = "http://127.0.0.1:8000"
AUTH = AuthSettings(anonymous="never", identity=(IdentitySettings("ann", token=Secret("of-ánn?")),))


def subprotocol_of(token: str) -> str:
    return f"nq.1, bearer.{urlsafe_b64encode(token.encode()).decode().rstrip('=')}"


async def head_of(port: int, request: str) -> str:
    """Return the head of the response to a complete request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    return head


def preflight_request(origin: str, more: str = "") -> str:
    preflight_headers = (
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type,nq-peer\r\n"
    )
    return f"OPTIONS /nq HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n{preflight_headers}{more}\r\n"


@async_test
async def test_preflight_of_an_allowed_page_succeeds() -> None:
    async with hub() as place:
        head = await head_of(place.port, preflight_request(PAGE))
        assert head.startswith("HTTP/1.1 204 ")
        assert f"Access-Control-Allow-Origin: {PAGE}\r\n" in head
        assert "Access-Control-Allow-Methods: POST\r\n" in head
        assert "Access-Control-Allow-Headers: Content-Type, Authorization, NQ-Peer\r\n" in head
        assert "Allow-Credentials" not in head
        assert "Private-Network" not in head
        head = await head_of(place.port, preflight_request(PAGE, "Access-Control-Request-Private-Network: true\r\n"))
        assert "Access-Control-Allow-Private-Network: true\r\n" in head


@async_test
async def test_allowed_page_can_read_responses() -> None:
    async with hub(settings(auth=AUTH)) as place, posters(place.port) as (page,):
        page.headers["Origin"] = PAGE
        refused = await page.raw(packed(ask("k1")))
        answer = await page.raw(packed(ask("k1", data=1)), Authorization="Bearer of-ánn?".encode().decode("latin-1"))
        assert (refused.status, answer.status) == (401, 401)  # headers are Latin-1, and this token is not
        for each in (refused, answer):
            assert each.headers["access-control-allow-origin"] == PAGE
    async with hub() as place, posters(place.port) as (page,):
        answer = await page.raw(packed(ask("k1", data=1)), Origin=PAGE)
        assert answer.headers["access-control-expose-headers"] == "NQ-Peer, NQ-Answer"
        assert answer.headers["vary"] == "Origin"
        assert answer.messages[0]["d"] == 1
        # Without an Origin header, the response has no CORS headers.
        assert "access-control-allow-origin" not in (await page.raw(b"[]")).headers


@async_test
async def test_foreign_page_gets_no_cors_headers() -> None:
    async with hub() as place, posters(place.port) as (page,):
        answer = await page.raw(packed(ask("k1", data=1)), Origin="https://evil.example")
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        head = await head_of(place.port, preflight_request("https://evil.example"))
        assert head.startswith("HTTP/1.1 403 ")
        assert "Access-Control" not in head
    ours = settings(server=ServerSettings(port=0, origins=("https://shop.example",)))
    async with hub(ours) as place:
        head = await head_of(place.port, preflight_request("https://shop.example"))
        assert "Access-Control-Allow-Origin: https://shop.example\r\n" in head


@async_test
async def test_only_post_paths_answer_preflights() -> None:
    async with hub() as place:
        head = await head_of(place.port, preflight_request(PAGE).replace("/nq", "/lrpm"))
        assert head.startswith("HTTP/1.1 405 ")
        assert "Access-Control" not in head


@async_test
async def test_token_is_accepted_as_a_subprotocol() -> None:
    async with hub(settings(auth=AUTH)) as place:
        peer = await place.peer(
            "/umq", **{"Sec-WebSocket-Protocol": subprotocol_of("of-ánn?").replace("nq.1", "umq.1")}
        )
        assert peer.ws.response.headers.get("Sec-WebSocket-Protocol") == "umq.1"
        peer.text("H1.0.0\n")
        assert (await peer.heard()).startswith("W1.0.0\n")
        for wrong in (subprotocol_of("of-bob"), "umq.1, bearer.", "umq.1, bearer.%%%"):
            peer = await place.peer("/umq", **{"Sec-WebSocket-Protocol": wrong})
            peer.text("H1.0.0\n")
            if wrong.endswith("bearer."):
                assert (await peer.heard()).startswith(
                    "W1.0.0\n"
                )  # no token here: a session variable may still hold it
            else:
                assert (await peer.heard()).startswith("E\n12 ")


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, ""),
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer  abc "}, "abc"),
        ({"authorization": "Basic abc"}, ""),
        ({"sec-websocket-protocol": "nq.1"}, ""),
        ({"sec-websocket-protocol": "bearer.YWJj, nq.1"}, "abc"),
        ({"sec-websocket-protocol": "nq.1,bearer.YWI"}, "ab"),
        ({"sec-websocket-protocol": "bearer._-8"}, "_-8"),
        ({"sec-websocket-protocol": "bearer.\xe9"}, "\xe9"),
        ({"authorization": "Bearer abc", "sec-websocket-protocol": "bearer.YWI"}, "abc"),
    ],
)
def test_token_is_found_in_header_or_subprotocol(headers: dict[str, str], token: str) -> None:
    assert bearer_token(headers) == token
