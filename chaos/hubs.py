"""A hub process that can be killed and restarted with the same port and store."""

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from chaos.processes import low_port, serve

_PATIENCE: Final = 30.0


@dataclass
class HubLifetime:
    """Lifetime of one hub process, in monotonic time."""

    started: float
    killed: float = inf


class HubAddress:
    """The address of a hub, and the lifetimes of its processes."""

    def __init__(self, host: str, port: int, zmq_port: int) -> None:
        self.host = host
        self.port = port
        self.zmq_port = zmq_port
        self.lives: list[HubLifetime] = []

    def load(self, in_flight: int) -> int:
        """Return the number of requests to keep pending.

        It is a tenth in every second process, which leaves CPU time to the other participants.
        """
        return in_flight if len(self.lives) % 2 == 0 else max(1, in_flight // 10)


class KillableHub(HubAddress):
    """Hub under test.

    Args:
        store: The file of the store.
        flags: Further arguments of `fiveways serve`.
        host: The address that it listens on.
        prefix: A command that runs it, such as `ip netns exec NAME`.
    """

    def __init__(self, store: Path, *flags: str, host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        super().__init__(host, low_port(), low_port())
        self.kills = 0
        self.log = store.with_name("hub.log")
        """The log of the hub, level error."""
        self._store = store
        self._flags = flags
        self._prefix = prefix
        self._process: Process | None = None
        self.ready = asyncio.Event()
        """Set while the hub runs and handles signals."""

    async def start(self) -> None:
        """Start the hub and wait until it is ready."""
        options = (f"store.path={self._store}", "log.level=error", "zmq.listen=true", f"zmq.port={self.zmq_port}")
        settings = (part for option in options for part in ("--set", option))
        self.lives.append(HubLifetime(monotonic()))
        arguments = ("--host", self.host, "--port", str(self.port), *settings, *self._flags)
        self._process, _ = await serve(*arguments, log=self.log, prefix=self._prefix)
        self.ready.set()

    async def kill(self) -> None:
        """Kill the process (SIGKILL); unlike a power cut, data in the page cache survives."""
        assert self._process is not None
        self.ready.clear()
        self.lives[-1].killed = monotonic()
        self._process.kill()
        await self._process.communicate()
        self.kills += 1

    def reload(self) -> bool:
        """Send SIGHUP; return whether the hub was running and ready."""
        if self._process is None or not self.ready.is_set():
            return False
        self._process.send_signal(signal.SIGHUP)
        return True

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process (SIGCONT)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Terminate the hub gracefully."""
        assert self._process is not None
        self.ready.clear()
        self._process.terminate()
        await asyncio.wait_for(self._process.communicate(), _PATIENCE)
        return self._process.returncode or 0

    async def abandon(self) -> None:
        """Kill the hub if it still runs."""
        self.ready.clear()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()
