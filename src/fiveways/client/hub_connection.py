"""A link and its conversation with the hub: reading, writing, timers and keepalive."""

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
"""Flush after this many messages instead of at the end of the event loop iteration."""
_MAX_MISSED_PINGS: Final = 2
_log = logging.getLogger("fiveways.client")


class HubConnection(ABC):
    """One connection to a hub. Implements `transports.base.Receiver`."""

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
        """Whether the hub reads too slowly; callers `await wait_writable()` before they send more."""
        self._writable = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """Time of the timer: a handle of uvloop does not return it after it has passed."""
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._missed_pings = 0
        self._close_reason: ConnectionLost | None = None
        """Reason for the end, if known before the link is closed."""
        self.ended: asyncio.Future[ConnectionLost] = self._loop.create_future()
        """Reason for the end of the connection."""

    def attach(self, link: Link) -> "HubConnection":
        """Start on an open link."""
        self._link = link
        self._writer = LinkWriter(link)
        self._keepalive_timer = self._loop.call_later(self._settings.keepalive, self._check_keepalive)
        self._on_connected()
        return self

    @abstractmethod
    def _on_connected(self) -> None:
        """Send the first message."""

    @abstractmethod
    def _handle_message(self, message: HubMessage) -> None:
        """Handle a message of the hub; must not raise."""

    @abstractmethod
    def _on_conversation_closed(self) -> None:
        """Handle the end of the conversation, before the link is closed."""

    @abstractmethod
    def _fail_pending(self, error: ConnectionLost) -> None:
        """Fail all pending requests."""

    @abstractmethod
    def _on_flushed(self) -> None:
        """Handle that all messages were written to the link."""

    async def wait_writable(self) -> None:
        """Wait until the link accepts more, or is lost."""
        while self.is_full and not self.ended.done():
            self._writable.clear()
            await self._writable.wait()

    # Calls by the link.

    @abstractmethod
    def received(self, packet: Packet) -> None:
        """Decode and handle a packet."""

    def progressed(self, size: int) -> bool:
        """Record progress of an incoming attachment."""
        return self._conversation.progress(self._loop.time(), size)

    def writable(self) -> None:
        """Write pending packets, then wake writers."""
        self._writer.resume()
        self._update_is_full()
        if not self.is_full:
            self._writable.set()

    def _update_is_full(self) -> None:
        # Only our own writes fill a link: checking after each of them is enough.
        self.is_full = self._link.is_full or bool(self._writer.pending)

    def lost(self, reason: str) -> None:
        """End the connection."""
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

    # Sending.

    def send(self, message: HubMessage) -> None:
        """Send a message; LocalProtocolError if the protocol cannot encode it. After the end it is dropped."""
        if not self.ended.done():
            self._conversation.send(message, self._loop.time())
            self._schedule_flush()

    def close(self, text: str = "") -> None:
        """Send a goodbye and close the connection."""
        self._close_reason = self._close_reason or ConnectionLost(text or "the connection is closed")
        if self.ended.done():
            return
        if not self._conversation.closed:
            self._conversation.send(Goodbye(text), self._loop.time())
        self._flush()

    def abort(self, error: ConnectionLost) -> None:
        """Close the connection immediately."""
        self._close_reason = self._close_reason or error
        self._link.abort()

    def _schedule_flush(self) -> None:
        """Schedule a flush for the end of the event loop iteration, or flush now if many messages wait."""
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
                # Only responses get here: requests wait until the link is writable.
                self.abort(ConnectionLost(f"the hub reads too slowly: {self._link.unsent_bytes()} bytes are unsent"))
        self._on_flushed()

    def _flush(self) -> None:
        """Write all packets; close the link if the conversation is closed."""
        self._is_flush_scheduled = False
        if self.ended.done():
            return
        self._write_packets()
        conversation = self._conversation
        if conversation.closed:
            self._on_conversation_closed()
            if conversation.error is not None:
                self._close_reason = self._close_reason or ConnectionLost(
                    f"the hub broke the protocol: {conversation.error}"
                )
            self._link.close(1000 if conversation.error is None else 1002)
            return
        deadline = conversation.deadline()
        if deadline is not None:
            self._set_timer(deadline)

    # Timers.

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for message in self._conversation.wake(self._loop.time()):
            self._handle_message(message)
        if not self._conversation.wants_attachment:
            self._link.discard_incoming()
        self._flush()

    def _check_keepalive(self) -> None:
        """Ping a silent hub; end the connection after two pings without a response."""
        if self._link.is_alive:
            self._link.is_alive = False
            self._missed_pings = 0
        else:
            self._missed_pings += 1
            if self._missed_pings > _MAX_MISSED_PINGS:
                wait = self._settings.keepalive * _MAX_MISSED_PINGS
                self.abort(ConnectionLost(f"no keepalive response from the hub for {wait:g} seconds"))
                return
            self._link.ping()
        self._keepalive_timer = self._loop.call_later(self._settings.keepalive, self._check_keepalive)
