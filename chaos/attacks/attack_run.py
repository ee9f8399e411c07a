"""An attack, the hub under attack, and the healthy peer beside it."""

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
    """An attack: the number of actions at full size, and its time limit in seconds."""

    run: Callable[["AttackRun"], Awaitable[None]]
    actions: int
    limit: float = 300.0
    settings: tuple[str, ...] = ()
    has_token: bool = False
    """Whether the healthy peer has a token and the hub refuses anonymous peers."""


@dataclass
class AttackRun:
    """The hub of one attack, and the measurements."""

    hub: HubProcess
    actions: int
    """Number of actions to perform."""
    done: int = 0
    failed: int = 0
    rss: float = 0.0
    """Resident memory before the attack, in MiB."""
    held: float = 0.0
    """Resident memory in MiB while the attacker still has its connections after its last action."""
    descriptors: int = 0
    notes: list[str] = field(default_factory=list)
    ends: list[Callable[[], object]] = field(default_factory=list)
    """Functions that close the attacker's connections."""

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
        """Wait until the hub is idle, that is, uses less than 0.15 s CPU time in a second."""
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
        """Note the CPU time of the hub for an action, in milliseconds."""
        before = cpu_milliseconds(self.hub.pid)
        for _ in range(times):
            await action()
        spent = (cpu_milliseconds(self.hub.pid) - before) / times
        self.notes.append(f"{name}: {spent:.2f} ms CPU")
        return spent

    def peak(self) -> float:
        """Return the peak resident memory in MiB."""
        return peak(self.hub.pid)


class HealthyPeer:
    """The process of the healthy peer."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, port: int, token: str) -> "HealthyPeer":
        """Start the process and wait for its first ping."""
        command = (sys.executable, "-m", "chaos.attacks.healthy_peer", str(port), token)
        peer = cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT))
        async with asyncio.timeout(60):
            while not (await peer.report())["pings"]:  # noqa: ASYNC110  the process reports only on request
                await asyncio.sleep(0.1)
        return peer

    async def report(self) -> dict[str, Any]:
        """Return the measurements since the last report."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(30):
            report: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return report

    async def stop(self) -> None:
        """Kill the process."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()
