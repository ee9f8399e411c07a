"""Pages over a real port: browser requests, HEAD, and foreign pages."""

import asyncio
import gzip
import socket
from pathlib import Path

import pytest

from fiveways.runtime import web_pages
from fiveways.settings.operations import DashboardSettings
from fiveways.settings.sections import ServerSettings, Settings
from tests.support.raw_peers import PATIENCE, hub


async def fetch(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in {"Host": "localhost", **headers}.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *named = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in named)
    return int(status.split()[1]), {name.lower(): text for name, _, text in pairs}, body


@pytest.mark.parametrize("path", ["/", "/plotly.js", "/fiveways.js", "/dashboard/dashboard.css"])
def test_head_is_get_without_the_body(path: str) -> None:
    async def run() -> None:
        async with hub() as place:
            headers_of_request = {"Accept": "text/html", "Accept_Encoding": "gzip"}
            status, headers, body = await fetch(place.port, path, **headers_of_request)
            assert (status, headers["content-encoding"]) == (200, "gzip")
            assert int(headers["content-length"]) == len(body) > 0
            assert await fetch(place.port, path, "HEAD", **headers_of_request) == (200, headers, b"")
            not_modified = await fetch(place.port, path, If_None_Match=headers["etag"], **headers_of_request)
            assert (not_modified[0], not_modified[2]) == (304, b"")

    asyncio.run(run())


def test_hub_answers_while_large_files_are_read() -> None:
    async def run() -> None:
        async with hub() as place:
            slow = [asyncio.create_task(fetch(place.port, "/plotly.js", Accept_Encoding="gzip")) for _ in range(4)]
            peer = await place.umq()
            peer.text("M1\nhub:ping\n")
            assert await peer.heard() == "R1\npong"
            answers = await asyncio.gather(*slow)
            assert len({body for _, _, body in answers}) == 1
            assert b"plotly.js" in gzip.decompress(answers[0][2])[:500]

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_unread_responses_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setattr(web_pages, "_MAX_UNREAD", 4 << 20)

    async def run() -> None:
        async with hub() as place:
            _, _, whole = await fetch(place.port, "/plotly.js", Accept_Encoding=encoding)
            port = place.server._port
            lines = f"GET /plotly.js HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {encoding}\r\n\r\n"
            clients = [socket.create_connection(("127.0.0.1", place.port)) for _ in range(40)]
            for client in clients:
                client.sendall(lines.encode() * 10)  # more than the system's buffers accept
            while port.unread() <= 4 << 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            status, headers, _ = await fetch(place.port, "/plotly.js", Accept_Encoding=encoding)
            assert (status, headers["retry-after"]) == (503, "5")
            assert port.unread() <= (4 << 20) + len(whole) + 100_000  # the buffer of an asyncio socket before it counts
            for client in clients:
                client.close()
            while port.unread():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await fetch(place.port, "/plotly.js", Accept_Encoding=encoding))[2] == whole

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/", "/fiveways.js", "/report"])
def test_foreign_page_gets_no_pages(path: str) -> None:
    async def run() -> None:
        async with hub() as place:
            for header in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
                assert (await fetch(place.port, path, Accept="text/html", **header))[0] == 403

    asyncio.run(run())


def test_results_and_the_report_follow_the_settings(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "_run.json").write_text('{"late": 5}')
        (tmp_path / "report.html").write_text("report")
        server = ServerSettings(port=0, drain_timeout=1.0)
        hub_settings = Settings(server=server, dashboard=DashboardSettings(tables=str(tmp_path)))
        async with hub(hub_settings) as place:
            peer = await place.lrpm()
            frame = ""
            while '"late":5' not in frame:
                peer.text('[40,300,"hub.results",null,{}]')
                frame = await peer.heard()
            assert (await fetch(place.port, "/report"))[2] == b"report"
            place.server.reload(Settings(server=server))
            peer.text('[40,301,"hub.results",null,{}]')
            assert await peer.heard() == "[41,301,null,{}]"
            assert (await fetch(place.port, "/report"))[0] == 404

    asyncio.run(run())


def test_hub_without_a_dashboard_lists_none() -> None:
    async def run() -> None:
        server = ServerSettings(port=0, drain_timeout=1.0)
        async with hub(Settings(server=server, dashboard=DashboardSettings(enabled=False))) as place:
            assert "page" not in dict(place.server.urls)
        async with hub() as place:
            assert dict(place.server.urls)["page"] == f"http://127.0.0.1:{place.port}/"

    asyncio.run(run())
