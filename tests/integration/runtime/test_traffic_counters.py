"""Traffic counters of known traffic over real sockets, for every kind of participant."""

import asyncio
import json
from pathlib import Path
from typing import Any

import uvloop
from picows import WSMsgType

import fiveways
from fiveways.app import App
from fiveways.hub.session import public_name
from fiveways.settings.limits import LimitSettings
from tests.integration.runtime import test_zmq_targets as programs
from tests.support.raw_peers import Place, WirePeer, hub, settings


async def traffic(place: Place) -> Any:  # noqa: ANN401  the result of `hub.traffic`
    """Return the result of `hub.traffic` for an observer."""
    return json.loads(json.dumps(place.server.exchange.hub.traffic_report(place.server.exchange.now())))


async def until_counted(place: Place, protocol: str, **expected: int) -> dict[str, int]:
    """Return the numbers of a protocol once they are as expected: counting may lag behind receipt."""
    counters: dict[str, int] = {}
    for _ in range(200):
        counters = (await traffic(place))["protocols"][protocol]
        if expected.items() <= counters.items():
            break
        await asyncio.sleep(0.01)
    assert expected.items() <= counters.items()
    return counters


async def sent_bytes(peer: WirePeer, text: str, answers: int = 1) -> list[str]:
    peer.text(text)
    return [await peer.heard() for _ in range(answers)]


def test_frames_and_bytes_match_the_wire() -> None:
    async def run() -> None:
        async with hub() as place:
            umq = await place.peer("/umq")
            frames = ["H1.0.0\n", "M1\nhub:ping\n", "M2\nhub:echo\nhello"]
            sizes = [(await sent_bytes(umq, frame))[0] for frame in frames]
            await until_counted(
                place,
                "umq",
                sessions=1,
                frames_in=3,
                bytes_in=sum(map(len, frames)),
                frames_out=3,
                bytes_out=sum(map(len, sizes)),
                calls=2,
            )
            umq.leave()
            await until_counted(place, "umq", sessions=0, frames_in=3)

    asyncio.run(run())


def test_all_bytes_of_attachments_are_counted() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.umq(), await place.umq()
            await sent_bytes(callee, "M1\nhub:register\nstore")
            before = await until_counted(place, "umq", frames_in=3)
            large = b"x" * (3 << 20)
            caller.text("A1\nM1\nstore\n")
            for start in range(0, len(large), 1 << 20):
                kind, end = WSMsgType.CONTINUATION if start else WSMsgType.BINARY, start + (1 << 20)
                caller.ws.send(kind, large[start:end], end >= len(large))
            assert (await callee.heard()).startswith("A1\nM1\nstore")
            received = 0
            while received < len(large):
                received += len(await callee.data())
            after = await until_counted(place, "umq", frames_in=5)
            assert after["bytes_in"] - before["bytes_in"] == len("A1\nM1\nstore\n") + len(large)
            assert after["bytes_out"] - before["bytes_out"] >= len(large)

    asyncio.run(run())


def test_every_kind_of_participant_is_counted() -> None:
    app = App()

    @app.method("app.double")
    async def double(number: int) -> int:
        return 2 * number

    async def run() -> None:
        async with hub(app=app) as place:
            url = f"://127.0.0.1:{place.port}"
            async with (
                fiveways.connect(f"umq+ws{url}") as umq,
                fiveways.connect(f"lrpm+ws{url}?encoding=cbor") as cbor,
                fiveways.connect(f"nq+ws{url}") as nq,
                fiveways.connect(f"nq+http{url}") as post,
            ):

                async def add(a: int, b: int) -> int:
                    return a + b

                await nq.register("math.add", add)
                for caller in (umq, cbor, nq, post):
                    assert await caller.call("math.add", [2, 3]) == 5
                    assert await caller.call("app.double", [4]) == 8
                counters = await traffic(place)
            calls = {(each["caller"], each["callee"]): each["calls"] for each in counters["bridges"]}
            assert {pair: count for pair, count in calls.items() if "hub" not in pair} == {
                ("umq", "nq"): 1,
                ("lrpm-cbor", "nq"): 1,
                ("nq", "nq"): 2,
                ("umq", "app"): 1,
                ("lrpm-cbor", "app"): 1,
                ("nq", "app"): 2,
            }
            methods = {each["method"]: each for each in counters["methods"]}
            for name in ("math.add", "app.double"):
                each = methods[name]
                assert (each["calls"], each["results"], each["failures"]) == (4, 4, 0)
                assert 0 < each["p50"] <= each["p95"] <= each["p99"]
            assert {name for name, each in counters["protocols"].items() if each["frames_in"]} == {
                "umq",
                "lrpm-cbor",
                "nq",
            }
            assert all(each["bytes_out"] for name, each in counters["protocols"].items() if name != "app")
            assert counters["protocols"]["app"]["sessions"] == 1

    asyncio.run(run())


