"""Tests of an MQTT connection without a broker, or with one that misbehaves."""

import asyncio

import pytest

from fiveways.errors import ConnectionLost, Refused
from fiveways.transports import mqtt_connection, mqtt_frames
from fiveways.transports.mqtt_link import MqttMessage, PacketIdsExhausted, SubscriptionRefused, open_mqtt
from tests.support.mqtt_fakes import FakePlace, RecordingReceiver, fake_broker, open_recorded_link
from tests.support.running import on_both_loops

PUBACK, PUBREC, PUBREL, PUBCOMP = mqtt_frames.PUBACK, mqtt_frames.PUBREC, mqtt_frames.PUBREL, mqtt_frames.PUBCOMP
acknowledge = mqtt_frames.acknowledge


def message(payload: bytes, qos: int = 1, packet_id: int = 1) -> bytes:
    topic = mqtt_frames.topic_field("t")
    if not qos:
        return mqtt_frames.publish(topic, payload)
    return mqtt_frames.publish_acknowledged(topic, packet_id, payload, qos=qos)


async def run_iterations(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_both_loops
async def test_packets_of_one_iteration_are_one_write() -> None:
    link, wire = open_recorded_link(RecordingReceiver())
    for number in range(5):
        link.publish("t", b"%d" % number)
    assert wire.written == []
    assert link.unsent_bytes() == sum(len(message(b"0")) for _ in range(5))
    await run_iterations()
    assert wire.written == [b"".join(message(b"%d" % number, 1, number + 1) for number in range(5))]


@on_both_loops
async def test_acknowledgements_and_replies_are_one_write() -> None:
    ear = RecordingReceiver()
    link, wire = open_recorded_link(ear)
    loop = asyncio.get_running_loop()
    # Like the caller of a resolved future, which continues in the next iteration.
    ear.on_received = lambda heard: loop.call_soon(link.publish, "t", heard.payload)
    link.data_received(message(b"a", 1, 5) + message(b"b", 1, 6) + message(b"c", 0))
    await run_iterations()
    [written] = wire.written
    acks = acknowledge(PUBACK, 5) + acknowledge(PUBACK, 6)
    assert written == acks + message(b"a", 1, 1) + message(b"b", 1, 2) + message(b"c", 1, 3)


@on_both_loops
async def test_flush_writes_at_once_and_only_once() -> None:
    link, wire = open_recorded_link(RecordingReceiver())
    link.publish("t", b"a", qos=0)
    link.flush()
    assert wire.written == [message(b"a", 0)]
    link.flush()
    await run_iterations()
    assert len(wire.written) == 1


@on_both_loops
async def test_message_is_acknowledged_after_delivery() -> None:
    ear = RecordingReceiver()
    link, wire = open_recorded_link(ear)
    ear.on_received = lambda _: link.flush()
    link.data_received(message(b"a", 1, 5))
    assert wire.written == []
    await run_iterations()
    assert wire.written == [acknowledge(PUBACK, 5)]


@on_both_loops
async def test_large_output_is_flushed_within_the_iteration() -> None:
    link, wire = open_recorded_link(RecordingReceiver())
    link.publish("t", b"x" * mqtt_connection.HIGH_WATER)
    assert len(wire.written) == 1


@on_both_loops
async def test_unacknowledged_messages_make_the_link_full() -> None:
    ear = RecordingReceiver()
    link, _ = open_recorded_link(ear)
    limit = mqtt_connection.MAX_UNACKNOWLEDGED
    for number in range(limit):
        assert not link.is_full, number
        link.publish("t", b"")
    assert link.is_full
    assert link.unacknowledged == limit
    half = limit // 2
    link.data_received(b"".join(acknowledge(PUBACK, number) for number in range(1, half)))
    assert (link.is_full, ear.writables, link.unacknowledged) == (True, 0, half + 1)
    link.data_received(acknowledge(PUBACK, half) * 2)
    assert (link.is_full, ear.writables, link.unacknowledged) == (False, 1, half)


@on_both_loops
async def test_packet_ids_wrap_and_are_exhausted() -> None:
    link, _ = open_recorded_link(RecordingReceiver())
    link.publish("t", b"")
    for number in range(2, mqtt_frames.MAX_PACKET_ID + 1):
        link.publish("t", b"")
        link.data_received(acknowledge(PUBACK, number))
    assert link.unacknowledged == 1
    for _ in range(mqtt_frames.MAX_PACKET_ID - 1):
        link.publish("t", b"")
    assert link.unacknowledged == mqtt_frames.MAX_PACKET_ID
    with pytest.raises(PacketIdsExhausted):
        link.publish("t", b"")
    with pytest.raises(PacketIdsExhausted):
        await link.subscribe(["t"])
    link.publish("t", b"", qos=0)
    link.data_received(acknowledge(PUBACK, 77))
    link.publish("t", b"")
    assert link.unacknowledged == mqtt_frames.MAX_PACKET_ID


@on_both_loops
async def test_full_socket_makes_the_link_full() -> None:
    ear = RecordingReceiver()
    link, _ = open_recorded_link(ear)
    link.pause_writing()
    assert link.is_full
    link.resume_writing()
    assert (link.is_full, ear.writables) == (False, 1)


@on_both_loops
async def test_broker_that_never_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "MAX_WAITING", 1000)
    link, wire = open_recorded_link(RecordingReceiver())
    link.pause_writing()
    link.data_received(message(b"", 1) * 249)
    await run_iterations()
    assert not wire.is_over
    link.data_received(message(b"", 1) * 2)
    await run_iterations()
    assert wire.is_over


