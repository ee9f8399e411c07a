"""Requesters with the hub's own NQ conversation; each keeps a number of requests pending until it is told to finish."""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import count
from random import Random
from typing import Final

from chaos.hubs import HubAddress
from chaos.methods import METHOD, answer_to
from chaos.participants import Participant, Report
from fiveways.model.messages import Call, Failure, Goodbye, HubMessage, Result
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.transports.base import Link
from fiveways.transports.websocket_client import open_websocket
from fiveways.transports.zmq_client import open_zmq
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value

LIMITS: Final = Limits()
_OPTIONS: Final[dict[str, object]] = {"first_wait": 0.3, "first_poll": 0.6, "longest_wait": 3.0}
_PAUSE: Final = 0.05
_TICK: Final = 0.02


class Requester(Participant):
    """The base class: sends requests and verifies the responses, without a transport."""

    def __init__(self, hub: HubAddress, random: Random, name: str, in_flight: int) -> None:
        super().__init__(hub, random)
        self.name = name
        self.conversation = NqConversation(ConversationSetup(name, Role.CLIENT, random, LIMITS, _OPTIONS))
        self.pending: dict[str, int] = {}
        self._in_flight = in_flight
        self._answered = 0
        self._callbacks: Counter[str] = Counter()
        self._numbers = count(1)
        self._report = Report("requesters")
        self._loop = asyncio.get_running_loop()
        self._last_received = self._loop.time()

    def __str__(self) -> str:
        silence = self._loop.time() - self._last_received
        return (
            f"{type(self).__name__} {self.name}: {len(self.pending)} open, last packet received before {silence:.1f} s"
        )

    def report(self) -> Report:
        """Return the result; pending requests count as lost."""
        self._report.figures["answered"] = self._answered
        self._report.lost = len(self.pending)
        self._report.doubled = sum(times - 1 for times in self._callbacks.values())
        return self._report

    @property
    def is_done(self) -> bool:
        """Whether all requests are answered after `finish`."""
        return self.is_finishing and not self.pending

    def send_requests(self) -> None:
        """Open requests up to the configured number."""
        while not self.is_finishing and len(self.pending) < self.hub.load(self._in_flight):
            number = next(self._numbers)
            call_id = f"{self.name}.{number}"
            self.pending[call_id] = number
            self._report.figures["requests"] += 1
            self.conversation.send(Call(call_id, METHOD, Value([number])), self._loop.time())

    def receive_packet(self, packet: Packet) -> None:
        """Handle a packet of the hub."""
        self._last_received = self._loop.time()
        for message in self.conversation.receive(packet, self._last_received):
            self._handle_message(message)

    def wake(self) -> None:
        """Run the timers of the conversation that are due."""
        deadline, now = self.conversation.deadline(), self._loop.time()
        if deadline is not None and deadline <= now:
            for message in self.conversation.wake(now):
                self._handle_message(message)

    def _handle_message(self, message: HubMessage) -> None:
        if isinstance(message, Result | Failure):
            self._callbacks[message.id] += 1
            number = self.pending.pop(message.id, None)
            if isinstance(message, Failure):
                self._report.failures.append(f"{message.id}: {message.reason.value} {message.text}")
            elif number is None or message.body is None or message.body.value() != answer_to(number):
                self._report.wrong.append(f"{message.id}: {message.body}")
            else:
                self._answered += 1
        elif isinstance(message, Goodbye):
            self.conversation.reconnect(self._loop.time())


class HttpRequester(Requester):
    """Sends requests over HTTP."""

    _peer = ""

    async def run(self) -> None:
        """POST the outgoing packets and poll for responses."""
        while not self.is_done:
            try:
                await self._converse()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                await asyncio.sleep(_PAUSE)

    async def _converse(self) -> None:
        reader, writer = await asyncio.open_connection(self.hub.host, self.hub.port)
        try:
            while not self.is_done:
                self.send_requests()
                self.wake()
                packets = self.conversation.take_packets() or [Packet(b"[]")]
                for packet in packets:
                    await self._post(reader, writer, packet.payload, 0.1 if packet is packets[-1] else 0.0)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _post(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, wait: float) -> None:
        head = (
            f"POST /nq?wait={wait} HTTP/1.1\r\nHost: {self.hub.host}:{self.hub.port}\r\nContent-Length: {len(body)}\r\n"
        )
        peer = f"NQ-Peer: {self._peer}\r\n" if self._peer else ""
        writer.write(f"{head}{peer}\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, _, rest = answer.partition("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in rest.strip().split("\r\n"))
        packet = await reader.readexactly(int(headers["content-length"]))
        if " 200 " not in status:
            raise ValueError(status)
        self._peer = headers["nq-peer"]
        self.receive_packet(Packet(packet))


class WebSocketRequester(Requester):
    """Sends requests over a duplex link, here WebSocket. Fulfils `transports.base.Receiver`."""

    _link: Link
    _is_lost = True

    def __str__(self) -> str:
        return f"{super().__str__()}, link lost: {self._is_lost}"

    async def connect(self) -> None:
        """Open a link, or raise OSError."""
        query = f"?peer={self.conversation.assigned_peer_id}" if self.conversation.assigned_peer_id else ""
        url = f"ws://{self.hub.host}:{self.hub.port}/nq{query}"
        await open_websocket(url, self.receive, limits=LIMITS, timeout=2.0)

    async def run(self) -> None:
        """Connect repeatedly, and resume the session over each new link."""
        while not self.is_done:
            try:
                await self.connect()
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            if self._is_lost:
                continue
            self.conversation.reconnect(self._loop.time())
            while not self._is_lost and not self.is_done:
                self.send_requests()
                self.wake()
                self._write()
                await asyncio.sleep(_TICK)
        if not self._is_lost:
            self._link.close()

    def receive(self, link: Link) -> "WebSocketRequester":
        """Take the new link."""
        self._link, self._is_lost = link, False
        return self

    def _write(self) -> None:
        packets = self.conversation.take_packets()
        if packets:
            self._link.write(self._link.frames(packets))

    def received(self, packet: Packet) -> None:
        """Handle a message, and send more requests."""
        self.receive_packet(packet)
        self.send_requests()
        self._write()

    def progressed(self, size: int) -> bool:
        """Accept the progress of a large message; there is none here."""
        return True

    def writable(self) -> None:
        """Do nothing; the next tick writes."""

    def lost(self, _reason: str) -> None:
        """Mark the link as lost; `run` reconnects."""
        self._is_lost = True


class ZmqRequester(WebSocketRequester):
    """Sends requests over ZeroMQ, under its own routing id."""

    async def connect(self) -> None:
        """Open a link that ends with its connection."""
        url = f"tcp://{self.hub.host}:{self.hub.zmq_port}"
        routing_id = f"dealer {self.name}".encode()
        await open_zmq(url, self.receive, routing_id=routing_id, reconnects=False, timeout=2.0)
