"""Refusals of the HTTP port: methods that a path does not support, and unsupported credentials."""

import asyncio
import re
from pathlib import Path

import pytest

from fiveways.hub.traits import Credentials
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings
from tests.support.nq_peers import posters
from tests.support.raw_peers import PATIENCE, hub, settings

PATHS = [
    "/",
    "/livez",
    "/readyz",
    "/metrics",
    "/report",
    "/fiveways.js",
    "/fiveways.d.ts",
    "/umq",
    "/umq36",
    "/lrpm",
    "/nq",
    "/nothing",
]
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


async def fetch(port: int, method: str, path: str, headers: str = "", body: str = "") -> tuple[int, str]:
    """Return the status of a response, and all of it as text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n{body}".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    size = re.search(rb"Content-Length: (\d+)", head)
    data = await reader.readexactly(int(size[1])) if size and method != "HEAD" else b""
    writer.close()
    return int(head[9:12]), (head + data).decode()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/nq", "GET, HEAD, OPTIONS, POST"),
        ("/umq", "GET, HEAD"),
        ("/umq36", "GET, HEAD"),
        ("/lrpm", "GET, HEAD"),
        ("/", "GET, HEAD"),
        ("/livez", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
        ("/fiveways.js", "GET, HEAD"),
    ],
)
def test_unsupported_method_is_405_with_an_allow_header(method: str, path: str, allowed: str) -> None:
    async def run() -> tuple[int, str]:
        async with hub() as place:
            return await fetch(place.port, method, path, UPGRADE, body="" if method == "OPTIONS" else "[]")

    status, answer = asyncio.run(run())
    if path == "/nq" and method == "POST":
        assert status == 200
        return
    assert status == (204 if (path, method) == ("/nq", "OPTIONS") else 405)
    assert f"\r\nAllow: {allowed}\r\n" in answer


@pytest.mark.parametrize(
    "shown", ["Basic YWRtaW46c2VjcmV0", "basic YTpi", "Digest a=b", "Bearer", "Bearer  ", "nonsense"]
)
def test_credentials_other_than_bearer_are_401_on_all_paths(shown: str) -> None:
    async def run() -> None:
        async with hub() as place:
            asks = [("GET", path, "") for path in PATHS] + [("POST", "/nq", "")]
            asks += [("GET", path, UPGRADE) for path in ("/umq", "/umq36", "/lrpm", "/nq")]
            for method, path, more in asks:
                body = "[]" if method == "POST" else ""
                status, answer = await fetch(place.port, method, path, f"Authorization: {shown}\r\n{more}", body)
                assert status == 401, (path, more, answer)
                assert "\r\nWWW-Authenticate: Bearer\r\n" in answer
            assert place.server.exchange.hub.stats()["arrived"] == 0

    asyncio.run(run())


def test_refused_credentials_have_cors_headers_and_are_not_journaled(tmp_path: Path) -> None:
    async def run() -> None:
        hub_settings = settings()
        journaled = Settings(server=hub_settings.server, journal=JournalSettings(path=str(tmp_path)))
        async with hub(journaled) as place:
            shown = "Authorization: Basic c2VjcmV0\r\nOrigin: http://localhost:3000\r\n"
            status, answer = await fetch(place.port, "POST", "/nq", shown, "[]")
            assert status == 401
            assert "\r\nAccess-Control-Allow-Origin: http://localhost:3000\r\n" in answer

    asyncio.run(run())
    written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert b"unsupported credentials; use Authorization: ***" in written  # the journal redacts the reason
    assert b"c2VjcmV0" not in written


def test_bearer_token_authenticates_its_identity() -> None:
    identity = IdentitySettings(name="ann", token=Secret("a" * 32))
    hub_settings = settings(auth=AuthSettings(anonymous="never", identity=(identity,)))

    async def run() -> None:
        async with hub(hub_settings) as place:
            body = '{"t":"hub-rights","r":"1"}'
            status, answer = await fetch(
                place.port, "POST", "/nq?wait=5", f"Authorization: bearer {'a' * 32}\r\n", body
            )
            assert status == 200
            assert '"identity":"ann"' in answer
            assert (await fetch(place.port, "POST", "/nq", "", body))[0] == 401

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/nq", "/metrics", "/report"])
def test_address_with_too_many_failed_logins_is_answered_429(path: str) -> None:
    auth = AuthSettings(identity=(IdentitySettings("ann", token=Secret("of-ann")),))

    async def run() -> None:
        async with hub(settings(auth=auth)) as place, posters(place.port) as (peer,):
            method, exchange = "POST" if path == "/nq" else "GET", place.server.exchange
            assert (await peer.raw(b"[]", path, method, Authorization="Bearer wrong")).status == 401
            for _ in range(15):  # so many that the test ends before the address may log in again
                exchange.hub.admission._failed_logins.count(Credentials(remote="127.0.0.1:1"), exchange.now())
            answer = await peer.raw(b"[]", path, method, Authorization="Bearer of-ann")
            assert (answer.status, 0 < int(answer.headers["retry-after"]) <= 300) == (429, True)
            elsewhere = {"Authorization": "Bearer of-ann", "X-Forwarded-For": "10.0.0.1, 192.0.2.1"}
            assert (await peer.raw(b"[]", path, method, **elsewhere)).status != 429

    asyncio.run(run())
