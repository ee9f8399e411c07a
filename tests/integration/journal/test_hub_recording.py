"""Recording of traffic by a hub: every frame, with the same operation on both sides of the hub."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fiveways
from fiveways.protocols.mqtt_rpc.rpc_pb2 import Response
from fiveways.settings.limits import LimitSettings
from fiveways.settings.operations import JournalSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings
from tests.support.broker_hubs import broker_settings, client_of, is_ready
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.journal_writing import records
from tests.support.raw_peers import PATIENCE, hub, settings
from tests.support.rpc_service import Greeter, new_topic
from tests.support.running import async_test
from tests.support.waiting import until

TOKEN = "geheim"  # noqa: S105  not much of a secret
Rows = list[dict[str, Any]]
URLS = {
    "umq": "umq+ws://127.0.0.1:{port}",
    "umq36": "umq36+ws://127.0.0.1:{port}",
    "lrpm-json": "lrpm+ws://127.0.0.1:{port}",
    "lrpm-cbor": "lrpm+ws://127.0.0.1:{port}?encoding=cbor",
    "nq": "nq+ws://127.0.0.1:{port}",
    "nq http": "nq+http://127.0.0.1:{port}",
}


def recorded(path: Path, base: Settings | None = None) -> Settings:
    return replace(base or settings(), journal=JournalSettings(path=str(path), flush_interval=0.01))


def by_op(rows: Rows) -> dict[str, Rows]:
    rows_by_op: dict[str, Rows] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["at"])):
        for op in (row["op"] or "").split():
            rows_by_op[op].append(row)
    return rows_by_op


@pytest.mark.parametrize("caller", URLS)
@async_test
async def test_call_has_one_operation_on_both_sides(caller: str, tmp_path: Path) -> None:
    async def shout(text: str) -> str:
        return text.upper()

    async with hub(recorded(tmp_path)) as place, fiveways.connect(URLS[caller].format(port=place.port)) as peer:
        for number, callee in enumerate(URLS):
            async with fiveways.connect(URLS[callee].format(port=place.port)) as served:
                await served.register(f"words.shout{number}", shout)
                result = await peer.call(f"words.shout{number}", [f"good morning {number}"], timeout=PATIENCE)
                assert result == f"GOOD MORNING {number}"
    ops = by_op(records(tmp_path)).values()
    for number, callee in enumerate(URLS):
        text = f"good morning {number}".encode()
        (frames,) = [rows for rows in ops if any(text in row["payload"] for row in rows if row["payload"])]
        legs = [(row["protocol"], row["direction"]) for row in frames if text in row["payload"].lower()]
        first, second = caller.partition(" ")[0], callee.partition(" ")[0]
        assert legs == [(first, "in"), (second, "out"), (second, "in"), (first, "out")]
        assert len({row["session"] for row in frames}) == 2


@async_test
async def test_delivery_to_every_subscriber_is_recorded(tmp_path: Path) -> None:
    async with hub(recorded(tmp_path)) as place:
        urls = [url.format(port=place.port) for url in URLS.values()]
        async with fiveways.connect(urls[2]) as publisher, asyncio.TaskGroup() as tasks:
            ready = asyncio.Barrier(len(urls) * 2 + 1)
            for url in urls * 2:
                tasks.create_task(_three_events(url, ready))
            await ready.wait()
            for number in range(3):
                await publisher.publish("news.local", {"n": number})
    published = {op: rows for op, rows in by_op(records(tmp_path)).items() if op.startswith("p")}
    assert len(published) == 3
    for rows in published.values():
        events = [row for row in rows if row["direction"] == "out" and _is_event(row)]
        assert len({row["session"] for row in events}) == len(urls) * 2
        assert sum(row["direction"] == "in" and b"news" in row["payload"] for row in rows) == 1


def _is_event(row: dict[str, Any]) -> bool:
    return b'"n":' in row["payload"] or b"\xa1an" in row["payload"]


async def _three_events(url: str, ready: asyncio.Barrier) -> None:
    async with fiveways.connect(url) as peer, peer.subscribe("news.local") as events:
        await ready.wait()
        for _ in range(3):
            await anext(aiter(events))


@async_test
async def test_denied_sessions_are_recorded_without_tokens(tmp_path: Path) -> None:
    identity = IdentitySettings(name="ann", token=Secret(TOKEN), call=("allowed.*",))
    auth = AuthSettings(anonymous="never", identity=(identity,))
    async with hub(recorded(tmp_path, settings(auth=auth))) as place:
        async with fiveways.connect(URLS["umq"].format(port=place.port), token=TOKEN) as peer:
            with pytest.raises(fiveways.FivewaysError):
                await peer.call("forbidden.thing", timeout=PATIENCE)
        raw = await place.lrpm('{"token":"geheim"}')
        raw.text('[40,1,"hub.ping",null,{}]')
        await raw.heard()
        raw.leave()
        with pytest.raises(fiveways.FivewaysError):
            async with fiveways.connect(
                URLS["lrpm-json"].format(port=place.port), token=TOKEN[:3] + "wrong", reconnect=False
            ):
                pass
    rows = records(tmp_path)
    assert not [row for row in rows if "geheim" in str(row) or "wrong" in str(row)]
    kinds = [row["kind"] for row in rows]
    assert kinds.count("open") == kinds.count("close") == 3
    denied = [row for row in rows if row["kind"] == "deny"]
    assert [row["protocol"] for row in denied] == ["umq", "lrpm-json"]
    assert [row["peer"] for row in denied] == ["ann", None]


@async_test
async def test_operator_adds_names_and_patterns_of_secrets(tmp_path: Path) -> None:
    path = str(tmp_path)
    journal = JournalSettings(path=path, flush_interval=0.01, redact_also=("pin",), redact_patterns=("sk_[a-z]+",))
    async with (
        hub(replace(settings(), journal=journal)) as place,
        fiveways.connect(URLS["lrpm-json"].format(port=place.port)) as peer,
    ):
        body = {"Pin": 1234567, "api_key": TOKEN, "note": "it is sk_geheim."}
        assert await peer.call("hub.echo", body, timeout=PATIENCE) == body
    payloads = [bytes(row["payload"]) for row in records(tmp_path) if isinstance(row["payload"], bytes)]
    assert not [payload for payload in payloads if TOKEN.encode() in payload or b"1234567" in payload]
    assert sum(b"it is ***." in payload for payload in payloads) == 2


@async_test
async def test_events_dropped_for_slow_consumer_are_recorded(tmp_path: Path) -> None:
    limits = LimitSettings(max_unread_events=1 << 16)
    async with hub(recorded(tmp_path, settings(limits=limits))) as place:
        consumer = await place.lrpm()
        consumer.text('[63,300,"flood.*",{}]')
        await consumer.heard()
        consumer.ws.underlying_transport.pause_reading()
        async with fiveways.connect(URLS["lrpm-json"].format(port=place.port)) as publisher:
            for _ in range(400):
                await publisher.publish("flood.now", "x" * 50_000)
        consumer.leave()
    rows = records(tmp_path)
    missed = [row for row in rows if row["kind"] == "drop" and row["op"]]
    assert missed
    assert {row["channel"] for row in missed} == {"flood.now"}
    sent = [row for row in rows if row["session"] == missed[0]["session"] and row["direction"] == "out"]
    delivered = {row["op"] for row in sent if row["kind"] == "text" and row["op"]}
    assert delivered
    assert not delivered & {row["op"] for row in missed}
    assert len(delivered | {row["op"] for row in missed if row["op"] != ""}) <= 400


@async_test
async def test_broker_calls_stray_responses_and_topics_are_recorded(tmp_path: Path, broker: RunningBroker) -> None:
    app = fiveways.App()

    @app.method("who.are_you")
    async def who() -> bytes:
        return b"me"

    async with hub(recorded(tmp_path, broker_settings(broker, topics={"news/#": "both"})), app) as place:
        await until(lambda: is_ready(place))
        async with fiveways.connect_mqtt(broker.url) as peer:
            assert await peer.call("who.are_you", timeout=PATIENCE) == b"me"
            await peer.publish("news/today", b"rain")
            await until(lambda: place.server.exchange.hub.stats()["publications"] == 1)
            await peer.publish("/who", Response(correlation_id=5, eos=True).SerializeToString())
            await until(lambda: place.server.exchange.hub.stats()["stray"] == 1)
    rows = [row for row in records(tmp_path) if row["protocol"] == "mqtt-rpc"]
    assert {row["transport"] for row in rows} == {"mqtt"}
    call = [row for row in rows if row["op"] == "1"]
    assert [(row["direction"], row["channel"]) for row in call] == [("in", "/who"), ("out", "/who")]
    assert [row["payload"] for row in rows if row["channel"] == "news/today"] == [b"rain"]
    (stray,) = [row for row in rows if row["kind"] == "drop"]
    assert stray["channel"] == "/who"
    assert "without a request" in str(stray["reason"])


@async_test
async def test_own_messages_from_the_broker_are_not_recorded_again(tmp_path: Path, broker: RunningBroker) -> None:
    """The hub subscribes to topics that it publishes on. Its own requests must not be recorded as calls of another
    peer.
    """
    topic = new_topic()
    hub_settings = broker_settings(broker, services={topic: "demo.Greeter"}, topics={"news/#": "both"})
    async with hub(recorded(tmp_path, hub_settings)) as place:
        await until(lambda: is_ready(place))
        async with (
            fiveways.connect(URLS["lrpm-json"].format(port=place.port)) as caller,
            client_of(broker) as device,
            device.serve(greeter().module, Greeter(), topic=topic),
            device.subscribe("news/#") as events,
        ):
            for number in range(3):
                method = f"{topic.removeprefix('/')}.say_hello"
                await caller.call(method, {"name": f"Bob {number}"}, timeout=PATIENCE)
                assert await device.call("hub.echo", {"number": number}, timeout=PATIENCE) == {"number": number}
                await caller.publish("news.today", "rain")
                assert (await anext(aiter(events))).payload == b"rain"
            # The same payload from another peer is recorded.
            await device.publish("news/today", b"rain")
            await until(lambda: place.server.exchange.hub.stats()["publications"] == 4)
    rows = [row for row in records(tmp_path) if row["protocol"] == "mqtt-rpc"]
    by_channel = {
        channel: [row for row in rows if row["channel"] == channel] for channel in (topic, "/hub", "news/today")
    }
    assert [row["direction"] for row in by_channel[topic]] == ["out", "in"] * 3
    assert [row["direction"] for row in by_channel["/hub"]] == ["in", "out"] * 3
    assert [row["direction"] for row in by_channel["news/today"]] == ["out"] * 3 + ["in"]
    assert all(row["op"] for row in by_channel[topic] + by_channel["news/today"])
