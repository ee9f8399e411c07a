"""Attacks by short-lived peers: sessions, upgrades, POSTs without an id, long polls."""

import asyncio
from contextlib import suppress
from typing import Final

from chaos.attacks.attack_run import Attack, AttackRun
from chaos.attacks.raw_sockets import answer, connect, post, repeat, request_once, upgrade
from chaos.attacks.raw_sockets import umq as open_umq

_POLL: Final = post(b"[]", "/nq?wait=60")


async def _sessions(attack_run: AttackRun) -> None:
    """Connect, perform the handshake, close."""

    async def come_and_go(_: int) -> None:
        (await open_umq(attack_run.port)).reset()

    attack_run.failed = await repeat(attack_run.actions, come_and_go, attack_run.count)
    await attack_run.settle()


async def _upgrades(attack_run: AttackRun) -> None:
    """Upgrade to WebSocket and close, without a token."""

    async def come_and_go(_: int) -> None:
        (await upgrade(attack_run.port, "/lrpm")).reset()

    attack_run.failed = await repeat(attack_run.actions, come_and_go, attack_run.count)
    attack_run.hold()
    await attack_run.settle()


async def _posts(attack_run: AttackRun) -> None:
    """Send POSTs without a cookie over one connection; each starts a session."""
    wire = await connect(attack_run.port)
    attack_run.ends.append(wire.reset)
    batch, request = 100, post(b"[]")
    while attack_run.done + attack_run.failed < attack_run.actions:
        wire.writer.write(request * batch)
        for _ in range(batch):
            status, _, _ = await answer(wire)
            attack_run.done += status == 200
            attack_run.failed += status != 200
    attack_run.hold()
    ready = await request_once(attack_run.port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.8")
    others = [(await request_once(attack_run.port, post(b"[]"), "127.0.0.8"))[0] for _ in range(20)]
    attack_run.notes.append(f"/readyz {ready[0]}, other peers {others.count(200)} of 20 admitted")


async def _polls(attack_run: AttackRun) -> None:
    """Start long polls and close them; then check that the hub still answers."""

    async def poll(_: int) -> None:
        wire = await connect(attack_run.port)
        wire.writer.write(_POLL)
        await wire.writer.drain()
        wire.writer.close()
        with suppress(OSError):
            await wire.writer.wait_closed()

    attack_run.failed = await repeat(attack_run.actions, poll, attack_run.count)
    attack_run.hold()
    checks: list[str] = []
    for _ in range(5):
        try:
            async with asyncio.timeout(5):
                status, _, _ = await request_once(
                    attack_run.port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.8"
                )
                checks.append(str(status))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            checks.append(type(exc).__name__)
    attack_run.notes.append(f"/livez {' '.join(checks)}, connections held {attack_run.descriptors}")


async def _silent(attack_run: AttackRun) -> None:
    """Open as many silent connections as the system allows one process, and keep them."""

    async def open_one(_: int) -> None:
        attack_run.ends.append((await connect(attack_run.port)).reset)

    attack_run.failed = await repeat(attack_run.actions, open_one, attack_run.count)
    await attack_run.settle()


ATTACKS: Final = {
    "sessions": Attack(_sessions, 150_000, 600),
    "upgrades": Attack(_upgrades, 30_000, has_token=True),
    "posts": Attack(_posts, 100_000),
    "polls": Attack(_polls, 20_800),
    "silent": Attack(_silent, 15_000),
}
