"""A hub process, and its memory, CPU time, descriptors and threads as /proc reports them."""

import asyncio
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_PATIENCE: Final = 60.0
_MIB: Final = 1 << 20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_URL: Final = re.compile(r"([a-z+-]+)://[^:]+:(\d+)")
_WRITER: Final = b"fiveways.journal"


def low_port() -> int:
    """Return a free port below the ephemeral range.

    The kernel could otherwise give the port to an outgoing connection while the hub is down, even to one that connects
    to itself.
    """
    while True:
        port = SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def serve(
    *arguments: str, log: Path, prefix: Sequence[str] = (), source: Path = ROOT / "src"
) -> tuple[Process, dict[str, int]]:
    """Run `fiveways serve` until it is ready; return its process and its ports by URL scheme.

    `prefix` is a command that runs it, such as `ip netns exec NAME`; `source` is a `src` folder, perhaps of another
    checkout.
    """
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *(sys.executable, "-m", "fiveways", "serve", *arguments),
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C must reach only this process, which then stops the hub
        )
    try:
        return process, await asyncio.wait_for(_ports(process, log), _PATIENCE)
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        raise


async def _ports(process: Process, log: Path) -> dict[str, int]:
    """Parse the printed URLs; an empty line ends them."""
    assert process.stdout is not None
    ports: dict[str, int] = {}
    while (line := await process.stdout.readline()).strip():
        if match := _URL.search(line.decode()):
            ports[match[1]] = int(match[2])
    assert line, f"the hub did not start: {_end_of(log)}"
    return ports


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


class HubProcess:
    """A hub process with chosen source, settings and log."""

    def __init__(
        self, settings: Sequence[str], log: Path, *, source: Path = ROOT / "src", arguments: Sequence[str] = ()
    ) -> None:
        """`settings` are `section.key=value`; `source` is a `src` folder, perhaps of another checkout."""
        self.ports: dict[str, int] = {}
        """Its ports, by URL scheme."""
        self._arguments = ["--port", "0", *arguments, *(part for setting in settings for part in ("--set", setting))]
        self._source = source
        self._log = log
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the hub and wait until it is ready."""
        self._process, self.ports = await serve(*self._arguments, log=self._log, source=self._source)

    @property
    def port(self) -> int:
        """The port for HTTP and WebSocket."""
        return self.ports["http"]

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    def reload(self) -> None:
        """Make the hub reload its configuration (SIGHUP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> int:
        """Terminate the hub gracefully, or kill it after a timeout; return its exit status."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.communicate(), _PATIENCE)
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()
        return self._process.returncode or 0

    def errors(self) -> list[str]:
        """Return the log lines at level error and the first lines of tracebacks."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or line.startswith("Traceback")]


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MIB


def peak(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    return _status(pid, "VmHWM:") / 1024


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    return _status(pid, "Threads:")


def descriptors(pid: int) -> int:
    """Return the number of open descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  20,000 Path objects would take long


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def cpu_milliseconds(pid: int) -> float:
    """Return the CPU time of all current threads of a process, with nanosecond resolution."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def journal_writer(pid: int) -> int | None:
    """Return the process id of the writer process of a hub."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if _WRITER in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    return None


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
