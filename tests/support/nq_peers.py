"""NQ peers that write their HTTP requests and frames themselves."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from tests.support.raw_peers import PATIENCE, Place, WirePeer

Message: TypeAlias = dict[str, Any]


class Elsewhere(Place):
    """A hub in another process."""

    def __init__(self, port: int) -> None:
        self.port = port


class Answer:
    """The response to a POST."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def messages(self) -> list[Message]:
        """Return the messages in the response, single or in a batch."""
        assert self.status == 200, self.body
        return unpacked(self.body)


class Poster:
    """An NQ peer over HTTP with one connection."""

    def __init__(self, port: int, peer: str = "", address: str = "127.0.0.1", **headers: str) -> None:
        """Connect from `address`; all of 127.0.0.0/8 is this machine."""
        self._address = address
        self.peer = peer
        """The id that the hub has given to it; it comes back by it."""
        self.headers = headers
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, *messages: Message, wait: float | None = None, **headers: str) -> list[Message]:
        """Post messages and return the messages in the response."""
        answer = await self.raw(packed(*messages), "/nq" if wait is None else f"/nq?wait={wait:g}", **headers)
        received = answer.messages
        self.peer = answer.headers["nq-peer"]
        return received

    async def raw(self, body: bytes, target: str = "/nq", method: str = "POST", **headers: str) -> Answer:
        """Send a request with any body and return the response."""
        await self.begin(body, target, method, **headers)
        return await self.answer()

    async def begin(self, body: bytes = b"[]", target: str = "/nq", method: str = "POST", **headers: str) -> None:
        """Send a request without waiting for the response."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, local_addr=(self._address, 0)
            )
        known_name = {"NQ-Peer": self.peer} if self.peer else {}
        lines = {"Host": "localhost", "Content-Length": str(len(body)), **known_name, **self.headers, **headers}
        head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())
        self._writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    async def answer(self) -> Answer:
        """Return the next response."""
        assert self._reader is not None
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE)).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        body = await asyncio.wait_for(self._reader.readexactly(int(headers["content-length"])), PATIENCE)
        return Answer(int(first.split()[1]), headers, body)

    async def until(self, key: str, *messages: Message, wait: float = 5.0) -> Message:
        """Post messages, then poll until a message with this key arrives; other messages are ignored."""
        sent = await self.post(*messages, wait=wait)
        while not (result := [item for item in sent if key in item]):
            sent = await self.post(wait=wait)
        return result[0]

    async def outcome(self, r: str, *messages: Message, wait: float = 5.0) -> Message:
        """Post messages, then poll until a request has its answer or error."""
        sent = await self.post(*messages, wait=wait)
        while not (result := [item for item in sent if item.get("i") == r and ("d" in item or "e" in item)]):
            sent = await self.post(wait=wait)
        return result[0]

    def cut(self) -> None:
        """Cut the connection without a goodbye."""
        if self._writer is not None:
            # Without this, the hub would only see the end of requests.
            self._writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
        self._reader = self._writer = None


@asynccontextmanager
async def posters(port: int, count: int = 1, **headers: str) -> AsyncIterator[list[Poster]]:
    """Yield peers over HTTP and close their connections at the end."""
    created = [Poster(port, **headers) for _ in range(count)]
    try:
        yield created
    finally:
        for item in created:
            await item.close()


class Linked:
    """An NQ peer over WebSocket."""

    def __init__(self, wire: WirePeer, peer: str) -> None:
        self.wire = wire
        self.peer = peer
        self._heard: list[Message] = []

    def say(self, *messages: Message) -> None:
        """Send messages in one packet."""
        self.wire.text(packed(*messages).decode())

    async def hear(self) -> Message:
        """Return the next message."""
        while not self._heard:
            self._heard = unpacked((await self.wire.heard()).encode())
        return self._heard.pop(0)

    async def until(self, key: str) -> Message:
        """Return the next message with this key."""
        while key not in (message := await self.hear()):
            pass
        return message

    def cut(self) -> None:
        """Cut the connection without a goodbye."""
        self.wire.leave()


async def linked(place: Place, peer: str = "", **headers: str) -> Linked:
    """Connect or reconnect over WebSocket; the hub sends the id first."""
    wire = await place.peer(f"/nq?peer={peer}" if peer else "/nq", **headers)
    created = Linked(wire, "")
    note = await created.hear()
    assert (note["e"]["type"], note["e"]["note"], note["e"].get("fatal", False)) == ("sys", "peer", False)
    created.peer = note["e"]["args"][0]
    return created


def packed(*messages: Message) -> bytes:
    """Return a message or a batch."""
    return json.dumps(messages[0] if len(messages) == 1 else messages).encode()


def unpacked(data: bytes) -> list[Message]:
    """Return all messages of a packet."""
    received = json.loads(data)
    return received if isinstance(received, list) else [received]


def ask(r: str, target: str = "hub-echo", data: object = None, **keys: object) -> Message:
    """Return a request."""
    return {"t": target, "r": r, "d": data, **keys}


async def served(place: Place, name: str = "work") -> WirePeer:
    """Return a UMQ peer that registered a method."""
    callee = await place.umq()
    callee.text(f"M1\nhub:register\n{name}")
    assert await callee.heard() == "R1\nnull"
    return callee
