"""Links to real brokers."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from fiveways.errors import ConnectionLost, Refused
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, Will, open_mqtt
from tests.support.broker_processes import BROKERS, Certificate, RunningBroker, Wanted, certificate, running
from tests.support.event_loops import on_both_loops
from tests.support.mqtt_fakes import Ear

MANY = 10_000


@asynccontextmanager
async def linked(broker: RunningBroker, will: Will | None = None) -> AsyncIterator[tuple[MqttLink, Ear]]:
    """A link, and who listens."""
    ear = Ear()
    link = await open_mqtt(Broker.parse(broker.url), ear, will=will)
    try:
        yield link, ear
    finally:
        link.close()


def fresh() -> str:
    """A topic that no other test uses."""
    return f"test/{secrets.token_hex(8)}"


@pytest.fixture(params=BROKERS)
def own_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker that a test may end."""
    with running(request.param) as each:
        yield each


@pytest.mark.parametrize("qos", [0, 1])
@on_both_loops
async def test_what_is_published_comes_to_all_who_subscribed(broker: RunningBroker, qos: int) -> None:
    topic = fresh()
    async with linked(broker) as (one, own), linked(broker) as (two, other):
        await one.subscribe([topic], qos)
        await two.subscribe([topic, "unrelated/+"], qos)
        one.publish(topic, b"\x00first\xff", qos=qos)
        one.publish(topic, b"", qos=qos)
        expected = [MqttMessage(topic, payload, False, False, qos) for payload in (b"\x00first\xff", b"")]
        for ear in (own, other):
            await ear.hears(2)
            assert [without_id(message) for message in ear.heard] == expected
        await two.unsubscribe([topic])
        one.publish(topic, b"more", qos=qos)
        assert await own.hears(3) == [b"\x00first\xff", b"", b"more"]
        two.publish(topic, b"last", qos=qos)
        await own.hears(4)
        assert len(other.heard) == 2
        await two.subscribe(["unrelated/+"])
        assert one.unacknowledged == two.unacknowledged == 0


def without_id(message: MqttMessage) -> MqttMessage:
    assert bool(message.packet_id) == bool(message.qos)
    return MqttMessage(message.topic, message.payload, message.retained, message.duplicate, message.qos)


async def is_retained(broker: RunningBroker, topic: str) -> None:
    """Wait until newcomers are told: nats-server passes a message on before it knows that it retains it."""
    told = False
    while not told:
        async with linked(broker) as (probe, ear):
            await probe.subscribe([topic])
            with suppress(TimeoutError):
                await asyncio.wait_for(ear.hears(1), 1.0)
            told = bool(ear.heard)


@on_both_loops
async def test_what_was_retained_says_so(broker: RunningBroker) -> None:
    topic = fresh()
    async with linked(broker) as (one, own), linked(broker) as (two, late):
        await one.subscribe([topic])
        one.publish(topic, b"kept", retain=True)
        await own.hears(1)
        await is_retained(broker, topic)
        await two.subscribe([topic])
        await late.hears(1)
        assert [own.heard[0].retained, late.heard[0].retained] == [False, True]
        one.publish(topic, b"", retain=True)
        assert await late.hears(2) == [b"kept", b""]


@pytest.mark.parametrize("qos", [0, 1])
@on_both_loops
async def test_ten_thousand_messages_come_in_their_order(broker: RunningBroker, qos: int) -> None:
    topic = fresh()
    async with linked(broker) as (sender, _), linked(broker) as (reader, ear):
        await reader.subscribe([topic], qos)
        expected = [b"%d" % number for number in range(MANY)]
        for start in range(0, MANY, 500):
            for payload in expected[start : start + 500]:
                sender.publish(topic, payload, qos=qos)
            await ear.hears(start + 500)
        assert ear.payloads == expected


@on_both_loops
async def test_a_large_message_comes_whole(broker: RunningBroker) -> None:
    topic = fresh()
    payload = secrets.token_bytes(900 * 1024)
    async with linked(broker) as (link, ear):
        await link.subscribe([topic])
        link.publish(topic, payload)
        link.publish(topic, b"small")
        assert await ear.hears(2) == [payload, b"small"]


@on_both_loops
async def test_a_topic_may_be_any_text(broker: RunningBroker) -> None:
    topics = [f"/{fresh()}", f"{fresh()}/Žluť/日本.x", f"{fresh()}//"]
    async with linked(broker) as (link, ear):
        await link.subscribe(topics)
        for topic in topics:
            link.publish(topic, topic.encode())
        await ear.hears(len(topics))
        assert {message.topic: message.payload for message in ear.heard} == {each: each.encode() for each in topics}


@on_both_loops
async def test_a_will_is_published_for_who_goes_without_a_word(broker: RunningBroker) -> None:
    topic = fresh()
    async with linked(broker) as (link, ear):
        await link.subscribe([topic])
        async with linked(broker, Will(topic, b"took leave")):
            pass
        async with linked(broker, Will(topic, b"went")) as (other, _):
            other.abort()
            assert await ear.hears(1) == [b"went"]


