"""The end of sessions and of the hub: goodbye, drain, keepalive, stuck peers."""

import asyncio
import signal

import pytest

from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import ServerSettings
from tests.support.hub_process import served
from tests.support.memory import nothing_left
from tests.support.raw_peers import PATIENCE, connected, http, hub, settings


def test_sigterm_drains_open_calls_and_exits_with_0() -> None:
    async def run() -> int | None:
        async with served() as (process, port):
            callee = await connected(f"ws://127.0.0.1:{port}/umq")
            caller = await connected(f"ws://127.0.0.1:{port}/lrpm")
            callee.text("H1.0.0\n")
            caller.text("[2,null,{}]")
            await callee.heard()
            await caller.heard()
            callee.text("M1\nhub:register\nslow")
            await callee.heard()
            caller.text('[40,300,"slow",null,{}]')
            assert await callee.heard() == "M1\nslow\nnull"
            process.send_signal(signal.SIGTERM)
            while "503" not in await http(port, "/readyz"):
                pass
            # New calls are refused while the open one continues.
            caller.text('[40,301,"slow",null,{}]')
            assert "hub.err.unavailable" in await caller.heard()
            callee.text("R1\ndone")
            assert await caller.heard() == '[41,300,"done",{}]'
            assert (await caller.heard()).startswith('[1,".bye.normal"')
            assert (await callee.heard()).startswith("E\n11 ")
            await asyncio.wait_for(process.wait(), PATIENCE)
            return process.returncode

    assert asyncio.run(run()) == 0


def test_call_beyond_the_drain_timeout_is_lost() -> None:
    async def run() -> None:
        hub_settings = settings(server=ServerSettings(port=0, drain_timeout=0.1))
        async with hub(hub_settings) as place:
            callee, caller = await place.umq(), await place.lrpm()
            callee.text("M1\nhub:register\nslow")
            await callee.heard()
            caller.text('[40,300,"slow",null,{}]')
            await callee.heard()
            await place.server.stop()
            assert (await caller.heard()).startswith('[20,40,300,"hub.err.lost"')
            assert (await caller.heard()).startswith('[1,".bye.normal"')

    asyncio.run(run())


def test_readyz_reports_the_drain() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.umq(), await place.lrpm()
            callee.text("M1\nhub:register\nslow")
            await callee.heard()
            caller.text('[40,300,"slow",null,{}]')
            await callee.heard()
            stopping = asyncio.create_task(place.server.stop())
            await asyncio.sleep(0)
            assert (await http(place.port, "/readyz")).startswith("HTTP/1.1 503 ")
            callee.text("R1\n1")
            await stopping

    asyncio.run(run())


def test_keepalive_disconnects_a_silent_peer() -> None:
    async def run() -> None:
        hub_settings = settings(server=ServerSettings(port=0, ping_interval=0.1, ping_timeout=2.0))
        async with hub(hub_settings) as place:
            alive, dead = await place.umq(), await place.umq()
            dead.ws.underlying_transport.pause_reading()
            (connection,) = [each for each in place.server.connections if each.link.remote.endswith(port_of(dead))]
            while connection in place.server.connections:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.02)
            dead.leave()
            alive.text("M1\nhub:ping\n")
            assert (await alive.heard()).startswith("R1\n")

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def port_of(peer: object) -> str:
    """Return the local port of a peer."""
    return f":{peer.ws.underlying_transport.get_extra_info('sockname')[1]}"  # type: ignore[attr-defined]


def test_caller_that_reads_no_responses_is_disconnected() -> None:
    async def run() -> None:
        hub_settings = settings(limits=LimitSettings(max_unread_events=100_000, max_unread=1_000_000))
        async with hub(hub_settings) as place:
            greedy, good = await place.lrpm(), await place.umq()
            (connection,) = [each for each in place.server.connections if each.link.remote.endswith(port_of(greedy))]
            greedy.ws.underlying_transport.pause_reading()
            body = "x" * 50_000
            number = 300
            while connection in place.server.connections and number < 2000:
                greedy.text(f'[40,{number},"hub.echo","{body}",{{}}]')
                number += 1
                assert connection.unsent_bytes() < 1_000_000 + (1 << 20)
                await asyncio.sleep(0)
            assert connection not in place.server.connections
            greedy.leave()
            good.text("M1\nhub:ping\n")
            assert (await good.heard()).startswith("R1\n")

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


@pytest.mark.parametrize("path", ["/umq", "/umq36", "/lrpm"])
def test_ended_sessions_leave_nothing(path: str) -> None:
    async def run() -> None:
        async with hub() as place, nothing_left(50):
            for _ in range(50):
                peer = await place.peer(path)
                peer.text({"/umq": "H1.0.0\n", "/umq36": "H1:", "/lrpm": "[2,null,{}]"}[path])
                await peer.heard()
                peer.leave()
            quiet = await place.peer(path)
            quiet.leave()
            while place.server.connections:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)
            assert place.server.exchange.participants == {}
            assert place.server.exchange.hub.stats()["sessions"] == 0

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_blocked_publisher_resumes_when_the_subscriber_is_lost() -> None:
    async def run() -> None:
        hub_settings = settings(limits=LimitSettings(max_unread_events=50_000))
        object.__setattr__(hub_settings.topics, "when_full", {"news": "block"})
        async with hub(hub_settings) as place:
            slow, publisher = await place.lrpm(), await place.lrpm()
            slow.text('[63,300,"news",{}]')
            await slow.heard()
            slow.ws.underlying_transport.pause_reading()
            answered = True
            number = 400
            while answered:
                publisher.text(f'[61,{number},"news","{"x" * 50_000}",{{}}]')
                number += 1
                try:
                    await asyncio.wait_for(publisher.frames.get(), 0.3)
                except TimeoutError:
                    answered = False
            slow.leave()
            assert (await publisher.heard()).startswith("[62,")

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
