"""The lower half of a session: a link, a conversation, and what time does to them."""

import asyncio
import logging
from abc import ABC, abstractmethod
from random import SystemRandom
from typing import Final

from fiveways.client.settings import Settings
from fiveways.client.writer import Writer
from fiveways.errors import ConnectionLost
from fiveways.model.messages import Goodbye, Word
from fiveways.protocols.base import ProtocolSpec, Role, Setup
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet

CORK: Final = 24
"""So many words are written at once, even before the pass is over."""
_SILENCES: Final = 2
_log = logging.getLogger("fiveways.client")


class Line(ABC):
    """One connection. Fulfils `transports.base.Receiver`."""

    def __init__(self, spec: ProtocolSpec, settings: Settings) -> None:
        self.spec = spec
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._talk = spec.converse(Setup("hub", Role.CLIENT, SystemRandom(), settings.limits))
        self._link: Link
        self._writer: Writer
        self._scheduled = False
        self._unwritten = 0
        self.is_full = False
        """The hub reads more slowly than we write: `await room()` before saying more."""
        self._writable = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When that is: uvloop's own handle does not tell where the time has come."""
        self._watch: asyncio.TimerHandle | None = None
        self._silences = 0
        self._why: ConnectionLost | None = None
        """What ended it, where that is known before the link is gone."""
        self.ended: asyncio.Future[ConnectionLost] = self._loop.create_future()
        """Why it is over."""

    def attach(self, link: Link) -> "Line":
        """Begin: the link is open."""
        self._link = link
        self._writer = Writer(link)
        self._watch = self._loop.call_later(self._settings.keepalive, self._look)
        self._begin()
        return self

    @abstractmethod
    def _begin(self) -> None:
        """Say what is said first."""

    @abstractmethod
    def _hear(self, word: Word) -> None:
        """Take a word of the hub; it must not raise."""

    @abstractmethod
    def _parting(self) -> None:
        """Know that nothing more can be said, though the link is still there."""

    @abstractmethod
    def _end(self, error: ConnectionLost) -> None:
        """Let go of all that waits: nothing more will come."""

    @abstractmethod
    def _written(self) -> None:
        """Know that all that was said has been handed to the link."""

    async def room(self) -> None:
        """Wait until the link takes more, or is gone."""
        while self.is_full and not self.ended.done():
            self._writable.clear()
            await self._writable.wait()

    # Calls from the link.

    @abstractmethod
    def received(self, packet: Packet) -> None:
        """Let what the hub says be heard."""

    def progressed(self, size: int) -> bool:
        """Know that an attachment is on its way."""
        return self._talk.progress(self._loop.time(), size)

    def writable(self) -> None:
        """Write what waited, then let others write."""
        self._writer.resume()
        self._look_for_room()
        if not self.is_full:
            self._writable.set()

    def _look_for_room(self) -> None:
        # A link is filled by our own writing alone, so that it is enough to look after that.
        self.is_full = self._link.is_full or bool(self._writer.waiting)

    def lost(self, reason: str) -> None:
        """End, whoever ended it."""
        self._stop_timers()
        error = self._why or ConnectionLost(reason or "the connection was lost")
        self.ended.set_result(error)
        self._writer.waiting.clear()
        self._writable.set()
        self._end(error)

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()

    # What we say.

    def say(self, word: Word) -> None:
        """Say a word; LocalProtocolError if that cannot be said. On a connection that is over it is dropped."""
        if not self.ended.done():
            self._talk.send(word, self._loop.time())
            self._said()

    def close(self, text: str = "") -> None:
        """Part from the hub."""
        self._why = self._why or ConnectionLost(text or "the connection is closed")
        if self.ended.done():
            return
        if not self._talk.closed:
            self._talk.send(Goodbye(text), self._loop.time())
        self._flush()

    def abort(self, error: ConnectionLost) -> None:
        """End the connection at once."""
        self._why = self._why or error
        self._link.abort()

    def _said(self) -> None:
        """Let it be written: with all that this pass has to say, or before, as there is much."""
        self._unwritten += 1
        if self._unwritten >= CORK:
            self._write()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _write(self) -> None:
        self._unwritten = 0
        packets = self._talk.outgoing()
        if packets:
            self._writer.write(packets)
            self._look_for_room()
            if self.is_full and self._link.waiting() > self._settings.limits.max_unread:
                # Only answers come so far, as who asks waits for room.
                self.abort(ConnectionLost(f"the hub left {self._link.waiting()} bytes unread"))
        self._written()

    def _flush(self) -> None:
        """Write all there is; close when the conversation is over."""
        self._scheduled = False
        if self.ended.done():
            return
        self._write()
        talk = self._talk
        if talk.closed:
            self._parting()
            if talk.error is not None:
                self._why = self._why or ConnectionLost(f"the hub broke the protocol: {talk.error}")
            self._link.close(1000 if talk.error is None else 1002)
            return
        deadline = talk.deadline()
        if deadline is not None:
            self._wake_at(deadline)

    # Time.

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer = None
        for word in self._talk.wake(self._loop.time()):
            self._hear(word)
        if not self._talk.wants_attachment:
            self._link.discard_incoming()
        self._flush()

    def _look(self) -> None:
        """Ask a silent hub for a sign of life; a hub that gives none is gone."""
        if self._link.is_alive:
            self._link.is_alive = False
            self._silences = 0
        else:
            self._silences += 1
            if self._silences > _SILENCES:
                wait = self._settings.keepalive * _SILENCES
                self.abort(ConnectionLost(f"the hub gave no sign of life for {wait:g} seconds"))
                return
            self._link.ping()
        self._watch = self._loop.call_later(self._settings.keepalive, self._look)
