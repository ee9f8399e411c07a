"""Announced attachments that do not arrive: each fails alone, and its memory is released."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from picows import WSMsgType

from fiveways.settings.limits import LimitSettings
from tests.support.raw_peers import Place, WirePeer, hub, settings
from tests.support.waiting import until

DAY = 86400.0
DELAYED = "timed out: it delayed attachments of other senders"
TOO_SLOW = "timed out: slower than 1048576 bytes a second"
PATIENT = LimitSettings(attachment_timeout=DAY, max_attachment_time=DAY, max_attachment_hold=0.3)
"""Seconds; a stalled attachment fails early only if it delays others."""


async def callee_of(place: Place) -> WirePeer:
    """A UMQ peer with the method `store`."""
    callee = await place.umq()
    callee.text("M1\nhub:register\nstore")
    assert await callee.heard() == "R1\nnull"
    return callee


@asynccontextmanager
async def send_slowly(peer: WirePeer, size: int) -> AsyncIterator[None]:
    """Send fragments of a binary message without end."""

    async def send_fragments() -> None:
        while True:
            peer.ws.send(WSMsgType.CONTINUATION, b"x" * size, fin=False)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(send_fragments())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("dialect", ["umq", "umq36"])
def test_stalled_source_fails_before_its_timeout_delays_others(dialect: str) -> None:
    async def run() -> None:
        async with hub(settings(limits=PATIENT)) as place:
            callee, other = await callee_of(place), await place.umq()
            if dialect == "umq":
                stalled = await place.umq()
                stalled.text("A2\nM1\nstore\nfirst")
            else:
                stalled = await place.umq36()
                stalled.text('A2:C1:["store","first"]')
            assert await callee.heard() == "A2\nM1\nstore\nfirst"
            other.text("A1\nM1\nstore\nsecond")
            other.binary(b"two")
            assert await callee.heard() == "A1\nM2\nstore\nsecond"
            assert [await callee.heard(), await callee.heard()] == [f"-\n{DELAYED}"] * 2
            assert await callee.data() == b"two"
            callee.text("R2\nthanks")
            assert await other.heard() == "R1\nthanks"
            # The session with the stalled source continues: late frames are dropped, the next one is the next
            # attachment.
            for data in (b"late", b"late", b"three"):
                if data == b"three":
                    stalled.text("A1\nM2\nstore\nthird" if dialect == "umq" else 'A1:C2:["store","third"]')
                stalled.binary(data)
            assert [await callee.heard(), await callee.data()] == ["A1\nM3\nstore\nthird", b"three"]

    asyncio.run(run())


def test_slow_source_fails_before_it_delays_others() -> None:
    async def run() -> None:
        async with hub(settings(limits=PATIENT)) as place:
            callee, trickler, other = await callee_of(place), await place.umq(), await place.umq()
            trickler.text("A1\nM1\nstore\nfirst")
            assert await callee.heard() == "A1\nM1\nstore\nfirst"
            trickler.ws.send(WSMsgType.BINARY, b"x", fin=False)
            async with send_slowly(trickler, 1):
                other.text("A1\nM1\nstore\nsecond")
                other.binary(b"two")
                assert await callee.heard() == "A1\nM2\nstore\nsecond"
                assert await callee.heard() == f"-\n{DELAYED}"
                assert await callee.data() == b"two"

    asyncio.run(run())


def test_source_that_has_not_caught_up_does_not_delay_others_again() -> None:
    async def run() -> None:
        async with hub(settings(limits=PATIENT)) as place:
            callee, stalled, other = await callee_of(place), await place.umq(), await place.umq()
            for number in range(1, 6, 2):
                stalled.text(f"A1\nM{number}\nstore\n")
                assert await callee.heard() == f"A1\nM{number}\nstore\n"
                other.text(f"A1\nM{number}\nstore\n")
                other.binary(b"data")
                assert await callee.heard() == f"A1\nM{number + 1}\nstore\n"
                assert await callee.heard() == f"-\n{DELAYED}"
                assert await callee.data() == b"data"

    asyncio.run(run())


def test_incomplete_event_does_not_delay_other_publishers() -> None:
    async def run() -> None:
        async with hub(settings(limits=PATIENT)) as place:
            subscriber, stalled, other = await place.lrpm(), await place.umq(), await place.umq()
            subscriber.text('[63,1,"news.*",{}]')
            assert (await subscriber.heard()).startswith("[64,1,")
            stalled.text("A1\nM1\nhub:publish\nnews.a\n1")
            assert (await stalled.heard()).startswith("R1\n")
            other.text("M1\nhub:publish\nnews.b\n2")
            first, second = await subscriber.heard(), await subscriber.heard()
            assert "news.a" in first
            assert DELAYED in first
            assert "news.b" in second

    asyncio.run(run())


def test_attachment_below_the_minimum_rate_fails_and_its_bytes_are_released() -> None:
    async def run() -> None:
        limits = LimitSettings(attachment_timeout=3.0, min_attachment_rate=1 << 20)
        async with hub(settings(limits=limits)) as place:
            callee, trickler = await callee_of(place), await place.umq()
            spools = place.server._spools
            trickler.text("A1\nM1\nstore\n")
            assert await callee.heard() == "A1\nM1\nstore\n"
            trickler.ws.send(WSMsgType.BINARY, b"x" * 1_200_000, fin=False)
            await until(lambda: spools.used == 1_200_000)
            async with send_slowly(trickler, 20_000):
                assert await callee.heard() == f"-\n{TOO_SLOW}"
                await until(lambda: spools.used == 0)
                await asyncio.sleep(0.3)
                assert spools.used == 0
            trickler.ws.send(WSMsgType.CONTINUATION, b"end", fin=True)
            trickler.text("A1\nM2\nstore\n")
            trickler.binary(b"next")
            assert [await callee.heard(), await callee.data()] == ["A1\nM2\nstore\n", b"next"]

    asyncio.run(run())


def test_fragments_in_memory_of_a_stalled_attachment_are_released() -> None:
    async def run() -> None:
        async with hub(settings(limits=LimitSettings(attachment_timeout=0.5))) as place:
            callee, stalled = await callee_of(place), await place.umq()
            unfinished = place.server._port.unfinished
            stalled.text("A1\nM1\nstore\n")
            assert await callee.heard() == "A1\nM1\nstore\n"
            stalled.ws.send(WSMsgType.BINARY, b"x" * 5000, fin=False)
            await until(lambda: unfinished.held == 5000)
            assert await callee.heard() == "-\ntimed out"
            assert unfinished.held == 0

    asyncio.run(run())


def test_slow_large_frame_counts_as_progress() -> None:
    """The frame takes longer than attachments may delay others; its bytes show progress."""

    async def run() -> None:
        hold, size, pieces = 3.0, 600_000, 15
        limits = LimitSettings(max_attachment_hold=hold, min_attachment_rate=1)
        async with hub(settings(limits=limits)) as place:
            callee, slow, other = await callee_of(place), await place.umq(), await place.umq()
            slow.text("A1\nM1\nstore\n")
            assert await callee.heard() == "A1\nM1\nstore\n"
            socket = slow.ws.underlying_transport
            # One binary frame; a mask of zeros does not change its bytes.
            socket.write(b"\x82\xff" + struct.pack("!Q", size) + b"\0\0\0\0")
            for number in range(pieces):
                socket.write(bytes([number]) * (size // pieces))
                if number == 0:
                    other.text("A1\nM1\nstore\n")
                    other.binary(b"two")
                await asyncio.sleep(1.5 * hold / pieces)
            assert await callee.heard() == "A1\nM2\nstore\n"
            assert len(await callee.data()) == size
            assert await callee.data() == b"two"

    asyncio.run(run())
