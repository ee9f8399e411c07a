"""RFC 6455 on the wire: reserved bits, invalid UTF-8, and close reasons of silent peers."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha1

import pytest

from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret
from fiveways.transports.base import Receiver
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from tests.support.raw_http import HANDSHAKE
from tests.support.raw_peers import PATIENCE, hub, settings

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HELLOS = {"/umq": b"H1.0.0\n", "/umq36": b"H1:", "/lrpm": b"[2,null,{}]", "/nq": b"[]"}
SPOILT = {
    "/umq": [b"M1\nhub:echo\n\xff", b"M\xff\nhub:echo\n1", b"\xff", b"Sname\n\xed\xa0\x80"],
    "/umq36": [b'C1:["hub.echo","\xff"]', b"\xff", b"S:a=\xc0\x80"],
    "/lrpm": [b'[40,256,"hub.echo","\xff",{}]', b'[61,256,"t","\xf5",{}]', b"\xff"],
    "/nq": [b'{"t":"hub-echo","r":"1","d":"\xff"}', b'[{"t":"hub-echo","r":"2","d":"\xff"}]', b"\xff"],
}


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """A frame; a mask of zeros does not change its bytes."""
    first = bytes(((0x80 if fin else 0) | rsv << 4 | opcode, (0x80 if masked else 0) | len(payload)))
    return first + (bytes(4) if masked else b"") + payload


class Wire:
    """One end of a WebSocket after its handshake, which writes and reads raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def read(self) -> tuple[int, bytes]:
        """Return the next frame: opcode and payload."""
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8))
        mask = await self._reader.readexactly(4) if second & 0x80 else bytes(4)
        data = await self._reader.readexactly(size)
        return first & 0xF, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))

    async def closed(self) -> tuple[int, str, list[bytes]]:
        """Return code and reason of the close frame, and the payloads before it."""
        before: list[bytes] = []
        while (got := await asyncio.wait_for(self.read(), PATIENCE))[0] != CLOSE:
            before.append(got[1])
        return int.from_bytes(got[1][:2]), got[1][2:].decode(), before


