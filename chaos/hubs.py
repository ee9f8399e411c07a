"""A hub in a process of its own that can be killed, and starts again on the same port with the same store."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_PATIENCE: Final = 30.0


class DyingHub:
    """The hub under test."""

    def __init__(self, store: Path, *flags: str) -> None:
        self.port = _free_port()
        self.zmq_port = _free_port()
        self.kills = 0
        self._store = store
        self._flags = flags
        self._process: Process | None = None

    async def start(self) -> None:
        """Run it until it is killed."""
        path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        command = (sys.executable, "-m", "fiveways", "serve", "--port", str(self.port))
        wanted = (f"store.path={self._store}", "log.level=error", "zmq.listen=true", f"zmq.port={self.zmq_port}")
        settings = (*(part for each in wanted for part in ("--set", each)), *self._flags)
        self._process = await asyncio.create_subprocess_exec(
            *command, *settings, env={**os.environ, "PYTHONPATH": path}, stdin=DEVNULL, stdout=PIPE, stderr=None
        )
        await asyncio.wait_for(self._until_ready(self._process), _PATIENCE)

    async def _until_ready(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if b"/readyz" in line:
                return
        raise AssertionError("the hub did not start")

    async def kill(self) -> None:
        """End it as a power cut would, but for what the system has in memory."""
        assert self._process is not None
        self._process.kill()
        await self._process.communicate()
        self.kills += 1

    def pause(self) -> None:
        """Let it stand still."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """End it in good order."""
        assert self._process is not None
        self._process.terminate()
        await asyncio.wait_for(self._process.communicate(), _PATIENCE)
        return self._process.returncode or 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
