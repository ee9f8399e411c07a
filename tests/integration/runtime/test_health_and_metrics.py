"""Health checks and metrics of a running hub."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fiveways
from fiveways.app import App
from fiveways.runtime.health import Health, HealthCheck, render_checks, verdict
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, MqttSettings, Secret, Settings, StoreSettings
from tests.integration.runtime.test_nq_disk_errors import Disk
from tests.integration.runtime.test_nq_http import SOON, error_of
from tests.support.nq_peers import ask, posters
from tests.support.raw_peers import Place, http, hub, settings
from tests.support.running import async_test


def status(answer: str) -> tuple[int, str]:
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def ready(place: Place, query: str = "") -> tuple[int, str]:
    return status(await http(place.port, f"/readyz{query}"))


async def until_ready(place: Place, expected: tuple[int, str]) -> None:
    while await ready(place) != expected:  # noqa: ASYNC110  there is no event to wait for
        await asyncio.sleep(SOON / 1000)


def with_store(folder: Path) -> Settings:
    return replace(settings(), store=StoreSettings(path=str(folder / "store")))


def test_healthy_hub_reports_each_component(tmp_path: Path) -> None:
    async def run() -> None:
        hub_settings = replace(with_store(tmp_path), journal=JournalSettings(path=str(tmp_path / "journal")))
        async with hub(hub_settings) as place:
            assert await ready(place) == (200, "ok\n")
            assert await ready(place, "?verbose") == (
                200,
                "[+] hub: ok\n[+] sessions: ok\n[+] store: ok\n[+] journal: ok\nok\n",
            )
            assert status(await http(place.port, "/livez")) == (200, "ok\n")

    asyncio.run(run())


def test_stopping_hub_is_not_ready() -> None:
    async def run() -> None:
        async with hub() as place:
            place.server._admin_endpoints.is_draining = True
            assert await ready(place) == (503, "closing\n")
            assert await ready(place, "?verbose=1&verbose") == (503, "[-] hub: closing\n[+] sessions: ok\nclosing\n")
            assert status(await http(place.port, "/livez"))[0] == 200

    asyncio.run(run())


@async_test
async def test_hub_with_an_unwritable_store_is_not_ready(tmp_path: Path) -> None:
    disk, app = Disk(tmp_path), App()

    @app.method("work")
    async def work(n: int) -> int:
        return n

    async with hub(disk.settings, app) as place, posters(place.port) as (peer,):
        disk.serve(place)
        # The store knows the peer already: it refuses only the next request.
        await peer.post({"i": (await peer.outcome("k0", ask("k0", "work", [0])))["a"]})
        store = place.server.exchange.persister.store
        while store is not None and store.waiting:  # noqa: ASYNC110
            await asyncio.sleep(SOON / 1000)
        assert await ready(place) == (200, "ok\n")
        disk.is_full = True
        assert error_of(await peer.outcome("k1", ask("k1", "work", [1]))) == ("busy", True)
        await until_ready(place, (503, "the store cannot be written\n"))
        page = await http(place.port, "/metrics")
        assert 'fiveways_ready{check="store"} 0.0' in page
        assert "fiveways_store_behind 1\n" in page
        disk.is_full = False
        # The hub detects the recovery without a request.
        await until_ready(place, (200, "ok\n"))
        assert (await peer.outcome("k2", ask("k2", "work", [2])))["d"] == 2


def test_hub_that_never_reached_its_broker_is_not_ready() -> None:
    async def run() -> None:
        hub_settings = replace(settings(), mqtt=MqttSettings(enabled=True, url="mqtt://127.0.0.1:1"))
        async with hub(hub_settings) as place:
            assert await ready(place) == (503, "the broker has not been reached yet\n")

    asyncio.run(run())


def test_lost_journal_records_degrade_the_hub(tmp_path: Path) -> None:
    async def run() -> None:
        hub_settings = replace(settings(), journal=JournalSettings(path=str(tmp_path / "journal")))
        async with hub(hub_settings) as place:
            journaling = place.server._journal
            assert journaling is not None
            writer_process = journaling._writer._process
            assert writer_process is not None
            async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as peer:
                os.kill(writer_process._process.pid, 9)
                for _ in range(500):
                    await peer.call("hub.echo", "x")
                    found = await ready(place)
                    if found != (200, "ok\n") and "gaps" in found[1]:
                        break
                    await asyncio.sleep(0.01)
            assert found[0] == 200
            assert found[1].startswith("ok, but the journal has gaps: ")
            assert "fiveways_journal_lost_total 0" not in await http(place.port, "/metrics")

    asyncio.run(run())


def test_verdict_is_the_worst_health() -> None:
    well, worse, bad = (HealthCheck(str(each.value), each, each.name) for each in Health)
    assert verdict([]) == (Health.OK, "ok")
    assert verdict([well]) == (Health.OK, "ok")
    assert verdict([well, worse]) == (Health.DEGRADED, "ok, but DEGRADED")
    assert verdict([well, worse, bad]) == (Health.UNHEALTHY, "DEGRADED; UNHEALTHY")
    assert render_checks([well, worse, bad]) == "[+] 1.0: OK\n[!] 0.5: DEGRADED\n[-] 0.0: UNHEALTHY\n"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_metrics_allow_only_get_and_head(method: str) -> None:
    async def run() -> None:
        async with hub() as place:
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            if method == "POST":
                assert head.startswith("HTTP/1.1 405")
                return
            assert head.startswith("HTTP/1.1 200")
            assert "text/plain; version=0.0.4; charset=utf-8" in head
            assert bool(body) is (method == "GET")

    asyncio.run(run())


def test_foreign_page_gets_no_metrics() -> None:
    async def run() -> None:
        async with hub() as place:
            assert status(await http(place.port, "/metrics", Origin="https://evil.example"))[0] == 403

    asyncio.run(run())


def test_names_need_the_permission_for_hub_traffic() -> None:
    async def run() -> None:
        viewer = IdentitySettings("viewer", Secret("sesame"), call=("hub.traffic", "hub.echo"))
        worker = IdentitySettings("worker", Secret("open"), call=("hub.echo",))
        hub_settings = replace(settings(), auth=AuthSettings(anonymous="never", identity=(viewer, worker)))
        async with hub(hub_settings) as place:
            async with fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}", token="open") as peer:  # noqa: S106
                await peer.call("hub.echo")
            pages = {
                token: await http(place.port, "/metrics", Authorization=f"Bearer {token}")
                for token in ("sesame", "open")
            }
            pages[""] = await http(place.port, "/metrics")
            assert 'fiveways_method_calls_total{method="hub.echo"} 1' in pages.pop("sesame")
            assert not any("hub.echo" in page for page in pages.values())
            assert all('fiveways_protocol_sessions{protocol="lrpm-json"}' in page for page in pages.values())

    asyncio.run(run())


def test_unknown_token_is_refused_and_counted() -> None:
    async def run() -> None:
        hub_settings = replace(settings(), auth=AuthSettings(identity=(IdentitySettings("viewer", Secret("sesame")),)))
        async with hub(hub_settings) as place:
            for path in ("/metrics", "/report"):
                answer = await http(place.port, path, Authorization="Bearer x")
                assert status(answer) == (401, "the hub does not know this token\n")
                assert "\r\nWWW-Authenticate: Bearer\r\n" in answer
            assert "fiveways_refused_logins_total 2\n" in await http(place.port, "/metrics")

    asyncio.run(run())


def test_metrics_page_of_a_running_hub_is_valid(tmp_path: Path) -> None:
    async def run() -> None:
        hub_settings = replace(with_store(tmp_path), journal=JournalSettings(path=str(tmp_path / "journal")))
        async with hub(hub_settings) as place:
            async with fiveways.connect(f"nq+ws://127.0.0.1:{place.port}") as peer:
                await peer.call("hub.echo", "secret payload")
            _, body = status(await http(place.port, "/metrics"))
            found = {metric.name: metric for metric in text_string_to_metric_families(body)}
            (began,) = found["fiveways_start_time_seconds"].samples
            (process,) = found["process_start_time_seconds"].samples
            assert process.value <= began.value + 1
            assert {"fiveways_store_waiting", "fiveways_store_behind", "fiveways_journaled"} <= set(found)
            assert "secret payload" not in body
            assert not any(peer in body for peer in place.server.exchange.hub._sessions)

    asyncio.run(run())
