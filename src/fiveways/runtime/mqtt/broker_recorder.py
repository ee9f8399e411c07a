"""Journal recording of all messages at a broker, by topic."""

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
"""Recorders that are cached; creating one again is cheap."""
_MAX_UNECHOED: Final = 10_000
"""Published messages that wait for their echo."""
_NS_PER_SECOND: Final = 1e9
"""ns per second, the unit of the frame buffer's clock."""


class BrokerRecorder:
    """The journal recorder of one connection to a broker.

    A message of the hub is recorded once, not again when the broker sends it back. On topics without a subscription
    nothing comes back: an equal message there is from another publisher, and is recorded.
    """

    def __init__(self, frame_buffer: FrameBuffer, session: Session, is_subscribed: Callable[[str], bool]) -> None:
        """`is_subscribed` returns whether the hub is subscribed to a topic."""
        self._frame_buffer = frame_buffer
        self._is_subscribed = is_subscribed
        self._session = session
        self._tracks: dict[str, ConnectionRecorder] = {}
        self._unsent: list[Packet] = []
        self._echoes = EchoTracker(_MAX_UNECHOED)
        """Published messages, by topic and hash."""
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
        """Return the time of a received message, and clear the session's operation."""
        self._session.op = ""
        return self._frame_buffer.clock()

    def record_received(self, received_at: int, packet: Packet) -> None:
        """Record a received message after the hub has handled it, unless it is an echo."""
        if self._echoes.take_echo((packet.channel, hash(packet.payload)), received_at / _NS_PER_SECOND):
            return
        track = self._track(packet.channel)
        track.record_received(received_at, packet, self._session.op)
        record_mark(track, self._session)

    def collect(self, conversation: Conversation, delivery: Delivery) -> None:
        """Collect the packets that a conversation has made of a message."""
        op = operation_id(delivery)
        self._unsent += [with_operation(packet, op) for packet in conversation.take_packets()]

    def take_unsent(self, more: Sequence[Packet]) -> list[Packet]:
        """Return the collected packets and `more` ones."""
        packets, self._unsent = [*self._unsent, *more], []
        return packets

    def record_sent(self, packet: Packet) -> None:
        """Record a published message."""
        received_at = self._frame_buffer.clock()
        if self._is_subscribed(packet.channel):
            self._echoes.add((packet.channel, hash(packet.payload)), received_at / _NS_PER_SECOND)
        self._track(packet.channel).record_sent(received_at, packet, packet.op)

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an event that was not published."""
        record_drop(self._track(""), event, reason)

    def record_close(self, reason: str) -> None:
        """Record the end of the connection."""
        self._track("").record_marker("close", "in", reason)
