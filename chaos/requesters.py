"""Requesters with the hub's own NQ conversation: each keeps so many requests open until it is told to finish."""

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
    """One that asks."""

    def __init__(self, hub: HubAddress, random: Random, name: str, in_flight: int) -> None:
        super().__init__(hub, random)
        self.name = name
        self.talk = NqConversation(ConversationSetup(name, Role.CLIENT, random, LIMITS, _OPTIONS))
        self.open: dict[str, int] = {}
        self._in_flight = in_flight
        self._answered = 0
        self._callbacks: Counter[str] = Counter()
        self._numbers = count(1)
        self._report = Report("requesters")
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()

    def __str__(self) -> str:
        silence = self._loop.time() - self._heard_at
        return f"{type(self).__name__} {self.name}: {len(self.open)} open, nothing heard for {silence:.1f} s"

    def report(self) -> Report:
        """Return the result; what is open is lost."""
        self._report.figures["answered"] = self._answered
        self._report.lost = len(self.open)
        self._report.doubled = sum(times - 1 for times in self._callbacks.values())
        return self._report

    @property
    def is_done(self) -> bool:
        """Whether all was answered."""
        return self.is_finishing and not self.open

    def ask(self) -> None:
        """Open as many requests as there should be."""
        while not self.is_finishing and len(self.open) < self.hub.load(self._in_flight):
            number = next(self._numbers)
            call_id = f"{self.name}.{number}"
            self.open[call_id] = number
            self._report.figures["requests"] += 1
            self.talk.send(Call(call_id, METHOD, Value([number])), self._loop.time())

    def hear(self, packet: Packet) -> None:
        """Take what the hub says."""
        self._heard_at = self._loop.time()
        for word in self.talk.receive(packet, self._heard_at):
            self._heard(word)

    def wake(self) -> None:
        """Let time pass."""
        deadline, now = self.talk.deadline(), self._loop.time()
        if deadline is not None and deadline <= now:
            for word in self.talk.wake(now):
                self._heard(word)

    def _heard(self, word: HubMessage) -> None:
        if isinstance(word, Result | Failure):
            self._callbacks[word.id] += 1
            number = self.open.pop(word.id, None)
            if isinstance(word, Failure):
                self._report.failures.append(f"{word.id}: {word.reason.value} {word.text}")
            elif number is None or word.body is None or word.body.value() != answer_to(number):
                self._report.wrong.append(f"{word.id}: {word.body}")
            else:
                self._answered += 1
        elif isinstance(word, Goodbye):
            self.talk.reconnect(self._loop.time())


class HttpRequester(Requester):
    """Asks over HTTP."""

    _peer = ""

    async def run(self) -> None:
        """POST what there is to say, and hear what is due."""
        while not self.is_done:
            try:
                await self._converse()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                await asyncio.sleep(_PAUSE)

    async def _converse(self) -> None:
        reader, writer = await asyncio.open_connection(self.hub.host, self.hub.port)
        try:
            while not self.is_done:
                self.ask()
                self.wake()
                packets = self.talk.take_packets() or [Packet(b"[]")]
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
        said = await reader.readexactly(int(headers["content-length"]))
        if " 200 " not in status:
            raise ValueError(status)
        self._peer = headers["nq-peer"]
        self.hear(Packet(said))


class WebSocketRequester(Requester):
    """Asks over a duplex link, here WebSocket. Fulfils `transports.base.Receiver`."""

    _link: Link
    _is_lost = True

    def __str__(self) -> str:
        return f"{super().__str__()}, link lost: {self._is_lost}"

    async def connect(self) -> None:
        """Open a link, or raise OSError."""
        named = f"?peer={self.talk.assigned_peer_id}" if self.talk.assigned_peer_id else ""
        url = f"ws://{self.hub.host}:{self.hub.port}/nq{named}"
        await open_websocket(url, self.receive, limits=LIMITS, timeout=2.0)

    async def run(self) -> None:
        """Connect again and again, and go on where the last link ended."""
        while not self.is_done:
            try:
                await self.connect()
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            if self._is_lost:
                continue
            self.talk.reconnect(self._loop.time())
            while not self._is_lost and not self.is_done:
                self.ask()
                self.wake()
                self._write()
                await asyncio.sleep(_TICK)
        if not self._is_lost:
            self._link.close()

    def receive(self, link: Link) -> "WebSocketRequester":
        """Have a link."""
        self._link, self._is_lost = link, False
        return self

    def _write(self) -> None:
        packets = self.talk.take_packets()
        if packets:
            self._link.write(self._link.frames(packets))

    def received(self, packet: Packet) -> None:
        """Take a message, and ask for more."""
        self.hear(packet)
        self.ask()
        self._write()

    def progressed(self, size: int) -> bool:
        """Nothing large comes."""
        return True

    def writable(self) -> None:
        """What waits is written with the next tick."""

    def lost(self, _reason: str) -> None:
        """Connect again."""
        self._is_lost = True


class ZmqRequester(WebSocketRequester):
    """Asks over ZeroMQ, under a routing id of its own."""

    async def connect(self) -> None:
        """Open a link that ends with its connection."""
        url = f"tcp://{self.hub.host}:{self.hub.zmq_port}"
        routing_id = f"dealer {self.name}".encode()
        await open_zmq(url, self.receive, routing_id=routing_id, reconnects=False, timeout=2.0)
