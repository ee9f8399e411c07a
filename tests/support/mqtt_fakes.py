"""A receiver of an MQTT link that records everything, and brokers that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage

HOST = "127.0.0.1"
CONNACK = b"\x20\x02\x00\x00"
PATIENCE = 120.0


class RecordingReceiver:
    """Records the messages and losses of a link."""

    def __init__(self) -> None:
        self.messages: list[MqttMessage] = []
        self.writables = 0
        self.losses: list[str] = []
        self.on_received: Callable[[MqttMessage], object] | None = None
        self._changed = asyncio.Event()

    def received(self, message: MqttMessage) -> None:
        self.messages.append(message)
        self._changed.set()
        if self.on_received is not None:
            self.on_received(message)

    def writable(self) -> None:
        self.writables += 1
        self._changed.set()

    def lost(self, reason: str) -> None:
        self.losses.append(reason)
        self._changed.set()

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, checked after each callback of the link."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_messages(self, count: int) -> list[bytes]:
        """Wait for a number of messages; return their payloads."""
        await self.until(lambda: len(self.messages) >= count or bool(self.losses))
        assert not self.losses
        return self.payloads

    async def wait_for_loss(self) -> str:
        """Wait for the loss of the link; return the reason."""
        await self.until(lambda: bool(self.losses))
        await asyncio.sleep(0.02)
        assert len(self.losses) == 1
        return self.losses[0]


class FakeBroker:
    """One connection of a broker that a test controls."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def packet(self) -> bytes:
        """Return the next packet of the client except PINGREQ; empty if the connection is closed."""
        while True:
            try:
                packet = await asyncio.wait_for(self._packet(), PATIENCE)
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""
            if packet != b"\xc0\x00":
                return packet

    async def pinged(self) -> None:
        """Wait for a PINGREQ, and for no other packet."""
        assert await asyncio.wait_for(self._packet(), PATIENCE) == b"\xc0\x00"

    async def _packet(self) -> bytes:
        head = await self._reader.readexactly(2)
        length, digit = head[1] & 127, 0
        while head[-1] > 127:
            head += await self._reader.readexactly(1)
            digit += 1
            length |= (head[-1] & 127) << 7 * digit
        return head + await self._reader.readexactly(length)

    def hang_up(self) -> None:
        self._writer.transport.abort()


class FakePlace:
    """The address of a fake broker, and its connections."""

    def __init__(self, port: int) -> None:
        self.broker = Broker(HOST, port)
        self.connections: asyncio.Queue[FakeBroker] = asyncio.Queue()

    async def connection(self) -> FakeBroker:
        """Return the next connection."""
        return await asyncio.wait_for(self.connections.get(), PATIENCE)


@asynccontextmanager
async def fake_broker(first: bytes = CONNACK) -> AsyncIterator[FakePlace]:
    """Start a broker that reads CONNECT and answers `first`; the test controls the rest."""
    connections: list[FakeBroker] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = FakeBroker(reader, writer)
        connections.append(connection)
        await connection.packet()
        connection.say(first)
        place.connections.put_nowait(connection)

    server = await asyncio.start_server(accept, HOST, 0)
    place = FakePlace(server.sockets[0].getsockname()[1])
    try:
        yield place
    finally:
        server.close()
        for connection in connections:
            connection.hang_up()
        await asyncio.sleep(0)


class Wire(asyncio.Transport):
    """A socket that records written data."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True


def open_recorded_link(receiver: RecordingReceiver, *, max_packet: int = 1 << 20) -> tuple[MqttLink, Wire]:
    """Return an open link on a recording socket."""
    link, wire = MqttLink(Broker("nowhere", 1), b"hello", max_packet, 0), Wire()
    link.connection_made(wire)
    link.data_received(CONNACK)
    link.begin(receiver)
    assert wire.written == [b"hello"]
    wire.written.clear()
    return link, wire