@on_both_loops
async def test_unexpected_acknowledgements_are_ignored() -> None:
    ear = RecordingReceiver()
    link, wire = open_recorded_link(ear)
    unknown = [acknowledge(kind, 9) for kind in (PUBACK, PUBREC, PUBCOMP, mqtt_frames.UNSUBACK)]
    link.data_received(b"".join(unknown) + b"\x90\x03\x00\x09\x80" + b"\xd0\x00" + message(b"a", 0))
    assert ear.payloads == [b"a"]
    await run_iterations()
    assert wire.written == []
    assert not wire.is_over


@on_both_loops
async def test_qos_2_message_is_delivered_once() -> None:
    ear = RecordingReceiver()
    link, wire = open_recorded_link(ear)
    redelivered = bytearray(message(b"a", 2, 5))
    redelivered[0] |= 8
    link.data_received(message(b"a", 2, 5) + redelivered)
    link.data_received(acknowledge(PUBREL, 5) * 2 + message(b"b", 2, 5))
    assert ear.messages == [MqttMessage("t", b"a", False, False, 2, 5), MqttMessage("t", b"b", False, False, 2, 5)]
    await run_iterations()
    assert wire.written == [
        acknowledge(PUBREC, 5) * 2 + acknowledge(PUBCOMP, 5) * 2 + acknowledge(PUBREC, 5),
    ]


@on_both_loops
async def test_flags_of_a_redelivered_message_are_set() -> None:
    ear = RecordingReceiver()
    link, _ = open_recorded_link(ear)
    redelivered = bytearray(message(b"a", 1, 5))
    redelivered[0] |= 9
    link.data_received(bytes(redelivered))
    assert ear.messages == [MqttMessage("t", b"a", True, True, 1, 5)]


@on_both_loops
async def test_no_message_is_delivered_after_an_abort() -> None:
    ear = RecordingReceiver()
    link, wire = open_recorded_link(ear)
    ear.on_received = lambda _: link.abort()
    link.data_received(message(b"a", 0) * 3)
    assert (len(ear.messages), wire.is_over) == (1, True)
    link.publish("t", b"not sent")
    link.close()
    link.connection_lost(None)
    await run_iterations()
    assert (wire.written, ear.losses) == ([], ["closed by this end"])
    with pytest.raises(ConnectionLost):
        await link.subscribe(["t"])
    link.pause_reading()
    link.resume_reading()
    assert link.unsent_bytes() == 0


@on_both_loops
async def test_invalid_arguments_are_refused() -> None:
    link, _ = open_recorded_link(RecordingReceiver())
    with pytest.raises(ValueError, match="wildcard"):
        link.publish("a/#", b"")
    with pytest.raises(ValueError, match="QoS 0 or 1"):
        link.publish("a", b"", qos=2)
    with pytest.raises(ValueError, match="filter"):
        await link.subscribe(["a", ""])
    await link.subscribe([])
    await link.unsubscribe([])
    assert link.unacknowledged == link.unsent_bytes() == 0


@on_both_loops
async def test_topic_cache_is_bounded() -> None:
    link, _ = open_recorded_link(RecordingReceiver())
    for number in range(3000):
        link.publish(f"t/{number}", b"", qos=0)
    link.publish("x" * 1000, b"")
    assert len(link._topics) <= 1024


async def refusal(place: FakePlace, seconds: float = 5.0) -> ConnectionLost:
    ear = RecordingReceiver()
    with pytest.raises(ConnectionLost) as caught:
        await open_mqtt(place.broker, ear, timeout=seconds)
    await asyncio.sleep(0.01)
    assert not ear.losses, "a link that was never returned is not reported as lost"
    return caught.value


@pytest.mark.parametrize("code", range(1, 8))
@on_both_loops
async def test_connack_code_is_an_error(code: int) -> None:
    async with fake_broker(bytes((0x20, 2, 0, code))) as place:
        error = await refusal(place)
    assert isinstance(error, Refused) == (code in {4, 5})
    assert "refused the connection" in str(error)


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02", message(b"x", 0)])
@on_both_loops
async def test_first_packet_must_be_a_connack(first: bytes) -> None:
    async with fake_broker(first) as place:
        assert "invalid MQTT" in str(await refusal(place))


