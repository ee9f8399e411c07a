"""Tests of MQTT links with real brokers."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from fiveways.errors import ConnectionLost, Refused
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, Will, open_mqtt
from tests.support.broker_processes import BROKERS, Certificate, RunningBroker, Wanted, certificate, running
from tests.support.mqtt_fakes import RecordingReceiver
from tests.support.running import on_both_loops

MESSAGE_COUNT = 10_000


@asynccontextmanager
async def open_link(
    broker: RunningBroker, will: Will | None = None
) -> AsyncIterator[tuple[MqttLink, RecordingReceiver]]:
    """Open a link with a recording receiver."""
    ear = RecordingReceiver()
    link = await open_mqtt(Broker.parse(broker.url), ear, will=will)
    try:
        yield link, ear
    finally:
        link.close()


def unique_topic() -> str:
    """Return a topic that no other test uses."""
    return f"test/{secrets.token_hex(8)}"


@pytest.fixture(params=BROKERS)
def own_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """Broker that a test may stop."""
    with running(request.param) as running_broker:
        yield running_broker


@pytest.mark.parametrize("qos", [0, 1])
@on_both_loops
async def test_message_is_delivered_to_all_subscribers(broker: RunningBroker, qos: int) -> None:
    topic = unique_topic()
    async with open_link(broker) as (one, own), open_link(broker) as (two, other):
        await one.subscribe([topic], qos)
        await two.subscribe([topic, "unrelated/+"], qos)
        one.publish(topic, b"\x00first\xff", qos=qos)
        one.publish(topic, b"", qos=qos)
        expected = [MqttMessage(topic, payload, False, False, qos) for payload in (b"\x00first\xff", b"")]
        for ear in (own, other):
            await ear.wait_for_messages(2)
            assert [without_id(message) for message in ear.messages] == expected
        await two.unsubscribe([topic])
        one.publish(topic, b"more", qos=qos)
        assert await own.wait_for_messages(3) == [b"\x00first\xff", b"", b"more"]
        two.publish(topic, b"last", qos=qos)
        await own.wait_for_messages(4)
        assert len(other.messages) == 2
        await two.subscribe(["unrelated/+"])
        assert one.unacknowledged == two.unacknowledged == 0


def without_id(message: MqttMessage) -> MqttMessage:
    assert bool(message.packet_id) == bool(message.qos)
    return MqttMessage(message.topic, message.payload, message.retained, message.duplicate, message.qos)


async def wait_until_retained(broker: RunningBroker, topic: str) -> None:
    """Wait until new subscribers get the retained message: nats-server delivers a message before it is retained."""
    is_delivered = False
    while not is_delivered:
        async with open_link(broker) as (probe, ear):
            await probe.subscribe([topic])
            with suppress(TimeoutError):
                await asyncio.wait_for(ear.wait_for_messages(1), 1.0)
            is_delivered = bool(ear.messages)


@on_both_loops
async def test_retained_message_has_its_flag(broker: RunningBroker) -> None:
    topic = unique_topic()
    async with open_link(broker) as (one, own), open_link(broker) as (two, late):
        await one.subscribe([topic])
        one.publish(topic, b"kept", retain=True)
        await own.wait_for_messages(1)
        await wait_until_retained(broker, topic)
        await two.subscribe([topic])
        await late.wait_for_messages(1)
        assert [own.messages[0].retained, late.messages[0].retained] == [False, True]
        one.publish(topic, b"", retain=True)
        assert await late.wait_for_messages(2) == [b"kept", b""]


@pytest.mark.parametrize("qos", [0, 1])
@on_both_loops
async def test_messages_keep_their_order(broker: RunningBroker, qos: int) -> None:
    topic = unique_topic()
    async with open_link(broker) as (sender, _), open_link(broker) as (reader, ear):
        await reader.subscribe([topic], qos)
        expected = [b"%d" % number for number in range(MESSAGE_COUNT)]
        for start in range(0, MESSAGE_COUNT, 500):
            for payload in expected[start : start + 500]:
                sender.publish(topic, payload, qos=qos)
            await ear.wait_for_messages(start + 500)
        assert ear.payloads == expected


@on_both_loops
async def test_large_message_is_delivered(broker: RunningBroker) -> None:
    topic = unique_topic()
    payload = secrets.token_bytes(900 * 1024)
    async with open_link(broker) as (link, ear):
        await link.subscribe([topic])
        link.publish(topic, payload)
        link.publish(topic, b"small")
        assert await ear.wait_for_messages(2) == [payload, b"small"]


@on_both_loops
async def test_topic_may_be_any_text(broker: RunningBroker) -> None:
    topics = [f"/{unique_topic()}", f"{unique_topic()}/Žluť/日本.x", f"{unique_topic()}//"]
    async with open_link(broker) as (link, ear):
        await link.subscribe(topics)
        for topic in topics:
            link.publish(topic, topic.encode())
        await ear.wait_for_messages(len(topics))
        assert {message.topic: message.payload for message in ear.messages} == {
            topic: topic.encode() for topic in topics
        }


@on_both_loops
async def test_will_is_published_after_an_abort(broker: RunningBroker) -> None:
    topic = unique_topic()
    async with open_link(broker) as (link, ear):
        await link.subscribe([topic])
        async with open_link(broker, Will(topic, b"took leave")):
            pass
        async with open_link(broker, Will(topic, b"went")) as (other, _):
            other.abort()
            assert await ear.wait_for_messages(1) == [b"went"]


@on_both_loops
async def test_killed_broker_is_lost_and_may_return(own_broker: RunningBroker) -> None:
    async with open_link(own_broker) as (link, ear):
        await link.subscribe(["a"])
        own_broker.freeze()
        pending = asyncio.ensure_future(link.subscribe(["b"]))
        link.publish("a", b"never acknowledged")
        await asyncio.sleep(0.05)
        own_broker.kill()
        assert await ear.wait_for_loss()
        assert link.unacknowledged == 1
        with pytest.raises(ConnectionLost):
            await pending
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await open_mqtt(Broker.parse(own_broker.url), RecordingReceiver())
        own_broker.start()
        async with open_link(own_broker) as (again, heard):
            await again.subscribe(["a"])
            again.publish("a", b"back")
            assert await heard.wait_for_messages(1) == [b"back"]


@on_both_loops
async def test_stopped_broker_is_lost(own_broker: RunningBroker) -> None:
    async with open_link(own_broker) as (_, ear):
        await asyncio.to_thread(own_broker.stop)
        assert "closed the connection" in await ear.wait_for_loss()


@on_both_loops
async def test_frozen_broker_makes_the_link_full(own_broker: RunningBroker) -> None:
    topic = unique_topic()
    async with open_link(own_broker) as (link, ear), open_link(own_broker) as (reader, heard):
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
        assert await heard.wait_for_messages(published) == [number.to_bytes(4) * 2500 for number in range(published)]


@on_both_loops
async def test_frozen_broker_is_lost(own_broker: RunningBroker) -> None:
    ear = RecordingReceiver()
    link = await open_mqtt(Broker.parse(own_broker.url), ear, keepalive=1.0)
    await asyncio.sleep(2.0)
    assert not ear.losses
    own_broker.freeze()
    assert "was silent" in await ear.wait_for_loss()
    assert link.unsent_bytes() == 0


@pytest.fixture(scope="module")
def server_certificate() -> Iterator[Certificate]:
    """Certificate of all brokers with TLS."""
    with certificate() as issued:
        yield issued


@pytest.fixture(params=BROKERS, scope="module")
def tls_broker(request: pytest.FixtureRequest, server_certificate: Certificate) -> Iterator[RunningBroker]:
    """Broker with TLS and a password."""
    with running(request.param, Wanted("me", "pass-word", server_certificate)) as running_broker:
        yield running_broker


@on_both_loops
async def test_correct_password_connects_over_tls(tls_broker: RunningBroker, server_certificate: Certificate) -> None:
    ear = RecordingReceiver()
    link = await open_mqtt(Broker.parse(tls_broker.url), ear, ssl_context=server_certificate.context())
    topic, payload = unique_topic(), secrets.token_bytes(300_000)
    await link.subscribe([topic])
    link.publish(topic, payload)
    assert await ear.wait_for_messages(1) == [payload]
    link.close()
    assert await ear.wait_for_loss() == "closed by this end"


@pytest.mark.parametrize(("user", "password"), [("me", "wrong"), ("other", "pass-word"), ("me", ""), ("", "")])
@on_both_loops
async def test_wrong_password_is_refused(
    tls_broker: RunningBroker, server_certificate: Certificate, user: str, password: str
) -> None:
    broker = replace(Broker.parse(tls_broker.url), user=user, password=password)
    with pytest.raises(Refused, match=r"not authorised|wrong user") as caught:
        await open_mqtt(broker, RecordingReceiver(), ssl_context=server_certificate.context())
    assert "pass" not in str(caught.value).replace("password", "")


@on_both_loops
async def test_untrusted_certificate_is_refused(tls_broker: RunningBroker, server_certificate: Certificate) -> None:
    broker = Broker.parse(tls_broker.url)
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        await open_mqtt(broker, RecordingReceiver())
    with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
        await open_mqtt(
            replace(broker, host="127.0.0.1"), RecordingReceiver(), ssl_context=server_certificate.context()
        )
    with pytest.raises(ConnectionLost):
        await open_mqtt(replace(broker, tls=False), RecordingReceiver(), timeout=5.0)


@on_both_loops
async def test_tls_to_a_plain_broker_fails(broker: RunningBroker) -> None:
    with pytest.raises(ConnectionLost):
        await open_mqtt(replace(Broker.parse(broker.url), tls=True), RecordingReceiver(), timeout=5.0)


@on_both_loops
async def test_invalid_host_is_unreachable() -> None:
    for host in ("no-such-host.invalid", "x" * 300, "a..b"):
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await open_mqtt(Broker(host, 1), RecordingReceiver(), timeout=10.0)