def test_deliveries_are_counted_by_receiver() -> None:
    async def run() -> None:
        async with hub() as place:
            umq, lrpm, other = await place.umq(), await place.lrpm(), await place.lrpm()
            await sent_bytes(umq, "M1\nhub:subscribe\nnews\nt1")
            for peer in (lrpm, other):
                await sent_bytes(peer, '[63,300,"news",{}]')
            for number in range(10):
                umq.text(f"M{number + 2}\nhub:publish\nnews\n{number}")
                for _ in range(2):
                    await umq.heard()
                await lrpm.heard()
                await other.heard()
            counters = await traffic(place)
            assert counters["topics"] == [{"topic": "news", "publications": 10, "deliveries": 30, "missed": 0}]
            assert (counters["protocols"]["umq"]["publications"], counters["protocols"]["umq"]["deliveries"]) == (
                10,
                10,
            )
            assert counters["protocols"]["lrpm-json"]["deliveries"] == 20
            # A welcome, a response to the subscription, and events, for both subscribers.
            assert counters["protocols"]["lrpm-json"]["frames_out"] == 2 * (1 + 1 + 10)

    asyncio.run(run())


def test_slow_consumer_is_listed_with_its_missed_events() -> None:
    small = LimitSettings(max_unread_events=100_000, max_unread=1 << 24)

    async def run() -> None:
        async with hub(settings(limits=small)) as place:
            stuck, publisher = await place.lrpm(), await place.lrpm()
            await sent_bytes(stuck, '[63,300,"news",{}]')
            stuck.ws.underlying_transport.pause_reading()
            body, count = "x" * 50_000, 400
            for number in range(count):
                publisher.text(f'[61,{number + 400},"news","{body}",{{}}]')
                await publisher.heard()
            counters = await traffic(place)
            (slow,) = counters["slow"]
            (topic,) = counters["topics"]
            assert (slow["protocol"], slow["missed"]) == ("lrpm-json", topic["missed"])
            assert topic["deliveries"] == count
            assert 0 < topic["missed"] < count
            assert slow["waiting_bytes"] > small.max_unread_events
            peers = place.server.exchange.hub._sessions
            assert slow["peer"] in {public_name(peer) for peer in peers}
            assert not any(peer in json.dumps(counters) for peer in peers)
            stuck.leave()
            await until_counted(place, "lrpm-json", sessions=1)
            assert (await traffic(place))["slow"] == []

    asyncio.run(run())


def test_call_duration_is_finer_than_the_clock_of_the_loop() -> None:
    async def run() -> None:
        async with (
            hub() as place,
            fiveways.connect(f"umq+ws://127.0.0.1:{place.port}") as worker,
            fiveways.connect(f"lrpm+ws://127.0.0.1:{place.port}") as caller,
        ):

            async def answer() -> None:
                """Answer at once."""

            await worker.register("quick:answer", answer)
            for _ in range(20):
                await caller.call("quick.answer")
            histogram = place.server.exchange.hub.traffic.by_method()["quick.answer"].histogram
            milliseconds = 1000 * histogram.shortest, 1000 * histogram.longest
            assert 0 < milliseconds[0] < milliseconds[1]
            assert all(abs(each - round(each)) > 1e-6 for each in milliseconds)

    uvloop.run(run())


def test_traffic_is_available_in_every_protocol() -> None:
    async def run() -> None:
        async with hub() as place:
            for scheme in ("umq+ws", "umq36+ws", "lrpm+ws", "nq+ws", "nq+http"):
                async with fiveways.connect(f"{scheme}://127.0.0.1:{place.port}") as peer:
                    counters: Any = await peer.call("hub.traffic")
                    assert set(counters) == {
                        *("at", "uptime", "protocols", "methods", "topics", "bridges"),
                        *("failures", "latency", "slow", "others", "forgotten", "observers", "journal"),
                    }

    asyncio.run(run())


def test_zeromq_programs_are_counted(tmp_path: Path) -> None:
    async def run() -> None:
        endpoint = programs.free_endpoint()
        async with programs.processor(endpoint, "one"), programs.hub(tmp_path, endpoint) as peer:
            answer = await peer.call("image.scale", [1, 2])
            counters: Any = await peer.call("hub.traffic")
        zmq = counters["protocols"]["zmq"]
        assert (zmq["frames_out"], zmq["bytes_out"], zmq["frames_in"]) == (1, len("[1,2]"), 1)
        assert zmq["bytes_in"] == len(json.dumps(answer))
        assert {"caller": "lrpm-json", "callee": "zmq"}.items() <= counters["bridges"][-1].items()

    asyncio.run(run())
