"""A hub in a process of its own, and readings of its memory, CPU time, descriptors and threads from /proc."""

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


def lasting_port() -> int:
    """Return a free port below those that systems give to outgoing connections.

    A client could otherwise get the port while the hub is away, even by connecting to itself.
    """
    while True:
        port = SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def serve(
    *arguments: str, log: Path, prefix: Sequence[str] = (), source: Path = ROOT / "src"
) -> tuple[Process, dict[str, int]]:
    """Run `fiveways serve` until it is ready; return its process, and its ports by the scheme of their URLs.

    `prefix` is a command that runs it, such as `ip netns exec NAME`; `source` may be the `src` of another checkout.
    """
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *(sys.executable, "-m", "fiveways", "serve", *arguments),
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the hub
        )
    try:
        return process, await asyncio.wait_for(_ports(process, log), _PATIENCE)
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        raise


async def _ports(process: Process, log: Path) -> dict[str, int]:
    """Read the list of URLs, which ends with an empty line."""
    assert process.stdout is not None
    ports: dict[str, int] = {}
    while (line := await process.stdout.readline()).strip():
        if found := _URL.search(line.decode()):
            ports[found[1]] = int(found[2])
    assert line, f"the hub did not start: {_end_of(log)}"
    return ports


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


class HubProcess:
    """A hub whose source, settings and log are given."""

    def __init__(
        self, settings: Sequence[str], log: Path, *, source: Path = ROOT / "src", arguments: Sequence[str] = ()
    ) -> None:
        """`settings` are `section.key=value`; `source` may be the `src` of another checkout."""
        self.ports: dict[str, int] = {}
        """Where it listens, by the scheme of the URL."""
        self._arguments = ["--port", "0", *arguments, *(part for each in settings for part in ("--set", each))]
        self._source = source
        self._log = log
        self._process: Process | None = None

    async def start(self) -> None:
        """Run it until it is ready."""
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
        """Whether it runs."""
        return self._process is not None and self._process.returncode is None

    def reload(self) -> None:
        """Make it read its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> int:
        """End it in good order, or kill it after a while; return its exit status."""
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
        """Return the lines of the log at level error, and of tracebacks."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or line.startswith("Traceback")]


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MIB


def peak(pid: int) -> float:
    """Return the largest resident memory that a process has had, in MiB."""
    return _status(pid, "VmHWM:") / 1024


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return _status(pid, "Threads:")


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  a path for each of 20,000 would take long


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def cpu_milliseconds(pid: int) -> float:
    """Return the CPU time of all threads that a process has now, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def journal_writer(pid: int) -> int | None:
    """Return the process id of a hub's journal writer."""
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