@on_both_loops
async def test_a_broker_that_is_killed_is_lost_and_may_come_back(own_broker: RunningBroker) -> None:
    async with linked(own_broker) as (link, ear):
        await link.subscribe(["a"])
        own_broker.freeze()
        asked = asyncio.ensure_future(link.subscribe(["b"]))
        link.publish("a", b"never acknowledged")
        await asyncio.sleep(0.05)
        own_broker.kill()
        assert await ear.loses()
        assert link.unacknowledged == 1
        with pytest.raises(ConnectionLost):
            await asked
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await open_mqtt(Broker.parse(own_broker.url), Ear())
        own_broker.start()
        async with linked(own_broker) as (again, heard):
            await again.subscribe(["a"])
            again.publish("a", b"back")
            assert await heard.hears(1) == [b"back"]


@on_both_loops
async def test_a_broker_that_ends_in_good_order_is_lost_too(own_broker: RunningBroker) -> None:
    async with linked(own_broker) as (_, ear):
        await asyncio.to_thread(own_broker.stop)
        assert "closed the connection" in await ear.loses()


@on_both_loops
async def test_a_broker_that_does_not_read_makes_a_link_full(own_broker: RunningBroker) -> None:
    topic = fresh()
    async with linked(own_broker) as (link, ear), linked(own_broker) as (reader, heard):
        await reader.subscribe([topic])
        own_broker.freeze()
        published = 0
        while not link.is_full:
            link.publish(topic, published.to_bytes(4) * 2500)
            published += 1
        assert (ear.writables, link.unsent_bytes() > 0) == (0, True)
        own_broker.thaw()
        await ear.until(lambda: ear.writables == 1)
        assert not link.is_full
        assert await heard.hears(published) == [number.to_bytes(4) * 2500 for number in range(published)]


@on_both_loops
async def test_a_broker_that_hangs_is_lost(own_broker: RunningBroker) -> None:
    ear = Ear()
    link = await open_mqtt(Broker.parse(own_broker.url), ear, keepalive=1.0)
    await asyncio.sleep(2.0)
    assert not ear.losses
    own_broker.freeze()
    assert "was silent" in await ear.loses()
    assert link.unsent_bytes() == 0


@pytest.fixture(scope="module")
def made() -> Iterator[Certificate]:
    """One certificate for all."""
    with certificate() as each:
        yield each


@pytest.fixture(params=BROKERS, scope="module")
def guarded(request: pytest.FixtureRequest, made: Certificate) -> Iterator[RunningBroker]:
    """A broker with TLS that wants to know who we are."""
    with running(request.param, Wanted("me", "pass-word", made)) as each:
        yield each


@on_both_loops
async def test_the_right_password_opens_over_tls(guarded: RunningBroker, made: Certificate) -> None:
    ear = Ear()
    link = await open_mqtt(Broker.parse(guarded.url), ear, ssl_context=made.context())
    topic, payload = fresh(), secrets.token_bytes(300_000)
    await link.subscribe([topic])
    link.publish(topic, payload)
    assert await ear.hears(1) == [payload]
    link.close()
    assert await ear.loses() == "closed by this end"


@pytest.mark.parametrize(("user", "password"), [("me", "wrong"), ("other", "pass-word"), ("me", ""), ("", "")])
@on_both_loops
async def test_a_wrong_password_is_refused(guarded: RunningBroker, made: Certificate, user: str, password: str) -> None:
    broker = replace(Broker.parse(guarded.url), user=user, password=password)
    with pytest.raises(Refused, match=r"not authorised|wrong user") as caught:
        await open_mqtt(broker, Ear(), ssl_context=made.context())
    assert "pass" not in str(caught.value).replace("password", "")


@on_both_loops
async def test_a_certificate_that_nobody_knows_is_not_believed(guarded: RunningBroker, made: Certificate) -> None:
    broker = Broker.parse(guarded.url)
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        await open_mqtt(broker, Ear())
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        await open_mqtt(replace(broker, host="127.0.0.1"), Ear(), ssl_context=made.context())
    with pytest.raises(ConnectionLost):
        await open_mqtt(replace(broker, tls=False), Ear(), timeout=5.0)


@on_both_loops
async def test_tls_is_not_spoken_to_a_broker_without_it(broker: RunningBroker) -> None:
    with pytest.raises(ConnectionLost):
        await open_mqtt(replace(Broker.parse(broker.url), tls=True), Ear(), timeout=5.0)


@on_both_loops
async def test_a_host_that_is_none_cannot_be_reached() -> None:
    for host in ("no-such-host.invalid", "x" * 300, "a..b"):
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await open_mqtt(Broker(host, 1), Ear(), timeout=10.0)
