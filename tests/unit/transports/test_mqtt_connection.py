"""What a link writes and when, without any broker or with one that misbehaves."""

import asyncio

import pytest

from fiveways.errors import ConnectionLost, Refused
from fiveways.transports import mqtt_connection, mqtt_frames
from fiveways.transports.mqtt_link import MqttMessage, PacketIdsExhausted, SubscriptionRefused, open_mqtt
from tests.support.event_loops import on_both_loops
from tests.support.mqtt_fakes import Ear, FakePlace, fake_broker, wired

PUBACK, PUBREC, PUBREL, PUBCOMP = mqtt_frames.PUBACK, mqtt_frames.PUBREC, mqtt_frames.PUBREL, mqtt_frames.PUBCOMP
acknowledge = mqtt_frames.acknowledge


def message(payload: bytes, qos: int = 1, packet_id: int = 1) -> bytes:
    topic = mqtt_frames.topic_field("t")
    if not qos:
        return mqtt_frames.publish(topic, payload)
    return mqtt_frames.publish_acknowledged(topic, packet_id, payload, qos=qos)


async def passes(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@on_both_loops
async def test_all_of_one_pass_is_one_write() -> None:
    link, wire = wired(Ear())
    for number in range(5):
        link.publish("t", b"%d" % number)
    assert wire.written == []
    assert link.unsent_bytes() == sum(len(message(b"0")) for _ in range(5))
    await passes()
    assert wire.written == [b"".join(message(b"%d" % number, 1, number + 1) for number in range(5))]


@on_both_loops
async def test_acknowledgements_and_what_a_message_causes_are_one_write() -> None:
    ear = Ear()
    link, wire = wired(ear)
    loop = asyncio.get_running_loop()
    # As a caller does whose future is resolved: it goes on in the next pass.
    ear.on_received = lambda heard: loop.call_soon(link.publish, "t", heard.payload)
    link.data_received(message(b"a", 1, 5) + message(b"b", 1, 6) + message(b"c", 0))
    await passes()
    [written] = wire.written
    acks = acknowledge(PUBACK, 5) + acknowledge(PUBACK, 6)
    assert written == acks + message(b"a", 1, 1) + message(b"b", 1, 2) + message(b"c", 1, 3)


@on_both_loops
async def test_a_flush_writes_now_and_nothing_twice() -> None:
    link, wire = wired(Ear())
    link.publish("t", b"a", qos=0)
    link.flush()
    assert wire.written == [message(b"a", 0)]
    link.flush()
    await passes()
    assert len(wire.written) == 1


@on_both_loops
async def test_a_message_is_acknowledged_after_it_was_taken() -> None:
    ear = Ear()
    link, wire = wired(ear)
    ear.on_received = lambda _: link.flush()
    link.data_received(message(b"a", 1, 5))
    assert wire.written == []
    await passes()
    assert wire.written == [acknowledge(PUBACK, 5)]


@on_both_loops
async def test_much_is_written_before_the_pass_is_over() -> None:
    link, wire = wired(Ear())
    link.publish("t", b"x" * mqtt_connection.HIGH_WATER)
    assert len(wire.written) == 1


@on_both_loops
async def test_a_link_is_full_with_many_unacknowledged_messages() -> None:
    ear = Ear()
    link, _ = wired(ear)
    most = mqtt_connection.MAX_UNACKNOWLEDGED
    for number in range(most):
        assert not link.is_full, number
        link.publish("t", b"")
    assert link.is_full
    assert link.unacknowledged == most
    half = most // 2
    link.data_received(b"".join(acknowledge(PUBACK, number) for number in range(1, half)))
    assert (link.is_full, ear.writables, link.unacknowledged) == (True, 0, half + 1)
    link.data_received(acknowledge(PUBACK, half) * 2)
    assert (link.is_full, ear.writables, link.unacknowledged) == (False, 1, half)


@on_both_loops
async def test_packet_ids_go_round_and_end() -> None:
    link, _ = wired(Ear())
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
async def test_a_socket_that_has_enough_makes_a_link_full() -> None:
    ear = Ear()
    link, _ = wired(ear)
    link.pause_writing()
    assert link.is_full
    link.resume_writing()
    assert (link.is_full, ear.writables) == (False, 1)


@on_both_loops
async def test_a_broker_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "MAX_WAITING", 1000)
    link, wire = wired(Ear())
    link.pause_writing()
    link.data_received(message(b"", 1) * 249)
    await passes()
    assert not wire.is_over
    link.data_received(message(b"", 1) * 2)
    await passes()
    assert wire.is_over


