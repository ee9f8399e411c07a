"""Attachments through a hub: in order, in time, and with bounded memory."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from fiveways.settings.limits import LimitSettings
from tests.support.hub_process import served
from tests.support.raw_peers import PATIENCE, Place, WirePeer, hub, settings

MIB = 1 << 20
IMPATIENT = LimitSettings(attachment_timeout=0.3)


async def callee_of(place: Place, name: str = "store") -> WirePeer:
    """A UMQ peer with a registered method."""
    callee = await place.umq()
    callee.text(f"M1\nhub:register\n{name}")
    assert await callee.heard() == "R1\nnull"
    return callee


def test_call_is_forwarded_before_its_attachments_arrive() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await callee_of(place), await place.umq()
            caller.text("A2\nM1\nstore\npictures")
            assert await callee.heard() == "A2\nM1\nstore\npictures"
            caller.binary(b"one")
            assert await callee.data() == b"one"
            caller.text("-\nno such file")
            assert await callee.heard() == "-\nno such file"
            callee.text("A1\nR1\nthanks")
            callee.binary(b"receipt")
            assert await caller.heard() == "A1\nR1\nthanks"
            assert await caller.data() == b"receipt"

    asyncio.run(run())


def test_call_to_lrpm_waits_for_its_attachments() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await place.lrpm(), await place.umq()
            callee.text('[40,300,"hub.register",{"name":"store"},{}]')
            await callee.heard()
            caller.text("A2\nM1\nstore\npictures")
            caller.binary(b"one")
            caller.text("-\nno such file")
            call = await callee.heard()
            assert '"attachments":["b25l",null]' in call
            assert "no such file" in call

    asyncio.run(run())


def test_lost_source_fails_its_open_attachments() -> None:
    async def run() -> None:
        async with hub() as place:
            callee, caller = await callee_of(place), await place.umq()
            caller.text("A3\nM1\nstore\n")
            caller.binary(b"one")
            assert [await callee.heard(), await callee.data()] == ["A3\nM1\nstore\n", b"one"]
            caller.leave()
            assert [(await callee.heard())[:2], (await callee.heard())[:2]] == ["-\n", "-\n"]

    asyncio.run(run())


def test_stalled_source_delays_others_no_longer_than_its_timeout() -> None:
    async def run() -> None:
        async with hub(settings(limits=IMPATIENT)) as place:
            callee, stalled, other = await callee_of(place), await place.umq(), await place.umq()
            stalled.text("A1\nM1\nstore\nfirst")
            assert await callee.heard() == "A1\nM1\nstore\nfirst"
            other.text("A1\nM1\nstore\nsecond")
            other.binary(b"two")
            assert await callee.heard() == "A1\nM2\nstore\nsecond"
            assert (await callee.heard()).startswith("-\n")
            assert await callee.data() == b"two"
            # The late frame is dropped, and shifts nothing.
            stalled.binary(b"one")
            stalled.text("A1\nM2\nstore\nthird")
            stalled.binary(b"three")
            assert [await callee.heard(), await callee.data()] == ["A1\nM3\nstore\nthird", b"three"]

    asyncio.run(run())


def test_attachment_with_progress_does_not_time_out() -> None:
    async def run() -> None:
        timeout = 1.5
        async with hub(settings(limits=LimitSettings(attachment_timeout=timeout))) as place:
            callee, caller = await callee_of(place), await place.umq()
            caller.text("A1\nM1\nstore\n")
            assert await callee.heard() == "A1\nM1\nstore\n"
            pieces = [os.urandom(20_000) for _ in range(6)]
            for number, piece in enumerate(pieces):
                kind = WSMsgType.BINARY if number == 0 else WSMsgType.CONTINUATION
                caller.ws.send(kind, piece, number == len(pieces) - 1)
                await asyncio.sleep(timeout / 5)
            assert await callee.data() == b"".join(pieces)

    asyncio.run(run())


def test_attachment_over_the_limit_fails_alone() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(max_attachment=3 * MIB))) as place:
            callee, caller = await callee_of(place), await place.umq()
            caller.text("A2\nM1\nstore\n")
            assert await callee.heard() == "A2\nM1\nstore\n"
            for number in range(4):
                kind = WSMsgType.BINARY if number == 0 else WSMsgType.CONTINUATION
                caller.ws.send(kind, b"x" * MIB, number == 3)
            caller.binary(b"small")
            assert (await callee.heard()).startswith("-\n")
            assert await callee.data() == b"small"

    asyncio.run(run())


class Sink(WSListener):
    """A UMQ peer with the method `store`, which keeps only digest and size of attachments."""

    def __init__(self) -> None:
        self.digest, self.size, self.messages = hashlib.sha256(), 0, 0
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.wanted = 0
        self.complete = asyncio.Event()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.ws = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.TEXT:
            self.texts.put_nowait(frame.get_payload_as_utf8_text())
            return
        data = frame.get_payload_as_memoryview()
        self.digest.update(data)
        self.size += len(data)
        self.messages += frame.fin
        if self.messages == self.wanted:
            self.complete.set()


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def send_attachments(caller: WirePeer, messages: int, pieces: int, piece: bytes) -> None:
    """Send attachments of this many fragments each, as fast as the socket accepts them."""
    socket = caller.ws.underlying_transport
    for _ in range(messages):
        for number in range(pieces):
            kind = WSMsgType.BINARY if number == 0 else WSMsgType.CONTINUATION
            caller.ws.send(kind, piece, number == pieces - 1)
            while socket.get_write_buffer_size() > 4 * MIB:  # noqa: ASYNC110  picows has no event for it
                await asyncio.sleep(0.001)


@pytest.mark.parametrize(("messages", "pieces"), [(1024, 1), (1, 256)], ids=["1024 of 1 MiB", "one of 256 MiB"])
def test_memory_stays_constant_during_large_transfers(messages: int, pieces: int) -> None:
    """A quarter GiB, or a whole one, passes in one call; the kernel reports the hub's maximum memory."""

    async def run() -> tuple[int, int]:
        # Even on a slow machine, the call must not time out before its attachments arrived.
        async with served("--set", "calls.timeout=300") as (process, port):
            sink = Sink()
            await ws_connect(lambda: sink, f"ws://127.0.0.1:{port}/umq", max_frame_size=1 << 28)
            for text in ("H1.0.0\n", "M1\nhub:register\nstore"):
                sink.ws.send(WSMsgType.TEXT, text.encode())
                await asyncio.wait_for(sink.texts.get(), PATIENCE)
            sink.wanted = messages
            caller = WirePeer()
            await ws_connect(lambda: caller, f"ws://127.0.0.1:{port}/umq")
            caller.text("H1.0.0\n")
            await caller.heard()
            before = resident(process.pid)
            maximum = before
            caller.text(f"A{messages}\nM1\nstore\n")
            piece = os.urandom(MIB)
            pouring = asyncio.create_task(send_attachments(caller, messages, pieces, piece))
            call = await asyncio.wait_for(sink.texts.get(), PATIENCE)
            while not sink.complete.is_set():
                maximum = max(maximum, resident(process.pid))
                assert sink.texts.empty(), sink.texts.get_nowait()
                await asyncio.sleep(0.02)
            await pouring
            answer = call.split("\n")[1].replace("M", "R") + "\n"
            sink.ws.send(WSMsgType.TEXT, answer.encode())
            assert await caller.heard() == "R1\n"
            assert sink.size == messages * pieces * MIB
            assert sink.digest.digest() == hashlib.sha256(piece * (messages * pieces)).digest()
            return before, maximum

    before, maximum = asyncio.run(asyncio.wait_for(run(), 300))
    assert maximum - before < 48 * MIB, f"{(maximum - before) / MIB:.0f} MiB more than before"
