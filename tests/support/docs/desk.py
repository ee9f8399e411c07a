"""A desk at which a page is followed: a scratch directory, the commands that a reader has, ports of its own.

Commands run in a shell, each in a process group of its own. What goes on by itself (a hub, a subscriber) goes on until
somebody ends it, or until the desk is cleared.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from tests.support.paths import ROOT

PATIENCE = 300.0
"""Seconds after which something hangs. No test depends on them otherwise."""
_STEP = 0.02
_PORTS = range(20_000, 32_000)
_FIVEWAYS = "import sys\nfrom fiveways.cli import main\nsys.exit(main())\n"
_PROTOC = """import sys
from grpc_tools.protoc import entrypoint

if not any(each.startswith(("-I", "--proto_path")) for each in sys.argv):
    sys.argv.append("--proto_path=.")  # as protoc does by itself, and this one does not
sys.exit(entrypoint())
"""
_PROGRAMS = {"fiveways": _FIVEWAYS, "protoc": _PROTOC}


class Ended(NamedTuple):
    """What became of a command: its exit code, and what a terminal would have shown."""

    code: int
    shown: str


class Running:
    """A command that goes on."""

    def __init__(self, command: str, process: "subprocess.Popen[bytes]", file: Path) -> None:
        self.command = command
        self.process = process
        self._file = file

    @property
    def shown(self) -> str:
        """What it has said so far."""
        return self._file.read_text(encoding="utf-8", errors="replace")

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Type Ctrl-C, or worse; return its exit code."""
        if not self.is_over:
            os.killpg(self.process.pid, number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


class Desk:
    """Where one page is followed."""

    def __init__(self, folder: Path, ports: Mapping[str, str]) -> None:
        """Lay out a directory.

        Args:
            folder: it is empty.
            ports: for each port that the docs name, the one that stands for it here.
        """
        self.folder = folder
        self.ports = ports
        self.running: list[Running] = []
        self._groups: list[int] = []
        self._logs = folder / ".shown"
        self._logs.mkdir()
        self._programs = folder / ".venv" / "bin"
        self._programs.mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            self._put(name, f"#!{sys.executable}\n{text}")
        for name in ("python", "python3"):
            self._put(name, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for name in ("examples", "src"):
            (folder / name).symlink_to(ROOT / name)

    def _put(self, name: str, text: str) -> None:
        path = self._programs / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def here(self, text: str) -> str:
        """Return a text of the docs with the ports of this desk."""
        return _swapped(text, self.ports)

    def there(self, text: str) -> str:
        """Return what was shown here with the ports of the docs."""
        return _swapped(text, {ours: theirs for theirs, ours in self.ports.items()})

    def save(self, name: str, text: str) -> Path:
        """Put a file on the desk."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text), encoding="utf-8")
        return path

    def run(self, command: str) -> Ended:
        """Run a command to its end."""
        process = self._start(command, subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as exc:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{command} does not end; so far it shows {exc.output!r}") from exc
        return Ended(process.returncode, self.there(out.decode(errors="replace")))

    def start(self, command: str) -> Running:
        """Start a command that goes on; a hub takes the place of the one before."""
        if is_hub(command):
            self._end_hub_before(command)
        file = self._logs / f"{len(self._groups)}.log"
        with file.open("wb") as out:
            process = self._start(command, out.fileno(), serves=is_hub(command))
        running = Running(command, process, file)
        self.running.append(running)
        return running

    def _end_hub_before(self, command: str) -> None:
        port = _port_of(command)
        for each in [each for each in self.running if is_hub(each.command) and _port_of(each.command) == port]:
            self.running.remove(each)
            assert each.end() == 0, each.shown

    def _start(self, command: str, out: int, *, serves: bool = False) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(  # noqa: S603  our own docs
            ["/bin/bash", "-o", "pipefail", "-c", self.here(command)],
            cwd=self.folder,
            env=self._environment(serves=serves),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        return process

    def _environment(self, *, serves: bool) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("FIVEWAYS_")}
        ports = {"SERVER": "7500", "ZMQ": "7555", "MQTT": "1883"}
        set_ports = {f"FIVEWAYS_{section}_PORT": self.ports[port] for section, port in ports.items() if serves}
        return {
            **kept,
            **set_ports,
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{self.folder}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),  # a developer's saved contexts must not count
        }

    def clear(self) -> None:
        """End whatever still runs."""
        for each in reversed(self.running):
            each.end()
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


def until(condition: "Iterator[bool]") -> bool:
    """Wait until one of the answers is yes; say whether one was."""
    end = time.monotonic() + PATIENCE
    for is_so in condition:
        if is_so:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_STEP)
    return False


def is_hub(command: str) -> bool:
    """Say whether a command runs a hub."""
    return re.search(r"\bfiveways serve\b", command) is not None


def _port_of(command: str) -> str:
    found = re.search(r"--port[ =](\d+)", command)
    return found[1] if found else "7500"


def _swapped(text: str, ports: Mapping[str, str]) -> str:
    if not ports:
        return text
    return re.sub(rf"(?<![\d.])({'|'.join(ports)})(?!\d)", lambda found: ports[found[1]], text)


@contextmanager
def desk(folder: Path, ports: Mapping[str, str]) -> Iterator[Desk]:
    """A desk that is cleared in the end."""
    made = Desk(folder, ports)
    try:
        yield made
    finally:
        made.clear()


def free_ports(named: Iterable[str]) -> dict[str, str]:
    """Return a free port for each of these.

    A hub comes back to its port after a while without it. So these are below the ports that the system gives to
    whoever connects: else somebody who looks for the hub meanwhile could take its place.
    """
    shuffled = iter(SystemRandom().sample(_PORTS, len(_PORTS)))
    return {name: str(next(port for port in shuffled if _is_free(port))) for name in named}


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
