"""The connections of resumable sessions."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.runtime.outbox import FLUSH_THRESHOLD, Outbox
from fiveways.transports.base import Link
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

if TYPE_CHECKING:
    from fiveways.runtime.resumable_session import ResumableSession


def _ignore(_connection: "SessionConnection") -> None:
    """Do nothing."""


class SessionConnection:
    """One duplex connection of a resumable session. Implements `transports.base.Receiver`."""

    has_begun = True

    def __init__(
        self, session: "ResumableSession", link: Link, limits: Limits, track: ConnectionRecorder | None
    ) -> None:
        """`track` is the journal's recorder of the link, if any."""
        self.link = link
        self.track = track
        self.on_gone: Callable[[SessionConnection], None] = _ignore
        """Called when the link is lost."""
        self.session = session
        self._outbox = Outbox(link, limits)
        self._outbox.track, self._outbox.tally = track, session.tally

    def record_close(self, reason: str) -> None:
        """Record in the journal that the session no longer uses this link."""
        if self.track is not None:
            self.track.record_marker("close", "in", reason)

    @property
    def is_admitted(self) -> bool:
        """Whether the peer is authenticated, or admitted as anonymous."""
        return self.session.is_admitted

    @property
    def has_room(self) -> bool:
        """Whether the link accepts more packets now."""
        return not self.link.is_full and self._outbox.buffered_bytes < FLUSH_THRESHOLD

    def unsent_bytes(self) -> int:
        """Return the number of bytes that the link has not accepted yet."""
        return self._outbox.buffered_bytes + self.link.unsent_bytes()

    def write(self, packet: Packet) -> None:
        """Write a packet; abort the link if its outbox overflows. The session retransmits lost packets."""
        self._outbox.send((packet,), (packet.op,))
        if self._outbox.has_overflowed:
            self.session.note_overflow(self._outbox.buffered_bytes)
            self.link.abort()

    def received(self, packet: Packet) -> None:
        """Handle a packet, unless the session uses another link or has said goodbye."""
        session = self.session
        if session.connection is not self or session.conversation.closed:
            return
        session.receive(packet, self.track)
        if len(packet.payload) > FLUSH_THRESHOLD:
            session.flush()

    def progressed(self, _size: int) -> bool:
        """Continue: NQ has no attachments."""
        return True

    def writable(self) -> None:
        """Write waiting packets."""
        self.link.is_alive = True
        self._outbox.flush()
        if not self._outbox.pending:
            self.session.flush()

    def lost(self, reason: str) -> None:
        """Detach from the session, which waits for its next connection."""
        self.session.detach(self, reason)
        self.on_gone(self)

    # Keepalive.

    def check_silent(self) -> bool:
        """Return whether nothing was received since the last call."""
        silent = not self.link.is_alive
        self.link.is_alive = False
        return silent


class LockstepConnection:
    """A connection that gets one packet for each that it sends, such as a ZeroMQ REQ. Implements `Receiver`."""

    has_begun = True

    def __init__(self, session: "ResumableSession", link: Link, on_gone: Callable[["ResumableSession"], None]) -> None:
        """`on_gone` is called when the link is lost."""
        self._session = session
        self._link = link
        self._on_gone = on_gone
        self._track = session.open_track(link.transport)
        session.lockstep_connections += 1

    def received(self, packet: Packet) -> None:
        """Answer with the next packet of the session."""
        response = self._session.handle_lockstep(packet, self._track)
        self._link.write(self._link.frame(response))
        if self._track is not None:
            self._track.record_sent(self._track.clock(), response, response.op)

    def progressed(self, _size: int) -> bool:
        """Continue: NQ has no attachments."""
        return True

    def writable(self) -> None:
        """Do nothing: nothing is sent before the peer's next packet."""

    def lost(self, reason: str) -> None:
        """Detach from the session, which waits for its next connection."""
        if self._track is not None:
            self._track.record_marker("close", "in", reason)
        self._session.lockstep_connections -= 1
        self._on_gone(self._session)