@asynccontextmanager
async def wired(port: int, path: str, hello: bytes | None = None, headers: bytes = b"") -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        request = HANDSHAKE.replace(b"/ws?a=b", path.encode())
        writer.write(request.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        wire = Wire(reader, writer)
        if hello is not None:
            writer.write(frame(hello))
            await asyncio.wait_for(wire.read(), PATIENCE)
        yield wire
    finally:
        writer.close()


@pytest.mark.parametrize("opcode", [TEXT, BINARY, CLOSE, PING, PONG])
@pytest.mark.parametrize("path", list(HELLOS))
def test_reserved_bits_fail_the_connection_with_1002(path: str, opcode: int) -> None:
    async def run() -> None:
        async with hub() as place:
            for rsv in (1, 2, 4, 7):
                for hello in (HELLOS[path], None):
                    async with wired(place.port, path, hello) as wire:
                        payload = b"\x03\xe8" if opcode == CLOSE else HELLOS[path]
                        wire.writer.write(frame(payload, opcode, rsv=rsv))
                        assert (await wire.closed())[0] == 1002

    asyncio.run(run())


def test_reserved_bits_of_a_later_fragment_fail_the_connection() -> None:
    async def run() -> None:
        async with hub() as place, wired(place.port, "/umq", HELLOS["/umq"]) as wire:
            wire.writer.write(frame(b"M1\nhub:ping\n", fin=False) + frame(b"1", 0, rsv=4))
            assert (await wire.closed())[0] == 1002

    asyncio.run(run())


@pytest.mark.parametrize("path", list(HELLOS))
def test_invalid_utf8_text_closes_with_1007(path: str) -> None:
    async def run() -> None:
        async with hub() as place:
            for text in SPOILT[path]:
                for hello in (HELLOS[path], None):
                    pieces = [[text], [text[:1], text[1:]], [*(text[at : at + 1] for at in range(len(text)))]]
                    for parts in pieces:
                        async with wired(place.port, path, hello) as wire:
                            for number, part in enumerate(parts):
                                last = number == len(parts) - 1
                                wire.writer.write(frame(part, TEXT if number == 0 else 0, fin=last))
                            code, reason, _ = await wire.closed()
                            assert (code, reason) == (1007, "a text is not valid UTF-8"), (text, parts)

    asyncio.run(run())


def test_character_split_over_two_fragments_is_valid() -> None:
    async def run() -> None:
        async with hub() as place, wired(place.port, "/umq", HELLOS["/umq"]) as wire:
            text = "M1\nhub:echo\n\u00fc\U0001f600".encode()
            for at in range(12, len(text)):
                wire.writer.write(frame(text[:at], fin=False) + frame(text[at:], 0))
                assert await asyncio.wait_for(wire.read(), PATIENCE) == (TEXT, b"R1\n" + text[12:])

    asyncio.run(run())


def test_invalid_utf8_close_reason_closes_with_1007() -> None:
    async def run() -> None:
        async with hub() as place:
            for path, hello in HELLOS.items():
                async with wired(place.port, path, hello) as wire:
                    wire.writer.write(frame(b"\x03\xe8\xff", CLOSE))
                    assert (await wire.closed())[0] == 1007

    asyncio.run(run())


class _Heard:
    """Records the calls of a client's link."""

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(self, packet: Packet) -> None:
        self.packets.append(packet)

    def progressed(self, size: int) -> bool:
        return True

    def writable(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.ended.set_result(reason)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(b"\xff", masked=False), 1007),
        (frame(b"a", fin=False, masked=False) + frame(b"\xc3", 0, masked=False), 1007),
        (frame(b"\x03\xe8\xff", CLOSE, masked=False), 1007),
        (frame(b"R1\n", rsv=4, masked=False), 1002),
        (frame(b"", PING, rsv=1, masked=False), 1002),
    ],
)
def test_client_closes_with_the_same_codes(sent: bytes, code: int) -> None:
    async def run() -> None:
        closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            key = request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
            accept = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())  # noqa: S324  RFC 6455
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
            writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + sent)
            closed.set_result((await Wire(reader, writer).closed())[0])
            writer.close()

        receiver = _Heard()

        def receive(_link: object) -> Receiver:
            return receiver

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            link = await open_websocket(f"ws://127.0.0.1:{port}/", receive, limits=Limits())
            assert await asyncio.wait_for(closed, PATIENCE) == code
            link.abort()
            await asyncio.wait_for(receiver.ended, PATIENCE)
            assert receiver.packets == []

    asyncio.run(run())


LATE = "login timed out: the hub got no valid credentials in time"


@pytest.mark.parametrize(
    ("path", "subprotocol", "word"),
    [
        ("/umq", "", f"E\n12 {LATE}".encode()),
        ("/umq36", "", f"F0:1 {LATE}".encode()),
        ("/lrpm", "", f'[1,".err.auth",{{"text":"{LATE}"}}]'.encode()),
        ("/lrpm", "lrpm.cbor", None),
    ],
)
def test_peer_without_hello_gets_a_close_reason(path: str, subprotocol: str, word: bytes | None) -> None:
    async def run() -> None:
        async with hub(settings(auth=AuthSettings(login_timeout=0.2))) as place:
            headers = f"Sec-WebSocket-Protocol: {subprotocol}\r\n".encode() if subprotocol else b""
            async with wired(place.port, path, headers=headers) as wire:
                code, reason, before = await wire.closed()
                assert (code, reason) == (1008, LATE)
                assert len(before) == 1
                assert LATE.encode() in before[0] if word is None else before == [word]

    asyncio.run(run())


@pytest.mark.parametrize(("path", "word"), [("/umq", b"E\n12 "), ("/umq36", b"F0:1 "), ("/nq", b"denied")])
def test_unauthenticated_peer_gets_a_close_reason(path: str, word: bytes) -> None:
    identity = IdentitySettings(name="ann", token=Secret("t" * 20))
    auth = AuthSettings(anonymous="never", login_timeout=0.2, identity=(identity,))

    async def run() -> None:
        async with hub(settings(auth=auth)) as place, wired(place.port, path, HELLOS[path]) as wire:
            code, reason, before = await wire.closed()
            assert (code, reason) == (1008, LATE)
            assert word in before[-1]
            assert LATE.encode() in before[-1]

    asyncio.run(run())
