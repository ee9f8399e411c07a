"""Tests of the frame serializer with picows as parser."""

import asyncio

import pytest
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_connect, ws_create_server

from fiveways.transports import websocket_frames
from fiveways.wire.packet import Packet

SIZES = [0, 1, 3, 4, 5, 125, 126, 127, 65535, 65536, 70001]


class Collector(WSListener):
    """Listener that records frames and writes given bytes."""

    def __init__(self, to_write: bytes, expected: int) -> None:
        self.frames: list[tuple[int, bool, bytes]] = []
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._to_write = to_write
        self._expected = expected

    def on_ws_connected(self, transport: WSTransport) -> None:
        if self._to_write:
            transport.underlying_transport.write(self._to_write)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.frames.append((frame.msg_type.value, bool(frame.fin), frame.get_payload_as_bytes()))
        if len(self.frames) == self._expected:
            self.complete.set_result(None)


async def exchange(from_client: bytes, from_server: bytes, expected: int) -> list[tuple[int, bool, bytes]]:
    """Return the frames that picows parses at the other end."""
    server_side: list[Collector] = []

    def accept(_request: WSUpgradeRequest) -> Collector:
        server_side.append(Collector(from_server, expected if from_client else 0))
        return server_side[-1]

    server = await ws_create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Collector(from_client, expected if from_server else 0)
    transport, _ = await ws_connect(lambda: client, f"ws://127.0.0.1:{port}/")
    reader = client if from_server else server_side[0]
    await asyncio.wait_for(reader.complete, 60)
    transport.disconnect()
    server.close()
    return reader.frames


@pytest.mark.parametrize("opcode", [websocket_frames.TEXT, websocket_frames.BINARY])
def test_picows_parses_server_frames(opcode: int) -> None:
    payloads = [b"x" * size for size in SIZES]
    written = b"".join(websocket_frames.server_frame(payload, opcode) for payload in payloads)
    assert asyncio.run(exchange(b"", written, len(SIZES))) == [(opcode, True, payload) for payload in payloads]


@pytest.mark.parametrize("opcode", [websocket_frames.TEXT, websocket_frames.BINARY])
def test_picows_parses_masked_client_frames(opcode: int) -> None:
    payloads = [bytes(range(256)) * (size // 256 + 1) for size in SIZES]
    payloads = [payload[:size] for payload, size in zip(payloads, SIZES, strict=True)]
    written = b"".join(websocket_frames.client_frame(payload, opcode) for payload in payloads)
    if opcode == websocket_frames.TEXT:
        payloads += payloads
        written += websocket_frames.client_texts(payloads[: len(SIZES)])
    assert asyncio.run(exchange(written, b"", len(payloads))) == [(opcode, True, payload) for payload in payloads]


def test_picows_parses_fragments() -> None:
    written = b"".join(
        websocket_frames.server_frame(piece, websocket_frames.BINARY, first=piece == b"one", last=piece == b"three")
        for piece in (b"one", b"two", b"three")
    )
    assert asyncio.run(exchange(b"", written, 3)) == [(2, False, b"one"), (0, False, b"two"), (0, True, b"three")]


@pytest.mark.parametrize("size", SIZES)
def test_server_text_equals_server_frame(size: int) -> None:
    assert websocket_frames.server_text(b"x" * size) == websocket_frames.server_frame(
        b"x" * size, websocket_frames.TEXT
    )


def test_masks_differ() -> None:
    assert len({websocket_frames.client_frame(b"x", WSMsgType.TEXT.value) for _ in range(50)}) > 1
    together = websocket_frames.client_texts([b"same"] * 50)
    assert len({together[start : start + 10] for start in range(0, 500, 10)}) == 50


def test_server_frames_equals_concatenated_frames() -> None:
    packets = [Packet(b"x" * size, is_text) for size in [*SIZES, 1023, 1024] for is_text in (True, False)]
    opcodes = {True: websocket_frames.TEXT, False: websocket_frames.BINARY}
    expected = [websocket_frames.server_frame(packet.payload, opcodes[packet.is_text]) for packet in packets]
    assert websocket_frames.server_frames(packets) == b"".join(expected)
