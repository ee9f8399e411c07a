"""The connection of a peer that is answered packet by packet, such as a ZeroMQ REQ."""

from collections.abc import Callable

from fiveways.runtime.resumable_session import ResumableSession
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet


class LockstepConnection:
    """A peer that hears one packet for each it sends, and nothing else. Fulfils `transports.base.Receiver`."""

    has_begun = True

    def __init__(self, standing: ResumableSession, link: Link, gone: Callable[[ResumableSession], None]) -> None:
        """Make it; `gone` is told when the link is lost."""
        self._session = standing
        self._link = link
        self._gone = gone
        self._track = standing.open_track(link.transport)
        standing.lockstep_connections += 1

    def received(self, packet: Packet) -> None:
        """Answer with what is due."""
        due = self._session.handle_lockstep(packet, self._track)
        self._link.write(self._link.frame(due))
        if self._track is not None:
            self._track.record_sent(self._track.clock(), due, due.op)

    def progressed(self, _size: int) -> bool:
        """Nothing large comes by itself."""
        return True

    def writable(self) -> None:
        """Nothing waits: it is the peer's turn."""

    def lost(self, reason: str) -> None:
        """Let the conversation wait for its next link."""
        if self._track is not None:
            self._track.record_marker("close", "in", reason)
        self._session.lockstep_connections -= 1
        self._gone(self._session)
