"""What is noted down of everybody behind a broker: every message, by its topic."""

from collections.abc import Callable, Sequence
from typing import Final

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.frame_buffer import ConnectionRecorder, FrameBuffer
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.runtime.frame_recorder import operation_id, record_drop, record_mark
from fiveways.runtime.mqtt.echo_tracker import EchoTracker
from fiveways.wire.packet import Packet, with_operation

_MAX_TOPICS: Final = 1000
"""Topics that are remembered; it costs little to begin anew."""
_MAX_UNECHOED: Final = 10_000
"""Messages of ours that may still come back."""
_SECOND: Final = 1e9
"""In ns, as the tape has it."""


class BrokerRecorder:
    """One link to a broker, on the tape.

    What we said is noted once, and not when the broker sends it back. Where we do not listen, nothing comes back: then
    it is somebody else who says the same, and that is noted.
    """

    def __init__(self, tape: FrameBuffer, session: Session, is_heard: Callable[[str], bool]) -> None:
        """Make it; `is_heard` tells whether we listen to a topic."""
        self._frame_buffer = tape
        self._is_subscribed = is_heard
        self._session = session
        self._tracks: dict[str, ConnectionRecorder] = {}
        self._unsent: list[Packet] = []
        self._echoes = EchoTracker(_MAX_UNECHOED)
        """What we said, by topic and hash."""
        self._track("").record_marker("open", "in")

    def _track(self, topic: str) -> ConnectionRecorder:
        track = self._tracks.get(topic)
        if track is None:
            if len(self._tracks) >= _MAX_TOPICS:
                self._tracks.clear()
            session = self._session
            track = ConnectionRecorder(self._frame_buffer, session.name, session.identity, "mqtt-rpc", "mqtt", topic)
            self._tracks[topic] = track
        return track

    def begin_receive(self) -> int:
        """Be there when something comes; return when that is."""
        self._session.op = ""
        return self._frame_buffer.clock()

    def record_received(self, at: int, packet: Packet) -> None:
        """Note what came, now that the hub has dealt with it; but not what we have said ourselves."""
        if self._echoes.take_echo((packet.channel, hash(packet.payload)), at / _SECOND):
            return
        track = self._track(packet.channel)
        track.record_received(at, packet, self._session.op)
        record_mark(track, self._session)

    def collect(self, talk: Conversation, delivery: Delivery) -> None:
        """Take what a conversation has made of a word, before it says anything else."""
        op = operation_id(delivery)
        self._unsent += [with_operation(packet, op) for packet in talk.take_packets()]

    def take_unsent(self, more: Sequence[Packet]) -> list[Packet]:
        """Hand over what was collected, and what the conversation has said since."""
        packets, self._unsent = [*self._unsent, *more], []
        return packets

    def record_sent(self, packet: Packet) -> None:
        """Note what the broker was given."""
        at = self._frame_buffer.clock()
        if self._is_subscribed(packet.channel):
            self._echoes.add((packet.channel, hash(packet.payload)), at / _SECOND)
        self._track(packet.channel).record_sent(at, packet, packet.op)

    def record_drop(self, event: Event, reason: str) -> None:
        """Note that an event was not given to the broker."""
        record_drop(self._track(""), event, reason)

    def record_close(self, reason: str) -> None:
        """Note that the link is gone."""
        self._track("").record_marker("close", "in", reason)
