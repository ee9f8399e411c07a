"""Attacks that come and go: sessions, upgrades, POSTs without an id, long polls."""

import asyncio
from contextlib import suppress
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import answer, asked, connected, post, repeat, upgraded
from chaos.attacks.raw_sockets import umq as opened

_POLL: Final = post(b"[]", "/nq?wait=60")


async def _sessions(place: AttackRun) -> None:
    """Connect, say hello, close."""

    async def come_and_go(_: int) -> None:
        (await opened(place.port)).reset()

    place.failed = await repeat(place.actions, come_and_go, place.count)
    await place.settle()


async def _upgrades(place: AttackRun) -> None:
    """Upgrade to WebSocket and close, without a token."""

    async def come_and_go(_: int) -> None:
        (await upgraded(place.port, "/lrpm")).reset()

    place.failed = await repeat(place.actions, come_and_go, place.count)
    place.hold()
    await place.settle()


async def _posts(place: AttackRun) -> None:
    """POST without a cookie over one connection: each begins a session."""
    wire = await connected(place.port)
    place.ends.append(wire.reset)
    batch, request = 100, post(b"[]")
    while place.done + place.failed < place.actions:
        wire.writer.write(request * batch)
        for _ in range(batch):
            status, _, _ = await answer(wire)
            place.done += status == 200
            place.failed += status != 200
    place.hold()
    ready = await asked(place.port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.8")
    others = [(await asked(place.port, post(b"[]"), "127.0.0.8"))[0] for _ in range(20)]
    place.notes.append(f"/readyz {ready[0]}, other peers {others.count(200)} of 20 admitted")


async def _polls(place: AttackRun) -> None:
    """Open long polls and close them; is the hub alive?"""

    async def poll(_: int) -> None:
        wire = await connected(place.port)
        wire.writer.write(_POLL)
        await wire.writer.drain()
        wire.writer.close()
        with suppress(OSError):
            await wire.writer.wait_closed()

    place.failed = await repeat(place.actions, poll, place.count)
    place.hold()
    checks: list[str] = []
    for _ in range(5):
        try:
            async with asyncio.timeout(5):
                status, _, _ = await asked(place.port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.8")
                checks.append(str(status))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            checks.append(type(exc).__name__)
    place.notes.append(f"/livez {' '.join(checks)}, connections held {place.descriptors}")


async def _silent(place: AttackRun) -> None:
    """Open connections that say nothing, and keep them: as many as the system allows one process."""

    async def open_one(_: int) -> None:
        place.ends.append((await connected(place.port)).reset)

    place.failed = await repeat(place.actions, open_one, place.count)
    await place.settle()


ATTACKS: Final = {
    "sessions": Attack(_sessions, 150_000, 600),
    "upgrades": Attack(_upgrades, 30_000, has_token=True),
    "posts": Attack(_posts, 100_000),
    "polls": Attack(_polls, 20_800),
    "silent": Attack(_silent, 15_000),
}
