"""What is noted down of one peer: every frame of its link, and to which of the hub's operations it belongs."""

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.model import topics
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.wire.packet import Packet


class FrameRecorder:
    """Beside a conversation and a session of the hub, knows what their frames belong to."""

    __slots__ = ("_add", "_identity", "_in_text", "clock", "conversation", "operations", "session", "track")

    def __init__(self, track: ConnectionRecorder, session: Session, talk: Conversation) -> None:
        self.track = track
        self.clock = track.clock
        self.session = session
        self.operations: list[str] = []
        """The operations of what the conversation has not handed over yet, one for each frame."""
        self.conversation = talk
        self._identity = ""
        self._add, self._in_text = track.append, track.in_text
        track.record_marker("open", "in")

    def record_received(self, at: int, packet: Packet) -> None:
        """Note what came at a time, now that the hub has dealt with it."""
        session, add = self.session, self._add
        if packet.is_text:  # nearly all of them
            add((at, self._in_text, packet.payload, session.op))
        else:
            self.track.record_received(at, packet, session.op)
        if session.annotation is not None:
            record_mark(self.track, session)
        if session.identity is not self._identity:
            self._identity = session.identity
            self.track.set_peer(session.identity)

    def assign_operation(self, op: str) -> None:
        """Know what those frames belong to that the conversation has made since this was said last."""
        ops = self.operations
        fresh = len(self.conversation.unsent) - len(ops)
        if fresh == 1:
            ops.append(op)
        elif fresh:
            ops += [op] * fresh

    def take_operations(self, frames: int) -> list[str]:
        """Return what the frames belong to that the conversation has handed over."""
        ops, self.operations = self.operations, []
        return ops if len(ops) == frames else [*ops, *[""] * (frames - len(ops))]

    def record_drop(self, event: Event, reason: str) -> None:
        """Note that an event did not go out."""
        record_drop(self.track, event, reason)

    def record_close(self, reason: str, unwritten: int) -> None:
        """Note that the link is gone, and what was not written to it."""
        unwritten += len(self.conversation.unsent)
        if unwritten:
            self.track.record_marker("drop", "out", f"{unwritten} frames were not written before the link was gone")
        self.track.record_marker("close", "in", reason)


def record_mark(track: ConnectionRecorder, session: Session) -> None:
    """Note what the hub said of a peer's last word, beside its answer."""
    if session.annotation is not None:
        track.record_marker(session.annotation.kind, "in", session.annotation.reason, session.op)
        session.annotation = None


def record_drop(track: ConnectionRecorder, event: Event, reason: str) -> None:
    """Note that an event did not go out."""
    track.record_marker("drop", "out", reason, f"p{event.publication}", topics.spell(event.topic, topics.LRPM))


def operation_id(delivery: Delivery) -> str:
    """Return what a word belongs to; an event knows that by itself."""
    word = delivery.message
    return delivery.op or (f"p{word.publication}" if type(word) is Event else "")
