"""The least that could be called a call: an echo on one topic, where both ends hear themselves as well."""

import asyncio
from time import perf_counter
from typing import Final

from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, open_mqtt

TOPIC: Final = "/bare"
ASKED, ANSWERED = b"a", b"b"
"""The first byte of a message tells which it is."""


class EchoService:
    """Sends back what it is asked. Fulfils `MqttReceiver`."""

    link: MqttLink

    def received(self, message: MqttMessage) -> None:
        """Answer, unless it is an answer."""
        if message.payload[:1] == ASKED:
            self.link.publish(TOPIC, ANSWERED + message.payload[1:])

    def writable(self) -> None:
        """Nothing waits."""

    def lost(self, reason: str) -> None:
        """Nothing is left to do."""


class EchoCaller(EchoService):
    """Asks again with each answer."""

    def __init__(self, size: int) -> None:
        self._body = b"x" * size
        self._stop_at = 0.0
        self.answered = 0

    def received(self, message: MqttMessage) -> None:
        """Count an answer, and ask again."""
        if message.payload[:1] == ANSWERED:
            self.answered += 1
            if perf_counter() < self._stop_at:
                self.ask()

    def ask(self) -> None:
        """Ask once more."""
        self.link.publish(TOPIC, ASKED + self._body)

    def begin(self, in_flight: int, seconds: float) -> None:
        """Have so many open, for so long."""
        self._stop_at = perf_counter() + seconds
        for _ in range(in_flight):
            self.ask()


async def serve(url: str) -> None:
    """Echo until this process is ended."""
    await _linked(EchoService(), url)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def measure(url: str, in_flight: int, seconds: float, size: int) -> float:
    """Return how many answers come in a second."""
    asker = EchoCaller(size - 1)
    await _linked(asker, url)
    asker.begin(in_flight, seconds)
    start = perf_counter()
    await asyncio.sleep(seconds)
    rate = asker.answered / (perf_counter() - start)
    asker.link.close()
    return rate


async def _linked(end: EchoService, url: str) -> None:
    end.link = await open_mqtt(Broker.parse(url), end)
    await end.link.subscribe([TOPIC])