@on_both_loops
async def test_what_was_never_asked_is_not_answered() -> None:
    ear = Ear()
    link, wire = wired(ear)
    unknown = [acknowledge(kind, 9) for kind in (PUBACK, PUBREC, PUBCOMP, mqtt_frames.UNSUBACK)]
    link.data_received(b"".join(unknown) + b"\x90\x03\x00\x09\x80" + b"\xd0\x00" + message(b"a", 0))
    assert ear.payloads == [b"a"]
    await passes()
    assert wire.written == []
    assert not wire.is_over


@on_both_loops
async def test_quality_2_is_given_once() -> None:
    ear = Ear()
    link, wire = wired(ear)
    again = bytearray(message(b"a", 2, 5))
    again[0] |= 8
    link.data_received(message(b"a", 2, 5) + again)
    link.data_received(acknowledge(PUBREL, 5) * 2 + message(b"b", 2, 5))
    assert ear.heard == [MqttMessage("t", b"a", False, False, 2, 5), MqttMessage("t", b"b", False, False, 2, 5)]
    await passes()
    assert wire.written == [
        acknowledge(PUBREC, 5) * 2 + acknowledge(PUBCOMP, 5) * 2 + acknowledge(PUBREC, 5),
    ]


@on_both_loops
async def test_a_repeated_message_says_so() -> None:
    ear = Ear()
    link, _ = wired(ear)
    again = bytearray(message(b"a", 1, 5))
    again[0] |= 9
    link.data_received(bytes(again))
    assert ear.heard == [MqttMessage("t", b"a", True, True, 1, 5)]


@on_both_loops
async def test_nothing_is_given_after_an_abort() -> None:
    ear = Ear()
    link, wire = wired(ear)
    ear.on_received = lambda _: link.abort()
    link.data_received(message(b"a", 0) * 3)
    assert (len(ear.heard), wire.is_over) == (1, True)
    link.publish("t", b"nobody hears it")
    link.close()
    link.connection_lost(None)
    await passes()
    assert (wire.written, ear.losses) == ([], ["closed by this end"])
    with pytest.raises(ConnectionLost):
        await link.subscribe(["t"])
    link.pause_reading()
    link.resume_reading()
    assert link.unsent_bytes() == 0


@on_both_loops
async def test_only_what_can_be_published_is() -> None:
    link, _ = wired(Ear())
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
async def test_more_topics_than_are_kept_are_written_and_forgotten() -> None:
    link, _ = wired(Ear())
    for number in range(3000):
        link.publish(f"t/{number}", b"", qos=0)
    link.publish("x" * 1000, b"")
    assert len(link._topics) <= 1024


async def refusal(place: FakePlace, seconds: float = 5.0) -> ConnectionLost:
    ear = Ear()
    with pytest.raises(ConnectionLost) as caught:
        await open_mqtt(place.broker, ear, timeout=seconds)
    await asyncio.sleep(0.01)
    assert not ear.losses, "a link that never was is not lost"
    return caught.value


@pytest.mark.parametrize("code", range(1, 8))
@on_both_loops
async def test_a_broker_may_refuse(code: int) -> None:
    async with fake_broker(bytes((0x20, 2, 0, code))) as place:
        error = await refusal(place)
    assert isinstance(error, Refused) == (code in {4, 5})
    assert "refused the connection" in str(error)


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02", message(b"x", 0)])
@on_both_loops
async def test_what_is_no_broker_is_told_from_one(first: bytes) -> None:
    async with fake_broker(first) as place:
        assert "no MQTT" in str(await refusal(place))


@on_both_loops
async def test_a_broker_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async with fake_broker(b"\x20\x02") as place:
        assert "did not answer within 0.05 seconds" in str(await refusal(place, 0.05))
        assert await (await place.connection()).packet() == b""


@on_both_loops
async def test_who_hangs_up_at_once_is_no_broker() -> None:
    async with fake_broker(b"") as place:
        opening = asyncio.ensure_future(refusal(place))
        (await place.connection()).hang_up()
        await opening
    assert "cannot connect to" in str(await refusal(place))


