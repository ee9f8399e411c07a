"""Clock jumps: nothing expires or is deleted because of one until an operator confirms the clock."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fiveways.runtime import clock_guard
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import AuthSettings, NqSettings, Settings, StoreSettings
from tests.integration.runtime.test_nq_http import error_of
from tests.support.nq_peers import Poster, ask, posters, served
from tests.support.raw_peers import Place, WirePeer, http, hub, settings
from tests.support.running import async_test

DAY = 86_400.0
OPERATOR = AuthSettings(call=("*", "hub.clock"))
CONFIRM = '[40,900,"hub.clock",{"confirm":true},{}]'


class Clock:
    """The wall clock of a hub; the steady clock is unaffected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr("fiveways.runtime.server.wall_clock", lambda: time.time() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(clock_guard, "_CHECK_INTERVAL", 0.01)
    return Clock(monkeypatch)


def with_store(folder: Path, **nq: float) -> Settings:
    hub_settings = replace(settings(), store=StoreSettings(path=str(folder / "store.db")), auth=OPERATOR)
    return replace(hub_settings, nq=NqSettings(**nq)) if nq else hub_settings  # type: ignore[arg-type]


async def accepted(hub_settings: Settings, number: int) -> str:
    """Return a disconnected peer with accepted requests."""
    async with hub(hub_settings) as place, posters(place.port) as (peer,):
        await served(place)
        for n in range(number):
            assert "a" in await peer.until("a", ask(f"k{n}", "work", n))
        return peer.peer


@asynccontextmanager
async def restarted(hub_settings: Settings, peer: str) -> AsyncIterator[tuple[Place, Poster]]:
    """The next hub, to which the peer reconnects."""
    async with hub(hub_settings) as place, posters(place.port) as (again,):
        again.peer = peer
        yield place, again


async def answer_calls(callee: WirePeer) -> None:
    while True:
        call, _, argument = (await callee.heard()).split("\n")
        callee.text(f"R{call[1:]}\n1{argument}")


@async_test
async def test_clock_8_days_ahead_expires_no_request(tmp_path: Path, clock: Clock) -> None:
    hub_settings = with_store(tmp_path)
    peer = await accepted(hub_settings, 3)
    clock.ahead = 8 * DAY
    async with restarted(hub_settings, peer) as (place, again):
        page = await http(place.port, "/readyz")
        assert page.startswith("HTTP/1.1 200")
        assert "the clock is 8 days" in page
        working = asyncio.create_task(answer_calls(await served(place)))
        assert [(await again.outcome(f"k{n}"))["d"] for n in range(3)] == [10, 11, 12]
        working.cancel()


@async_test
async def test_confirmed_clock_expires_requests_and_notifies_their_peers(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fiveways")
    hub_settings = with_store(tmp_path)
    peer = await accepted(hub_settings, 3)
    clock.ahead = 8 * DAY
    for _ in range(2):  # the next start detects the same jump
        async with hub(hub_settings) as place:
            operator = await place.lrpm()
            operator.text('[40,300,"hub.clock",null,{}]')
            assert '"held":true' in await operator.heard()
    async with restarted(hub_settings, peer) as (place, again):
        operator = await place.lrpm()
        operator.text(CONFIRM)
        assert '"expired":3' in await operator.heard()
        (line,) = [each for each in caplog.records if each.getMessage().startswith("clock confirmed")]
        assert line.fields == {"expired_requests": 3}  # type: ignore[attr-defined]
        for n in range(3):
            assert error_of(await again.outcome(f"k{n}"))[0] == "expired"
        assert "clock" not in await http(place.port, "/readyz")
    async with hub(hub_settings) as place:
        assert "clock" not in await http(place.port, "/readyz")


@async_test
async def test_requests_that_expired_while_the_hub_was_down_are_answered_and_counted_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    hub_settings = with_store(tmp_path, request_ttl=3600.0)
    peer = await accepted(hub_settings, 3)
    clock.ahead = 7200.0  # less than a jump
    async with restarted(hub_settings, peer) as (_, again):
        for n in range(3):
            assert error_of(await again.outcome(f"k{n}"))[0] == "expired"
    assert [each.fields for each in caplog.records if "expired while" in each.getMessage()] == [{"requests": 3}]  # type: ignore[attr-defined]
    caplog.clear()
    async with hub(hub_settings):
        assert "expired" not in caplog.text


@async_test
async def test_confirmation_needs_an_explicit_permission(tmp_path: Path, clock: Clock) -> None:
    hub_settings = replace(with_store(tmp_path), auth=AuthSettings())
    async with hub(hub_settings) as place:
        peer = await place.lrpm()
        peer.text(CONFIRM)
        assert "hub.err.denied" in await peer.heard()
        peer.text('[40,901,"hub.clock",null,{}]')
        assert '"held":false' in await peer.heard()
        clock.ahead = 8 * DAY
        peer.text('[40,902,"hub.clock",null,{}]')
        assert '"held":true' in await peer.heard()


@async_test
async def test_jump_of_a_running_hub_is_reported_until_it_is_undone(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fiveways")
    async with hub(with_store(tmp_path)) as place:
        for ahead, text in ((-8 * DAY, "behind the last record"), (0.0, "the clock agrees with the last record again")):
            clock.ahead = ahead
            while text not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "clock" not in await http(place.port, "/readyz")


def segment(folder: Path, days: float) -> Path:
    """A closed segment of this age in days."""
    path = folder / f"20260101T000000-abcdef-{round(days):06}.parquet"
    path.write_bytes(b"PAR1")
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


@async_test
async def test_journal_keeps_old_segments_until_the_clock_is_confirmed(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    old = [segment(folder, 40.0 + day) for day in range(3)]
    journal = JournalSettings(path=str(folder), flush_interval=0.01, segment_age=0.05)
    async with hub(replace(settings(), journal=journal, auth=OPERATOR)) as place:
        assert "the clock is 40 days" in await http(place.port, "/readyz")
        operator = await place.lrpm()
        for _ in range(3):
            await closed_segment(folder, operator)
        assert all(path.exists() for path in old)
        operator.text(CONFIRM)
        await operator.heard()
        while any(path.exists() for path in old):
            await closed_segment(folder, operator)


def closed(folder: Path) -> set[Path]:
    return set(folder.glob("*.parquet"))


async def closed_segment(folder: Path, peer: WirePeer) -> None:
    """Close one more segment."""
    before = closed(folder)
    while closed(folder) <= before:
        peer.text('[40,300,"hub.ping",null,{}]')
        await peer.heard()
        await asyncio.sleep(0.02)
