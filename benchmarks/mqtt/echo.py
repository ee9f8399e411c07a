"""A minimal call: an echo on one topic, where both ends also receive their own messages."""

import asyncio
from time import perf_counter
from typing import Final

from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, open_mqtt

TOPIC: Final = "/bare"
REQUEST, RESPONSE = b"a", b"b"
"""The first byte of a message: a request or a response."""


class EchoService:
    """Sends requests back as responses. Fulfils `MqttReceiver`."""

    link: MqttLink

    def received(self, message: MqttMessage) -> None:
        """Answer a request; ignore responses."""
        if message.payload[:1] == REQUEST:
            self.link.publish(TOPIC, RESPONSE + message.payload[1:])

    def writable(self) -> None:
        """Do nothing: no output is queued."""

    def lost(self, reason: str) -> None:
        """Do nothing: the run is over."""


class EchoCaller(EchoService):
    """Sends a new request after each response."""

    def __init__(self, size: int) -> None:
        self._body = b"x" * size
        self._stop_at = 0.0
        self.answered = 0

    def received(self, message: MqttMessage) -> None:
        """Count a response, and send the next request."""
        if message.payload[:1] == RESPONSE:
            self.answered += 1
            if perf_counter() < self._stop_at:
                self.send_request()

    def send_request(self) -> None:
        """Send a request."""
        self.link.publish(TOPIC, REQUEST + self._body)

    def start(self, in_flight: int, seconds: float) -> None:
        """Keep `in_flight` requests pending for `seconds`."""
        self._stop_at = perf_counter() + seconds
        for _ in range(in_flight):
            self.send_request()


async def serve(url: str) -> None:
    """Echo until this process is terminated."""
    await _connect(EchoService(), url)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def measure(url: str, in_flight: int, seconds: float, size: int) -> float:
    """Return the number of responses per second."""
    caller = EchoCaller(size - 1)
    await _connect(caller, url)
    caller.start(in_flight, seconds)
    started = perf_counter()
    await asyncio.sleep(seconds)
    rate = caller.answered / (perf_counter() - started)
    caller.link.close()
    return rate


async def _connect(end: EchoService, url: str) -> None:
    end.link = await open_mqtt(Broker.parse(url), end)
    await end.link.subscribe([TOPIC])