@on_both_loops
async def test_an_opening_may_be_cancelled() -> None:
    async with fake_broker(b"") as place:
        opening = asyncio.ensure_future(open_mqtt(place.broker, Ear()))
        connection = await place.connection()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert await connection.packet() == b""


@on_both_loops
async def test_garbage_ends_the_link_with_a_reason() -> None:
    async with fake_broker() as place:
        ear = Ear()
        await open_mqtt(place.broker, ear, max_packet=1000)
        (await place.connection()).say(message(b"a", 0) + b"\x30\xff\x7f")
        assert "longer than 1000" in await ear.loses()
        assert ear.payloads == [b"a"]
        await open_mqtt(place.broker, ear := Ear())
        (await place.connection()).say(b"\x20\x02\x00\x00")
        assert "second CONNACK" in await ear.loses()


@on_both_loops
async def test_a_filter_may_be_refused() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, Ear())
        connection = await place.connection()
        for codes, said in ((b"\x01\x80", "subscribe to b/c"), (b"\x01", "1 of 2"), (b"\x01\x01\x01", "3 of 2")):
            asked = asyncio.ensure_future(link.subscribe(["a", "b/c"]))
            packet = await connection.packet()
            assert packet[4:] == b"\x00\x01a\x01\x00\x03b/c\x01"
            connection.say(bytes((0x90, 2 + len(codes))) + packet[2:4] + codes)
            with pytest.raises(SubscriptionRefused, match=said):
                await asked
        link.close()


@on_both_loops
async def test_who_waits_for_a_broker_that_goes_is_told() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := Ear())
        connection = await place.connection()
        given_up = asyncio.ensure_future(link.subscribe(["a"]))
        asked = [asyncio.ensure_future(link.subscribe(["b"])), asyncio.ensure_future(link.unsubscribe(["b"]))]
        await connection.packet()
        given_up.cancel()
        connection.hang_up()
        assert await ear.loses()
        for each in asked:
            with pytest.raises(ConnectionLost):
                await each


@on_both_loops
async def test_a_link_takes_leave() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := Ear(), keepalive=0)
        connection = await place.connection()
        link.publish("t", b"last", qos=0)
        link.close()
        link.close()
        assert await connection.packet() == message(b"last", 0)
        assert await connection.packet() == mqtt_frames.DISCONNECT
        assert await connection.packet() == b""
        assert await ear.loses() == "closed by this end"


@on_both_loops
async def test_a_close_does_not_wait_for_a_broker_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "_LINGER", 0.05)
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := Ear())
        while not link.is_full:
            link.publish("t", b"x" * 100_000)
        assert link.unsent_bytes() > 0
        link.close()
        assert await ear.loses() == "closed by this end"


@on_both_loops
async def test_a_silent_broker_is_lost_and_one_that_answers_is_not() -> None:
    async with fake_broker() as place:
        await open_mqtt(place.broker, ear := Ear(), keepalive=0.2)
        connection = await place.connection()
        for _ in range(6):
            await connection.pinged()
            connection.say(b"\xd0\x00")
        assert not ear.losses
        assert "was silent" in await ear.loses()


@on_both_loops
async def test_who_does_not_read_does_not_blame_the_broker() -> None:
    async with fake_broker() as place:
        link = await open_mqtt(place.broker, ear := Ear(), keepalive=0.1)
        connection = await place.connection()
        link.pause_reading()
        for _ in range(8):
            await connection.pinged()
        connection.say(message(b"a", 0))
        await asyncio.sleep(0.02)
        assert not ear.heard
        link.resume_reading()
        assert await ear.hears(1) == [b"a"]
        link.abort()
        assert await ear.loses() == "closed by this end"


@on_both_loops
async def test_a_receiver_that_breaks_its_word_and_raises_ends_its_link() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))
    async with fake_broker() as place:
        await open_mqtt(place.broker, ear := Ear())
        error = ZeroDivisionError("on purpose")

        def fail(_: MqttMessage) -> None:
            raise error

        ear.on_received = fail
        (await place.connection()).say(message(b"a", 1))
        assert "on purpose" in await ear.loses()
        assert error in told
