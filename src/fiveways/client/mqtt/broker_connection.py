"""A conversation with the peers at a broker: writing, timers, and responses that wait for a link."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final

from fiveways.client.mqtt.settings import MqttSettings
from fiveways.model.messages import HubMessage
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.messages import Request, decode
from fiveways.transports.mqtt_link import Broker, MqttLink
from fiveways.wire.packet import Packet

FLUSH_THRESHOLD: Final = 64
"""Flush after this many messages instead of at the end of the event loop iteration."""
_log = logging.getLogger("fiveways.client.mqtt")


class BrokerConnection(ABC):
    """One conversation with all peers at a broker. It outlives links: a response may leave over the next one.

    Messages of one event loop iteration are written together at its end.
    """

    def __init__(self, broker: Broker, settings: MqttSettings, serve: Callable[[str, str], str | None]) -> None:
        """Create it; `serve` returns the streaming kind of a method on a topic, None if it is not served here."""
        self.settings = settings
        self._loop = asyncio.get_running_loop()
        self.conversation = MqttConversation(
            ConversationSetup(str(broker), Role.CLIENT, SystemRandom(), settings.limits, {"serve": serve}),
        )
        self._held_responses: list[Packet] = []
        """Responses that wait for a link."""
        self._is_flush_scheduled = False
        self._unflushed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """Time of the timer: a handle of uvloop does not return it after it has passed."""

    @property
    @abstractmethod
    def _link(self) -> MqttLink | None:
        """The open link, or None."""

    @abstractmethod
    def _handle_message(self, message: HubMessage) -> None:
        """Handle a message; must not raise."""

    @abstractmethod
    def _on_flushed(self) -> None:
        """Handle that all messages were written to a link."""

    def send(self, message: HubMessage) -> None:
        """Send a response; LocalProtocolError if the protocol cannot encode it."""
        self.conversation.send(message, self._loop.time())
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        self._unflushed += 1
        if self._unflushed >= FLUSH_THRESHOLD:
            self._write_packets()
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _write_packets(self) -> None:
        self._unflushed = 0
        packets = self.conversation.take_packets()
        if not packets:
            return
        link = self._link
        if link is None:
            self._hold_responses(packets)
            return
        for packet in packets:
            link.publish(packet.channel, packet.payload)
        link.flush()
        self._on_flushed()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        self._write_packets()
        deadline = self.conversation.deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        self._stop_timer()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for message in self.conversation.wake(self._loop.time()):
            self._handle_message(message)
        self._flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold_responses(self, packets: Sequence[Packet]) -> None:
        """Keep responses for the next link, up to `max_unread` bytes; the oldest are dropped.

        Requests are not kept: their callers get `NotExecuted`.
        """
        limits = self.settings.limits
        self._held_responses += [packet for packet in packets if not isinstance(decode(packet, limits)[0], Request)]
        size = sum(len(packet.payload) for packet in self._held_responses)
        dropped = 0
        while size > limits.max_unread:
            size -= len(self._held_responses.pop(0).payload)
            dropped += 1
        if dropped:
            _log.warning(
                "dropped responses that wait for a link to the broker; the limit is limits.max_unread dropped=%d",
                dropped,
            )

    def _send_held(self, link: MqttLink) -> None:
        """Write the responses that wait for a link."""
        packets, self._held_responses = self._held_responses, []
        for packet in packets:
            link.publish(packet.channel, packet.payload)
        self._schedule_flush()
