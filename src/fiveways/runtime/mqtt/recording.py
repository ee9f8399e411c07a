"""What is noted down of everybody behind a broker: every message, by its topic."""

from collections.abc import Callable, Sequence
from typing import Final

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.tape import Tape, Track
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.runtime.mqtt.echoes import Echoes
from fiveways.runtime.recorder import note_drop, note_mark, operation_of
from fiveways.wire.packet import Packet, tagged

_MOST_TOPICS: Final = 1000
"""Topics that are remembered; it costs little to begin anew."""
_MOST_UNECHOED: Final = 10_000
"""Messages of ours that may still come back."""
_SECOND: Final = 1e9
"""In ns, as the tape has it."""


class BrokerRecorder:
    """One link to a broker, on the tape.

    What we said is noted once, and not when the broker sends it back. Where we do not listen, nothing comes back: then
    it is somebody else who says the same, and that is noted.
    """

    def __init__(self, tape: Tape, session: Session, is_heard: Callable[[str], bool]) -> None:
        """Make it; `is_heard` tells whether we listen to a topic."""
        self._tape = tape
        self._is_heard = is_heard
        self._session = session
        self._tracks: dict[str, Track] = {}
        self._unsent: list[Packet] = []
        self._echoes = Echoes(_MOST_UNECHOED)
        """What we said, by topic and hash."""
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
        if self._echoes.is_one((packet.channel, hash(packet.payload)), at / _SECOND):
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
        at = self._tape.clock()
        if self._is_heard(packet.channel):
            self._echoes.said((packet.channel, hash(packet.payload)), at / _SECOND)
        self._track(packet.channel).said(at, packet, packet.op)

    def dropped(self, event: Event, reason: str) -> None:
        """Note that an event was not given to the broker."""
        note_drop(self._track(""), event, reason)

    def end(self, reason: str) -> None:
        """Note that the link is gone."""
        self._track("").mark("close", "in", reason)
