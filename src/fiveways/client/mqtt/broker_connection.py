"""The lower half of a session: a conversation, the links it is carried by, and what time does to it."""

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
"""So many messages are written at once, even before the pass is over."""
_log = logging.getLogger("fiveways.client.mqtt")


class BrokerConnection(ABC):
    """One conversation with all that is behind a broker. It outlives links: an answer may leave by the next one.

    What is said in one pass of the loop is written at its end, at once.
    """

    def __init__(self, broker: Broker, settings: MqttSettings, serve: Callable[[str, str], str | None]) -> None:
        """Make it; `serve` tells who streams in a method on a topic, None if that is not served here."""
        self.settings = settings
        self._loop = asyncio.get_running_loop()
        self.conversation = MqttConversation(
            ConversationSetup(str(broker), Role.CLIENT, SystemRandom(), settings.limits, {"serve": serve}),
        )
        self._held_responses: list[Packet] = []
        """Answers that wait for a link."""
        self._is_flush_scheduled = False
        self._unflushed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When that is: uvloop's own handle does not tell where the time has come."""

    @property
    @abstractmethod
    def _link(self) -> MqttLink | None:
        """The link that is open."""

    @abstractmethod
    def _handle_message(self, word: HubMessage) -> None:
        """Take a word; it must not raise."""

    @abstractmethod
    def _on_flushed(self) -> None:
        """Know that all that was said has been handed to a link."""

    def send(self, word: HubMessage) -> None:
        """Answer a call; LocalProtocolError if that cannot be said."""
        self.conversation.send(word, self._loop.time())
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
        for word in self.conversation.wake(self._loop.time()):
            self._handle_message(word)
        self._flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold_responses(self, packets: Sequence[Packet]) -> None:
        """Keep answers for the next link, as many as may wait; who asked for the others will hear nothing.

        Requests are not kept: whoever made them is told that they did not leave.
        """
        limits = self.settings.limits
        self._held_responses += [packet for packet in packets if not isinstance(decode(packet, limits)[0], Request)]
        size = sum(len(packet.payload) for packet in self._held_responses)
        dropped = 0
        while size > limits.max_unread:
            size -= len(self._held_responses.pop(0).payload)
            dropped += 1
        if dropped:
            _log.warning("%d answers were dropped: there is no link to the broker, and too many wait for one", dropped)

    def _send_held(self, link: MqttLink) -> None:
        """Say what waited for a link."""
        held, self._held_responses = self._held_responses, []
        for packet in held:
            link.publish(packet.channel, packet.payload)
        self._schedule_flush()
