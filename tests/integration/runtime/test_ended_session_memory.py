"""Ended sessions are freed at once: no timers or reference cycles remain for the garbage collector."""

import asyncio
from pathlib import Path
from typing import Final

import cbor2
import pytest
import uvloop

from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings
from tests.integration.runtime.test_websocket_rules import BINARY, CLOSE, frame, wired
from tests.support.memory import nothing_left
from tests.support.raw_peers import PATIENCE, Place, hub, settings

MANY: Final = 20
HELLOS: Final = {
    "umq": ("/umq", frame(b"H1.0.0\n")),
    "umq36": ("/umq36", frame(b"H1:")),
    "lrpm-json": ("/lrpm", frame(b"[2,null,{}]")),
    "lrpm-cbor": ("/lrpm", frame(cbor2.dumps([2, None, {}]), BINARY)),
    "nq": ("/nq", frame(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')),
}
CALLS: Final = {
    "umq": frame(b"M1\nhub:ping\n"),
    "umq36": frame(b'C1:["hub.ping"]'),
    "lrpm-json": frame(b'[40,1,"hub.ping",null,{}]'),
    "lrpm-cbor": frame(cbor2.dumps([40, 1, "hub.ping", None, {}]), BINARY),
}


async def run_session(place: Place, path: str, *frames: bytes, closes: bool) -> None:
    """Open a WebSocket, send frames and read a response to each; end with a goodbye or without one."""
    async with wired(place.port, path) as wire:
        for each in frames:
            wire.writer.write(each)
            await asyncio.wait_for(wire.read(), PATIENCE)
        if closes:
            wire.writer.write(frame(b"\x03\xe8", CLOSE))
            await wire.closed()
        else:
            wire.writer.transport.abort()


def in_time(hub_settings: Settings | None, path: str, *frames: bytes, closes: bool = True) -> None:
    async def run() -> None:
        async with hub(hub_settings) as place:
            await run_session(place, path, *frames, closes=closes)
            async with nothing_left(MANY, collects=False):
                for _ in range(MANY):
                    await run_session(place, path, *frames, closes=closes)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("protocol", list(HELLOS))
def test_session_is_freed_when_its_connection_ends(protocol: str, closes: bool) -> None:
    path, hello = HELLOS[protocol]
    in_time(None, path, hello, closes=closes)


@pytest.mark.parametrize("protocol", list(CALLS))
def test_session_with_calls_is_freed(protocol: str) -> None:
    path, hello = HELLOS[protocol]
    in_time(None, path, hello, CALLS[protocol])


@pytest.mark.parametrize("protocol", list(HELLOS))
def test_journaled_session_is_freed(protocol: str, tmp_path: Path) -> None:
    path, hello = HELLOS[protocol]
    in_time(Settings(server=settings().server, journal=JournalSettings(path=str(tmp_path))), path, hello)


@pytest.mark.parametrize("path", ["/umq", "/umq36", "/lrpm"])
def test_silent_connection_is_freed_before_the_login_timeout(path: str) -> None:
    patient = settings(auth=AuthSettings(login_timeout=10 * PATIENCE))
    in_time(patient, path)
    in_time(patient, path, closes=False)


@pytest.mark.parametrize("protocol", list(HELLOS))
def test_refused_session_is_freed(protocol: str) -> None:
    async def run() -> None:
        path, hello = HELLOS[protocol]
        auth = AuthSettings(anonymous="never", identity=(IdentitySettings("ada", secret=Secret("s")),))
        async with hub(settings(auth=auth)) as place, nothing_left(MANY, collects=False):
            for _ in range(MANY):
                async with wired(place.port, path) as wire:
                    wire.writer.write(hello)
                    await wire.closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
