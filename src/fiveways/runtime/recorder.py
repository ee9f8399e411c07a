"""What is noted down of one peer: every frame of its link, and to which of the hub's operations it belongs."""

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.tape import Track
from fiveways.model import topics
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.wire.packet import Packet


class Recorder:
    """Beside a conversation and a session of the hub, knows what their frames belong to."""

    __slots__ = ("_add", "_identity", "_in_text", "clock", "ops", "session", "talk", "track")

    def __init__(self, track: Track, session: Session, talk: Conversation) -> None:
        self.track = track
        self.clock = track.clock
        self.session = session
        self.ops: list[str] = []
        """The operations of what the conversation has not handed over yet, one for each frame."""
        self.talk = talk
        self._identity = ""
        self._add, self._in_text = track.add, track.in_text
        track.mark("open", "in")

    def heard(self, at: int, packet: Packet) -> None:
        """Note what came at a time, now that the hub has dealt with it."""
        session, add = self.session, self._add
        if packet.is_text:  # nearly all of them
            add((at, self._in_text, packet.payload, session.op))
        else:
            self.track.heard(at, packet, session.op)
        if session.mark is not None:
            note_mark(self.track, session)
        if session.identity is not self._identity:
            self._identity = session.identity
            self.track.know(session.identity)

    def tie(self, op: str) -> None:
        """Know what those frames belong to that the conversation has made since this was said last."""
        ops = self.ops
        fresh = len(self.talk.unsent) - len(ops)
        if fresh == 1:
            ops.append(op)
        elif fresh:
            ops += [op] * fresh

    def take(self, frames: int) -> list[str]:
        """Return what the frames belong to that the conversation has handed over."""
        ops, self.ops = self.ops, []
        return ops if len(ops) == frames else [*ops, *[""] * (frames - len(ops))]

    def dropped(self, event: Event, reason: str) -> None:
        """Note that an event did not go out."""
        note_drop(self.track, event, reason)

    def end(self, reason: str, unwritten: int) -> None:
        """Note that the link is gone, and what was not written to it."""
        unwritten += len(self.talk.unsent)
        if unwritten:
            self.track.mark("drop", "out", f"{unwritten} frames were not written before the link was gone")
        self.track.mark("close", "in", reason)


def note_mark(track: Track, session: Session) -> None:
    """Note what the hub said of a peer's last word, beside its answer."""
    if session.mark is not None:
        track.mark(session.mark.kind, "in", session.mark.reason, session.op)
        session.mark = None


def note_drop(track: Track, event: Event, reason: str) -> None:
    """Note that an event did not go out."""
    track.mark("drop", "out", reason, f"p{event.publication}", topics.spell(event.topic, topics.LRPM))


def operation_of(delivery: Delivery) -> str:
    """Return what a word belongs to; an event knows that by itself."""
    word = delivery.word
    return delivery.op or (f"p{word.publication}" if type(word) is Event else "")
