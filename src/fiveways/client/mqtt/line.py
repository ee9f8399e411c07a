"""The lower half of a session: a conversation, the links it is carried by, and what time does to it."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final

from fiveways.client.mqtt.settings import MqttSettings
from fiveways.model.messages import Word
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.messages import Request, decode
from fiveways.transports.mqtt_link import Broker, MqttLink
from fiveways.wire.packet import Packet

CORK: Final = 64
"""So many messages are written at once, even before the pass is over."""
_log = logging.getLogger("fiveways.client.mqtt")


class Line(ABC):
    """One conversation with all that is behind a broker. It outlives links: an answer may leave by the next one.

    What is said in one pass of the loop is written at its end, at once.
    """

    def __init__(self, broker: Broker, settings: MqttSettings, serve: Callable[[str, str], str | None]) -> None:
        """Make it; `serve` tells who streams in a method on a topic, None if that is not served here."""
        self.settings = settings
        self._loop = asyncio.get_running_loop()
        self.talk = MqttConversation(
            Setup(str(broker), Role.CLIENT, SystemRandom(), settings.limits, {"serve": serve}),
        )
        self._held: list[Packet] = []
        """Answers that wait for a link."""
        self._scheduled = False
        self._unwritten = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When that is: uvloop's own handle does not tell where the time has come."""

    @property
    @abstractmethod
    def _link(self) -> MqttLink | None:
        """The link that is open."""

    @abstractmethod
    def _hear(self, word: Word) -> None:
        """Take a word; it must not raise."""

    @abstractmethod
    def _written(self) -> None:
        """Know that all that was said has been handed to a link."""

    def say(self, word: Word) -> None:
        """Answer a call; LocalProtocolError if that cannot be said."""
        self.talk.send(word, self._loop.time())
        self._said()

    def _said(self) -> None:
        self._unwritten += 1
        if self._unwritten >= CORK:
            self._write()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _write(self) -> None:
        self._unwritten = 0
        packets = self.talk.outgoing()
        if not packets:
            return
        link = self._link
        if link is None:
            self._hold(packets)
            return
        for packet in packets:
            link.publish(packet.channel, packet.payload)
        link.flush()
        self._written()

    def _flush(self) -> None:
        self._scheduled = False
        self._write()
        deadline = self.talk.deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        self._stop_timer()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer = None
        for word in self.talk.wake(self._loop.time()):
            self._hear(word)
        self._flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold(self, packets: Sequence[Packet]) -> None:
        """Keep answers for the next link, as many as may wait; who asked for the others will hear nothing.

        Requests are not kept: whoever made them is told that they did not leave.
        """
        limits = self.settings.limits
        self._held += [packet for packet in packets if not isinstance(decode(packet, limits)[0], Request)]
        size = sum(len(packet.payload) for packet in self._held)
        dropped = 0
        while size > limits.max_unread:
            size -= len(self._held.pop(0).payload)
            dropped += 1
        if dropped:
            _log.warning("%d answers were dropped: there is no link to the broker, and too many wait for one", dropped)

    def _release(self, link: MqttLink) -> None:
        """Say what waited for a link."""
        held, self._held = self._held, []
        for packet in held:
            link.publish(packet.channel, packet.payload)
        self._said()