@on_both_loops
async def test_silent_broker_times_out() -> None:
    async with fake_broker(b"\x20\x02") as place:
        assert "did not answer within 0.05 seconds" in str(await refusal(place, 0.05))
        assert await (await place.connection()).packet() == b""


@on_both_loops
async def test_connection_closed_before_connack_is_an_error() -> None:
    async with fake_broker(b"") as place:
        opening = asyncio.ensure_future(refusal(place))
        (await place.connection()).hang_up()
        await opening
    assert "cannot connect to" in str(await refusal(place))


@on_both_loops
async def test_connect_may_be_cancelled() -> None:
    async with fake_broker(b"") as place:
        opening = asyncio.ensure_future(open_mqtt(place.broker, RecordingReceiver()))
        connection = await place.connection()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await connection.packet() == b""


@on_both_loops
async def test_invalid_packet_ends_the_link_with_a_reason() -> None:
    async with fake_broker() as place:
        ear = RecordingReceiver()
        await open_mqtt(place.broker, ear, max_packet=1000)
        (await place.connection()).say(message(b"a", 0) + b"\x30\xff\x7f")
        assert "longer than 1000" in await ear.wait_for_loss()
        assert ear.payloads == [b"a"]
        await open_mqtt(place.broker, ear := RecordingReceiver())
        (await place.connection()).say(b"\x20\x02\x00\x00")
        assert "second CONNACK" in await ear.wait_for_loss()


@on_both_loops
async def test_refused_filter_is_an_error() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, RecordingReceiver())
        connection = await place.connection()
        for codes, error in ((b"\x01\x80", "subscription to b/c"), (b"\x01", "1 of 2"), (b"\x01\x01\x01", "3 of 2")):
            pending = asyncio.ensure_future(link.subscribe(["a", "b/c"]))
            packet = await connection.packet()
            assert packet[4:] == b"\x00\x01a\x01\x00\x03b/c\x01"
            connection.say(bytes((0x90, 2 + len(codes))) + packet[2:4] + codes)
            with pytest.raises(SubscriptionRefused, match=error):
                await pending
        link.close()


@on_both_loops
async def test_pending_requests_fail_when_the_connection_is_lost() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := RecordingReceiver())
        connection = await place.connection()
        cancelled = asyncio.ensure_future(link.subscribe(["a"]))
        pending = [asyncio.ensure_future(link.subscribe(["b"])), asyncio.ensure_future(link.unsubscribe(["b"]))]
        await connection.packet()
        cancelled.cancel()
        connection.hang_up()
        assert await ear.wait_for_loss()
        for request in pending:
            with pytest.raises(ConnectionLost):
                await request


@on_both_loops
async def test_close_sends_disconnect() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := RecordingReceiver(), keepalive=0)
        connection = await place.connection()
        link.publish("t", b"last", qos=0)
        link.close()
        link.close()
        assert await connection.packet() == message(b"last", 0)
        assert await connection.packet() == mqtt_frames.DISCONNECT
        assert await connection.packet() == b""
        assert await ear.wait_for_loss() == "closed by this end"


@on_both_loops
async def test_close_does_not_wait_for_a_broker_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "_LINGER", 0.05)
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := RecordingReceiver())
        while not link.is_full:
            link.publish("t", b"x" * 100_000)
        assert link.unsent_bytes() > 0
        link.close()
        assert await ear.wait_for_loss() == "closed by this end"


@on_both_loops
async def test_keepalive_detects_a_silent_broker() -> None:
    async with fake_broker() as place:
        await open_mqtt(place.broker, ear := RecordingReceiver(), keepalive=0.2)
        connection = await place.connection()
        for _ in range(6):
            await connection.pinged()
            connection.say(b"\xd0\x00")
        assert not ear.losses
        assert "was silent" in await ear.wait_for_loss()


@on_both_loops
async def test_paused_link_does_not_lose_its_broker() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := RecordingReceiver(), keepalive=0.1)
        connection = await place.connection()
        link.pause_reading()
        for _ in range(8):
            await connection.pinged()
        connection.say(message(b"a", 0))
        await asyncio.sleep(0.02)
        assert not ear.messages
        link.resume_reading()
        assert await ear.wait_for_messages(1) == [b"a"]
        link.abort()
        assert await ear.wait_for_loss() == "closed by this end"


@on_both_loops
async def test_raising_receiver_ends_its_link() -> None:
    exceptions: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: exceptions.append(context.get("exception")))
    async with fake_broker() as place:
        await open_mqtt(place.broker, ear := RecordingReceiver())
        error = ZeroDivisionError("on purpose")

        def fail(_: MqttMessage) -> None:
            raise error

        ear.on_received = fail
        (await place.connection()).say(message(b"a", 1))
        assert "on purpose" in await ear.wait_for_loss()
        assert error in exceptions
