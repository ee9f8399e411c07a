"""Echoes of a hub's own messages, and messages of others that must not be taken for echoes."""

from random import Random

from fiveways.hub.admission import NO_ACCESS
from fiveways.hub.session import Session
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.journal.frame_buffer import FrameBuffer
from fiveways.model import names, topics
from fiveways.runtime.mqtt.broker_recorder import BrokerRecorder
from fiveways.runtime.mqtt.echo_tracker import ECHO_TIMEOUT, EchoTracker
from fiveways.wire.packet import Packet

SECOND = 1_000_000_000


def test_message_is_echoed_once() -> None:
    echoes = EchoTracker(10)
    for _ in range(2):
        echoes.add("a", 0.0)
    assert [echoes.take_echo("a", 1.0) for _ in range(3)] == [True, True, False]
    assert not echoes.take_echo("b", 1.0)
    assert len(echoes) == 0


def test_old_message_is_not_echoed() -> None:
    echoes = EchoTracker(10)
    echoes.add("a", 0.0)
    echoes.add("a", 2.0)
    echoes.add("b", 2.0)
    assert echoes.take_echo("a", ECHO_TIMEOUT + 1.0)
    assert not echoes.take_echo("a", ECHO_TIMEOUT + 1.0)
    assert not echoes.take_echo("b", ECHO_TIMEOUT + 3.0)
    assert len(echoes) == 0


def test_number_of_awaited_echoes_is_bounded() -> None:
    echoes = EchoTracker(3)
    for number in range(1000):
        echoes.add(number // 2, 0.0)
        assert len(echoes) <= 3
    assert [echoes.take_echo(number, 0.0) for number in (0, 498, 499, 499, 499)] == [False, True, True, True, False]


def test_random_operations_keep_the_tables_consistent() -> None:
    chance, echoes, now = Random(5), EchoTracker(8), 0.0
    simple: list[tuple[int, float]] = []
    for _ in range(5000):
        now += chance.choice([0.0, 1.0, ECHO_TIMEOUT / 3])
        simple = [each for each in simple if now - each[1] <= ECHO_TIMEOUT]
        key = chance.randrange(5)
        if chance.random() < 0.6:
            echoes.add(key, now)
            simple = [*simple, (key, now)][-8:]
        else:
            mine = [each for each in simple if each[0] == key]
            assert echoes.take_echo(key, now) is bool(mine)
            if mine:
                simple.remove(mine[0])
        assert len(echoes) == len(simple)


class Recorded:
    """A recorder of a connection on which the hub is subscribed to `/here`."""

    def __init__(self) -> None:
        self.now = 0
        self.tape = FrameBuffer(lambda: self.now)
        session = Session("p", ProtocolTraits("mqtt-rpc", names.MQTT, topics.MQTT), Credentials(), NO_ACCESS)
        self.recorder = BrokerRecorder(self.tape, session, lambda topic: topic == "/here")

    def said(self, topic: str) -> None:
        self.recorder.record_sent(Packet(b"21.5", False, topic))

    def heard(self, topic: str) -> bool:
        """Return whether a received message is recorded."""
        before = len(self.tape)
        self.recorder.record_received(self.recorder.begin_receive(), Packet(b"21.5", False, topic))
        return len(self.tape) > before


def test_own_message_is_recorded_once() -> None:
    link = Recorded()
    link.said("/here")
    link.now += SECOND
    assert not link.heard("/here")
    assert link.heard("/here")


def test_message_on_unsubscribed_topic_is_no_echo() -> None:
    link = Recorded()
    link.said("/there")
    assert link.heard("/there")


def test_lost_echo_does_not_hide_a_later_message_of_a_device() -> None:
    link = Recorded()
    link.said("/here")
    link.now += int((ECHO_TIMEOUT + 1) * SECOND)
    assert link.heard("/here")
