"""`fiveways.serve`: a hub inside another program."""

import asyncio
from pathlib import Path

import pytest
import uvloop

import fiveways
from fiveways.runtime.embedded_hub import serve
from fiveways.runtime.listen_errors import CannotListen
from fiveways.settings.sources import SettingsError

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def greeting_app() -> fiveways.App:
    app = fiveways.App()

    @app.method("greet")
    def greet(name: str) -> str:
        return f"Hello {name}"

    return app


@pytest.mark.parametrize("loop", LOOPS)
def test_methods_of_the_application_are_called_in_every_protocol(loop: str) -> None:
    async def run() -> list[object]:
        async with serve(greeting_app(), port=0) as hub:
            answers = []
            for name in ("umq", "umq36", "lrpm", "nq", "nq+http"):
                async with fiveways.connect(hub.url(name)) as peer:
                    answers.append(await peer.call("greet", ["Ann"], timeout=10.0))
            return answers

    assert LOOPS[loop](run()) == ["Hello Ann"] * 5


def test_peers_are_notified_when_the_hub_ends() -> None:
    async def run() -> None:
        async with serve(port=0) as hub:
            peer = await fiveways.connect(hub.url("lrpm"), reconnect=False)
            assert await peer.call("hub.ping", timeout=10.0) == "pong"
        with pytest.raises(fiveways.FivewaysError):
            await peer.call("hub.ping", timeout=1.0)
        await peer.close()

    asyncio.run(run())


def test_settings_override_the_file(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("[calls]\ntimeout = 1.0\n[limits]\nmax_pending = 7\n", encoding="utf-8")

    async def run() -> object:
        async with serve(port=0, config=config, settings={"limits.max_pending": 9}) as hub:
            return hub._server._limits.max_pending

    assert asyncio.run(run()) == 9


def test_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIVEWAYS_LIMITS_MAX_PENDING", "3")

    async def run() -> int:
        async with serve(port=0) as hub:
            return hub._server._limits.max_pending

    assert asyncio.run(run()) != 3


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"unknown setting limits\.max_pendings"):
        serve(settings={"limits.max_pendings": 9})


def test_second_hub_on_a_port_is_refused() -> None:
    async def run() -> None:
        async with serve(port=0) as hub:
            port = int(hub.url("metrics").rpartition(":")[2].partition("/")[0])
            with pytest.raises(CannotListen):
                async with serve(port=port):
                    pass

    asyncio.run(run())


def test_unknown_url_lists_the_served_ones() -> None:
    async def run() -> str:
        async with serve(port=0) as hub:
            with pytest.raises(fiveways.FivewaysError) as caught:
                hub.url("amqp")
            return str(caught.value)

    assert asyncio.run(run()) == (
        "the hub does not serve 'amqp'; it serves health, lrpm, metrics, nq, page, ready, umq, umq36"
    )
