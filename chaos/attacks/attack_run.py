"""An attack, and the hub that it is made on."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.processes import ROOT, HubProcess, cpu_milliseconds, cpu_seconds, descriptors, peak, resident

TOKEN: Final = "token-of-healthy-peers-0123456789"  # noqa: S105  for a hub on this machine alone


@dataclass(frozen=True)
class Attack:
    """One attack: how often its action is repeated at full size, and in how many seconds it must end."""

    run: Callable[["AttackRun"], Awaitable[None]]
    actions: int
    limit: float = 300.0
    settings: tuple[str, ...] = ()
    has_token: bool = False
    """Whether the healthy peer shows a token, and strangers are not admitted."""


@dataclass
class AttackRun:
    """The hub of one attack, and what was measured."""

    hub: HubProcess
    actions: int
    """How often the action is to be repeated."""
    done: int = 0
    failed: int = 0
    rss: float = 0.0
    """MiB before the attack."""
    held: float = 0.0
    """MiB when the attacker has done all, and still has its connections."""
    descriptors: int = 0
    notes: list[str] = field(default_factory=list)
    ends: list[Callable[[], object]] = field(default_factory=list)
    """How the attacker's connections are closed."""

    @property
    def port(self) -> int:
        """The hub's port."""
        return self.hub.port

    def count(self) -> None:
        """Count an action."""
        self.done += 1

    def hold(self) -> None:
        """Measure the hub at the moment when the attacker holds most."""
        self.held = max(self.held, resident(self.hub.pid))
        self.descriptors = max(self.descriptors, descriptors(self.hub.pid))

    async def settle(self) -> None:
        """Wait until the hub has no more to do: until it uses little CPU time for a second."""
        used = cpu_seconds(self.hub.pid)
        for _ in range(60):
            self.hold()
            await asyncio.sleep(1)
            now = cpu_seconds(self.hub.pid)
            if now - used < 0.15:
                break
            used = now
        self.hold()

    async def cost(self, name: str, times: int, action: Callable[[], Awaitable[object]]) -> float:
        """Note the CPU time that the hub needs for an action, in milliseconds."""
        before = cpu_milliseconds(self.hub.pid)
        for _ in range(times):
            await action()
        spent = (cpu_milliseconds(self.hub.pid) - before) / times
        self.notes.append(f"{name}: {spent:.2f} ms CPU")
        return spent

    def peak(self) -> float:
        """Return the largest resident memory so far, in MiB."""
        return peak(self.hub.pid)


class HealthyPeer:
    """The healthy peer's process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, port: int, token: str) -> "HealthyPeer":
        """Run it, and wait until it pings."""
        command = (sys.executable, "-m", "chaos.attacks.healthy_peer", str(port), token)
        made = cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT))
        async with asyncio.timeout(60):
            while not (await made.report())["pings"]:  # noqa: ASYNC110  it tells only what it is asked
                await asyncio.sleep(0.1)
        return made

    async def report(self) -> dict[str, Any]:
        """Return what it has measured since the last report."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(30):
            told: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return told

    async def stop(self) -> None:
        """End it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()
