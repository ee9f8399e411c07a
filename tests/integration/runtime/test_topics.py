"""Publications over real sockets: to all protocols, to slow consumers, and to later subscribers."""

import asyncio

import pytest

from fiveways.app import App
from fiveways.settings.limits import LimitSettings
from fiveways.settings.sections import Settings, TopicSettings
from tests.support.memory import nothing_left
from tests.support.raw_peers import PATIENCE, WirePeer, hub, settings

SMALL = LimitSettings(max_unread_events=100_000, max_unread=1 << 24)


def test_publication_arrives_in_every_protocol() -> None:
    async def run() -> None:
        async with hub() as place:
            umq, umq36, lrpm = await place.umq(), await place.umq36(), await place.lrpm()
            umq.text("M1\nhub:subscribe\nsensors.roof\nt1")
            umq36.text('C1:["hub.subscribe",{"topic":"sensors.roof","id":"9A"}]')
            lrpm.text('[63,300,"sensors.*",{}]')
            for peer in (umq, umq36, lrpm):
                await peer.heard()
            umq.text("M2\nhub:publish\nsensors.roof\n21.5")
            received = {await umq.heard(), await umq.heard()}
            assert received == {"Tt1\n21.5", "R2\n256"}
            assert await umq36.heard() == "T9A:21.5"
            assert await lrpm.heard() == '[60,256,256,21.5,{"topic":"sensors.roof"}]'

    asyncio.run(run())


def test_later_subscriber_gets_the_retained_value() -> None:
    async def run() -> None:
        async with hub() as place:
            umq, lrpm = await place.umq(), await place.lrpm()
            umq.text('M1\nhub:publish\n{"topic":"door","data":"open","retain":true}')
            await umq.heard()
            lrpm.text('[63,300,"door",{}]')
            assert (await lrpm.heard()).startswith("[64,300,256")
            assert (await lrpm.heard()).startswith('[60,256,256,"open"')

    asyncio.run(run())


def test_closed_topic_ends_its_subscriptions() -> None:
    async def run() -> None:
        async with hub() as place:
            umq, umq36 = await place.umq(), await place.umq36()
            umq.text("M1\nhub:subscribe\ndoor\nd")
            umq36.text('C1:["hub.subscribe",{"topic":"door","id":"7"}]')
            await umq.heard()
            await umq36.heard()
            umq36.text('C2:["hub.close","door"]')
            assert await umq.heard() == "Zd"
            assert {await umq36.heard(), await umq36.heard()} == {"D7:", "R2:null"}

    asyncio.run(run())


async def follow(peer: WirePeer, topic: str = "news") -> None:
    peer.text(f'[63,300,"{topic}",{{}}]')
    assert (await peer.heard()).startswith("[64,300,")


async def event_of(peer: WirePeer, count: int) -> None:
    for _ in range(count):
        assert (await peer.heard()).startswith("[60,")


def test_stuck_subscriber_does_not_delay_50_others() -> None:
    async def run() -> None:
        async with hub(settings(limits=SMALL)) as place, nothing_left(50):
            stuck, publisher = await place.lrpm(), await place.lrpm()
            healthy = [await place.lrpm() for _ in range(50)]
            for peer in (stuck, *healthy):
                await follow(peer)
            stuck.ws.underlying_transport.pause_reading()
            body = "x" * 10_000
            rounds, each = 40, 20
            for _ in range(rounds):
                for number in range(each):
                    publisher.text(f'[61,{400 + number},"news","{body}",{{}}]')
                for _ in range(each):
                    assert (await publisher.heard()).startswith("[62,")
                await asyncio.gather(*(event_of(peer, each) for peer in healthy))
            (connection,) = [each for each in place.server.connections if each.is_slow]
            assert connection.unsent_bytes() < SMALL.max_unread_events + (1 << 20)
            stuck.ws.underlying_transport.resume_reading()
            seen = missed = 0
            while seen + missed < rounds * each:
                if stuck.frames.empty():
                    publisher.text('[61,999,"news","last",{}]')
                event = await stuck.heard()
                seen += 1
                _, _, meta = event.partition('"missed":')
                missed += int(meta.rstrip("}]").partition(",")[0]) if meta else 0
            assert missed > 0
            for peer in (stuck, publisher, *healthy):
                peer.leave()
            del stuck, publisher, healthy, peer, connection

    asyncio.run(run())


@pytest.mark.parametrize("policy", ["close", "unsubscribe", "block"])
def test_slow_subscriber_is_handled_by_its_overflow_policy(policy: str) -> None:
    async def run() -> None:
        hub_settings = Settings(
            server=settings().server,
            limits=SMALL,
            topics=TopicSettings(when_full={"news": policy}),  # type: ignore[dict-item]
        )
        async with hub(hub_settings) as place:
            slow, publisher = await place.lrpm(), await place.lrpm()
            await follow(slow)
            slow.ws.underlying_transport.pause_reading()
            body = "x" * 50_000
            sent = answered = 0
            patience = 0.5 if policy == "block" else PATIENCE
            for _ in range(400):
                publisher.text(f'[61,{400 + sent},"news","{body}",{{}}]')
                sent += 1
                try:
                    await asyncio.wait_for(publisher.frames.get(), patience)
                    answered += 1
                except TimeoutError:
                    break
            slow.ws.underlying_transport.resume_reading()
            events = 0
            last: object = ""
            while last is not None and '"closed"' not in str(last) and events < sent:
                last = await asyncio.wait_for(slow.frames.get(), PATIENCE)
                events += isinstance(last, str) and last.startswith("[60,") and '"closed"' not in last
            if policy == "block":
                assert answered < sent
                assert events == sent
            else:
                assert answered == sent == 400
                assert events < 400
                assert last is None if policy == "close" else '"closed":true' in str(last)

    asyncio.run(run())


def test_publication_of_an_application_arrives_without_other_traffic() -> None:
    async def run() -> None:
        async with hub(app=App()) as place:
            local = place.server._local_peer
            assert local is not None
            peers = [await place.lrpm() for _ in range(3)]
            for peer in peers:
                peer.text('[63,300,"news",{}]')
                await peer.heard()
            for number in range(5):
                await local.publish("news", number)
                assert {(await peer.heard())[:4] for peer in peers} == {"[60,"}

    asyncio.run(run())
