"""What is noted down of everybody behind a broker: every message, by its topic."""

from collections.abc import Sequence
from typing import Final

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.tape import Tape, Track
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.runtime.recorder import note_drop, note_mark, operation_of
from fiveways.wire.packet import Packet, tagged

_MOST_TOPICS: Final = 1000
"""Topics that are remembered; it costs little to begin anew."""
_MOST_UNECHOED: Final = 10_000
"""Messages of ours that may still come back; where nobody listens none does."""


class BrokerRecorder:
    """One link to a broker, on the tape."""

    def __init__(self, tape: Tape, session: Session) -> None:
        self._tape = tape
        self._session = session
        self._tracks: dict[str, Track] = {}
        self._unsent: list[Packet] = []
        self._unechoed: dict[tuple[str, int], int] = {}
        """What we said, by topic and hash, and how often: it is noted once, and not when the broker sends it back."""
        self._track("").mark("open", "in")

    def _track(self, topic: str) -> Track:
        track = self._tracks.get(topic)
        if track is None:
            if len(self._tracks) >= _MOST_TOPICS:
                self._tracks.clear()
            session = self._session
            track = Track(self._tape, session.name, session.identity, "mqtt-rpc", "mqtt", topic)
            self._tracks[topic] = track
        return track

    def listen(self) -> int:
        """Be there when something comes; return when that is."""
        self._session.op = ""
        return self._tape.clock()

    def heard(self, at: int, packet: Packet) -> None:
        """Note what came, now that the hub has dealt with it; but not what we have said ourselves."""
        if self._is_echo(packet):
            return
        track = self._track(packet.channel)
        track.heard(at, packet, self._session.op)
        note_mark(track, self._session)

    def collect(self, talk: Conversation, delivery: Delivery) -> None:
        """Take what a conversation has made of a word, before it says anything else."""
        op = operation_of(delivery)
        self._unsent += [tagged(packet, op) for packet in talk.outgoing()]

    def take(self, more: Sequence[Packet]) -> list[Packet]:
        """Hand over what was collected, and what the conversation has said since."""
        packets, self._unsent = [*self._unsent, *more], []
        return packets

    def said(self, packet: Packet) -> None:
        """Note what the broker was given."""
        if len(self._unechoed) >= _MOST_UNECHOED:
            del self._unechoed[next(iter(self._unechoed))]
        key = packet.channel, hash(packet.payload)
        self._unechoed[key] = self._unechoed.get(key, 0) + 1
        self._track(packet.channel).said(self._tape.clock(), packet, packet.op)

    def _is_echo(self, packet: Packet) -> bool:
        key = packet.channel, hash(packet.payload)
        count = self._unechoed.pop(key, 0)
        if count > 1:
            self._unechoed[key] = count - 1
        return count > 0

    def dropped(self, event: Event, reason: str) -> None:
        """Note that an event was not given to the broker."""
        note_drop(self._track(""), event, reason)

    def end(self, reason: str) -> None:
        """Note that the link is gone."""
        self._track("").mark("close", "in", reason)
