"""What a hub has said at a broker comes back to it, or does not; what others say is never taken for it for long."""

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


def test_each_comes_back_once() -> None:
    echoes = EchoTracker(10)
    for _ in range(2):
        echoes.add("a", 0.0)
    assert [echoes.take_echo("a", 1.0) for _ in range(3)] == [True, True, False]
    assert not echoes.take_echo("b", 1.0)
    assert len(echoes) == 0


def test_after_a_while_none_comes_back() -> None:
    echoes = EchoTracker(10)
    echoes.add("a", 0.0)
    echoes.add("a", 2.0)
    echoes.add("b", 2.0)
    assert echoes.take_echo("a", ECHO_TIMEOUT + 1.0)
    assert not echoes.take_echo("a", ECHO_TIMEOUT + 1.0)
    assert not echoes.take_echo("b", ECHO_TIMEOUT + 3.0)
    assert len(echoes) == 0


def test_no_more_are_remembered_than_there_is_room_for() -> None:
    echoes = EchoTracker(3)
    for number in range(1000):
        echoes.add(number // 2, 0.0)
        assert len(echoes) <= 3
    assert [echoes.take_echo(number, 0.0) for number in (0, 498, 499, 499, 499)] == [False, True, True, True, False]


def test_books_are_kept_whatever_happens() -> None:
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
    """A recorder of a link on which the hub listens to `/here`."""

    def __init__(self) -> None:
        self.now = 0
        self.tape = FrameBuffer(lambda: self.now)
        session = Session("p", ProtocolTraits("mqtt-rpc", names.MQTT, topics.MQTT), Credentials(), NO_ACCESS)
        self.recorder = BrokerRecorder(self.tape, session, lambda topic: topic == "/here")

    def said(self, topic: str) -> None:
        self.recorder.record_sent(Packet(b"21.5", False, topic))

    def heard(self, topic: str) -> bool:
        """Say whether what came is noted down."""
        before = len(self.tape)
        self.recorder.record_received(self.recorder.begin_receive(), Packet(b"21.5", False, topic))
        return len(self.tape) > before


def test_what_we_said_is_noted_once() -> None:
    link = Recorded()
    link.said("/here")
    link.now += SECOND
    assert not link.heard("/here")
    assert link.heard("/here")


def test_where_we_do_not_listen_nothing_comes_back() -> None:
    link = Recorded()
    link.said("/there")
    assert link.heard("/there")


def test_what_never_came_back_does_not_hide_what_a_device_says_later() -> None:
    link = Recorded()
    link.said("/here")
    link.now += int((ECHO_TIMEOUT + 1) * SECOND)
    assert link.heard("/here")
