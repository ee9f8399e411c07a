"""The lower half of a session: a link, a conversation, and what time does to them."""

import asyncio
import logging
from abc import ABC, abstractmethod
from random import SystemRandom
from typing import Final

from fiveways.client.link_writer import LinkWriter
from fiveways.client.settings import ClientSettings
from fiveways.errors import ConnectionLost
from fiveways.model.messages import Goodbye, HubMessage
from fiveways.protocols.base import ConversationSetup, ProtocolSpec, Role
from fiveways.transports.base import Link
from fiveways.wire.packet import Packet

FLUSH_THRESHOLD: Final = 24
"""So many words are written at once, even before the pass is over."""
_MAX_MISSED_PINGS: Final = 2
_log = logging.getLogger("fiveways.client")


class HubConnection(ABC):
    """One connection. Fulfils `transports.base.Receiver`."""

    def __init__(self, spec: ProtocolSpec, settings: ClientSettings) -> None:
        self.spec = spec
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._conversation = spec.create_conversation(
            ConversationSetup("hub", Role.CLIENT, SystemRandom(), settings.limits)
        )
        self._link: Link
        self._writer: LinkWriter
        self._is_flush_scheduled = False
        self._unflushed = 0
        self.is_full = False
        """The hub reads more slowly than we write: `await room()` before saying more."""
        self._writable = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When that is: uvloop's own handle does not tell where the time has come."""
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._missed_pings = 0
        self._close_reason: ConnectionLost | None = None
        """What ended it, where that is known before the link is gone."""
        self.ended: asyncio.Future[ConnectionLost] = self._loop.create_future()
        """Why it is over."""

    def attach(self, link: Link) -> "HubConnection":
        """Begin: the link is open."""
        self._link = link
        self._writer = LinkWriter(link)
        self._keepalive_timer = self._loop.call_later(self._settings.keepalive, self._check_keepalive)
        self._on_connected()
        return self

    @abstractmethod
    def _on_connected(self) -> None:
        """Say what is said first."""

    @abstractmethod
    def _handle_message(self, word: HubMessage) -> None:
        """Take a word of the hub; it must not raise."""

    @abstractmethod
    def _on_conversation_closed(self) -> None:
        """Know that nothing more can be said, though the link is still there."""

    @abstractmethod
    def _fail_pending(self, error: ConnectionLost) -> None:
        """Let go of all that waits: nothing more will come."""

    @abstractmethod
    def _on_flushed(self) -> None:
        """Know that all that was said has been handed to the link."""

    async def wait_writable(self) -> None:
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
        return self._conversation.progress(self._loop.time(), size)

    def writable(self) -> None:
        """Write what waited, then let others write."""
        self._writer.resume()
        self._update_is_full()
        if not self.is_full:
            self._writable.set()

    def _update_is_full(self) -> None:
        # A link is filled by our own writing alone, so that it is enough to look after that.
        self.is_full = self._link.is_full or bool(self._writer.pending)

    def lost(self, reason: str) -> None:
        """End, whoever ended it."""
        self._stop_timers()
        error = self._close_reason or ConnectionLost(reason or "the connection was lost")
        self.ended.set_result(error)
        self._writer.pending.clear()
        self._writable.set()
        self._fail_pending(error)

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._keepalive_timer):
            if timer is not None:
                timer.cancel()

    # What we say.

    def send(self, word: HubMessage) -> None:
        """Say a word; LocalProtocolError if that cannot be said. On a connection that is over it is dropped."""
        if not self.ended.done():
            self._conversation.send(word, self._loop.time())
            self._schedule_flush()

    def close(self, text: str = "") -> None:
        """Part from the hub."""
        self._close_reason = self._close_reason or ConnectionLost(text or "the connection is closed")
        if self.ended.done():
            return
        if not self._conversation.closed:
            self._conversation.send(Goodbye(text), self._loop.time())
        self._flush()

    def abort(self, error: ConnectionLost) -> None:
        """End the connection at once."""
        self._close_reason = self._close_reason or error
        self._link.abort()

    def _schedule_flush(self) -> None:
        """Let it be written: with all that this pass has to say, or before, as there is much."""
        self._unflushed += 1
        if self._unflushed >= FLUSH_THRESHOLD:
            self._write_packets()
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _write_packets(self) -> None:
        self._unflushed = 0
        packets = self._conversation.take_packets()
        if packets:
            self._writer.write(packets)
            self._update_is_full()
            if self.is_full and self._link.unsent_bytes() > self._settings.limits.max_unread:
                # Only answers come so far, as who asks waits for room.
                self.abort(ConnectionLost(f"the hub left {self._link.unsent_bytes()} bytes unread"))
        self._on_flushed()

    def _flush(self) -> None:
        """Write all there is; close when the conversation is over."""
        self._is_flush_scheduled = False
        if self.ended.done():
            return
        self._write_packets()
        talk = self._conversation
        if talk.closed:
            self._on_conversation_closed()
            if talk.error is not None:
                self._close_reason = self._close_reason or ConnectionLost(f"the hub broke the protocol: {talk.error}")
            self._link.close(1000 if talk.error is None else 1002)
            return
        deadline = talk.deadline()
        if deadline is not None:
            self._set_timer(deadline)

    # Time.

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for word in self._conversation.wake(self._loop.time()):
            self._handle_message(word)
        if not self._conversation.wants_attachment:
            self._link.discard_incoming()
        self._flush()

    def _check_keepalive(self) -> None:
        """Ask a silent hub for a sign of life; a hub that gives none is gone."""
        if self._link.is_alive:
            self._link.is_alive = False
            self._missed_pings = 0
        else:
            self._missed_pings += 1
            if self._missed_pings > _MAX_MISSED_PINGS:
                wait = self._settings.keepalive * _MAX_MISSED_PINGS
                self.abort(ConnectionLost(f"the hub gave no sign of life for {wait:g} seconds"))
                return
            self._link.ping()
        self._keepalive_timer = self._loop.call_later(self._settings.keepalive, self._check_keepalive)
