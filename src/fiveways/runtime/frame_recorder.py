"""Journal recording of one peer's frames, with the hub's operation of each."""

from fiveways.hub.delivery import Delivery
from fiveways.hub.session import Session
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.model import topics
from fiveways.model.messages import Event
from fiveways.protocols.base import Conversation
from fiveways.wire.packet import Packet


class FrameRecorder:
    """Assigns the frames of a conversation to operations of the hub."""

    __slots__ = ("_add", "_identity", "_in_text", "clock", "conversation", "operations", "session", "track")

    def __init__(self, track: ConnectionRecorder, session: Session, conversation: Conversation) -> None:
        self.track = track
        self.clock = track.clock
        self.session = session
        self.operations: list[str] = []
        """The operation of each frame that the conversation has not handed over yet."""
        self.conversation = conversation
        self._identity = ""
        self._add, self._in_text = track.append, track.in_text
        track.record_marker("open", "in")

    def record_received(self, received_at: int, packet: Packet) -> None:
        """Record a received packet, after the hub has handled it."""
        session, add = self.session, self._add
        if packet.is_text:  # the common case
            add((received_at, self._in_text, packet.payload, session.op))
        else:
            self.track.record_received(received_at, packet, session.op)
        if session.annotation is not None:
            record_mark(self.track, session)
        if session.identity is not self._identity:
            self._identity = session.identity
            self.track.set_peer(session.identity)

    def assign_operation(self, op: str) -> None:
        """Assign an operation to the frames that the conversation made since the last call."""
        ops = self.operations
        new_frames = len(self.conversation.unsent) - len(ops)
        if new_frames == 1:
            ops.append(op)
        elif new_frames:
            ops += [op] * new_frames

    def take_operations(self, frames: int) -> list[str]:
        """Return the operations of the frames that the conversation has handed over."""
        ops, self.operations = self.operations, []
        return ops if len(ops) == frames else [*ops, *[""] * (frames - len(ops))]

    def record_drop(self, event: Event, reason: str) -> None:
        """Record an event that was not delivered."""
        record_drop(self.track, event, reason)

    def record_close(self, reason: str, unwritten: int) -> None:
        """Record the end of the link, and the number of frames that were not written to it."""
        unwritten += len(self.conversation.unsent)
        if unwritten:
            self.track.record_marker("drop", "out", f"{unwritten} frames were not written before the link was lost")
        self.track.record_marker("close", "in", reason)


def record_mark(track: ConnectionRecorder, session: Session) -> None:
    """Record the hub's annotation of the last message of a peer."""
    if session.annotation is not None:
        track.record_marker(session.annotation.kind, "in", session.annotation.reason, session.op)
        session.annotation = None


def record_drop(track: ConnectionRecorder, event: Event, reason: str) -> None:
    """Record an event that was not delivered."""
    track.record_marker("drop", "out", reason, f"p{event.publication}", topics.spell(event.topic, topics.LRPM))


def operation_id(delivery: Delivery) -> str:
    """Return the operation of a message; an event has its own."""
    message = delivery.message
    return delivery.op or (f"p{message.publication}" if type(message) is Event else "")
