"""A desk on which a page is followed: a scratch directory with the reader's commands and free ports.

Commands run in a shell, each in its own process group. Background commands (a hub, a subscriber) run until they are
terminated, or until the desk is cleared.
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
"""Timeout in seconds; no test depends on it otherwise."""
_STEP = 0.02
_PORTS = range(20_000, 32_000)
_FIVEWAYS = "import sys\nfrom fiveways.cli import main\nsys.exit(main())\n"
_PROTOC = """import sys
from grpc_tools.protoc import entrypoint

if not any(flag.startswith(("-I", "--proto_path")) for flag in sys.argv):
    sys.argv.append("--proto_path=.")  # the default of protoc, which this one lacks
sys.exit(entrypoint())
"""
_PROGRAMS = {"fiveways": _FIVEWAYS, "protoc": _PROTOC}


class CommandResult(NamedTuple):
    """The exit code of a command, and its output as a terminal shows it."""

    code: int
    shown: str


class BackgroundCommand:
    """A command that runs in the background."""

    def __init__(self, command: str, process: "subprocess.Popen[bytes]", file: Path) -> None:
        self.command = command
        self.process = process
        self._file = file

    @property
    def shown(self) -> str:
        """The output so far."""
        return self._file.read_text(encoding="utf-8", errors="replace")

    @property
    def has_exited(self) -> bool:
        return self.process.poll() is not None

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, by default that of Ctrl-C; return the exit code."""
        if not self.has_exited:
            os.killpg(self.process.pid, number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


class Desk:
    """The directory, ports and processes of one page."""

    def __init__(self, folder: Path, ports: Mapping[str, str]) -> None:
        """Create the programs in the directory.

        Args:
            folder: An empty folder.
            ports: For each port in the docs, the port that replaces it here.
        """
        self.folder = folder
        self.ports = ports
        self.running: list[BackgroundCommand] = []
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

    def with_own_ports(self, text: str) -> str:
        """Return a text of the docs with the ports of this desk."""
        return _replace_ports(text, self.ports)

    def with_docs_ports(self, text: str) -> str:
        """Return output with the ports of the docs."""
        return _replace_ports(text, {ours: theirs for theirs, ours in self.ports.items()})

    def save(self, name: str, text: str) -> Path:
        """Write a file into the directory."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.with_own_ports(text), encoding="utf-8")
        return path

    def run(self, command: str) -> CommandResult:
        """Run a command until it exits."""
        process = self._start(command, subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as exc:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{command} does not exit; output so far: {exc.output!r}") from exc
        return CommandResult(process.returncode, self.with_docs_ports(out.decode(errors="replace")))

    def start(self, command: str) -> BackgroundCommand:
        """Start a background command; a hub replaces the previous one on its port."""
        if is_hub(command):
            self._stop_previous_hub(command)
        file = self._logs / f"{len(self._groups)}.log"
        with file.open("wb") as out:
            process = self._start(command, out.fileno(), serves=is_hub(command))
        running = BackgroundCommand(command, process, file)
        self.running.append(running)
        return running

    def _stop_previous_hub(self, command: str) -> None:
        port = _port_of(command)
        for running in [
            running for running in self.running if is_hub(running.command) and _port_of(running.command) == port
        ]:
            self.running.remove(running)
            assert running.end() == 0, running.shown

    def _start(self, command: str, out: int, *, serves: bool = False) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(  # noqa: S603  our own docs
            ["/bin/bash", "-o", "pipefail", "-c", self.with_own_ports(command)],
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
        """Terminate all running commands."""
        for running in reversed(self.running):
            running.end()
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_until(condition: "Iterator[bool]") -> bool:
    """Wait until the iterator yields True; return whether it did in time."""
    deadline = time.monotonic() + PATIENCE
    for is_true in condition:
        if is_true:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return False


def is_hub(command: str) -> bool:
    """Return whether a command runs a hub."""
    return re.search(r"\bfiveways serve\b", command) is not None


def _port_of(command: str) -> str:
    match = re.search(r"--port[ =](\d+)", command)
    return match[1] if match else "7500"


def _replace_ports(text: str, ports: Mapping[str, str]) -> str:
    if not ports:
        return text
    return re.sub(rf"(?<![\d.])({'|'.join(ports)})(?!\d)", lambda match: ports[match[1]], text)


@contextmanager
def desk(folder: Path, ports: Mapping[str, str]) -> Iterator[Desk]:
    """Create a desk, and clear it at the end."""
    new_desk = Desk(folder, ports)
    try:
        yield new_desk
    finally:
        new_desk.clear()


def free_ports(named: Iterable[str]) -> dict[str, str]:
    """Return a free port for each of these.

    A hub returns to its port after a restart. The ports are below the ephemeral range: otherwise a client that
    reconnects meanwhile could get the port for its own end.
    """
    shuffled = iter(SystemRandom().sample(_PORTS, len(_PORTS)))
    return {name: str(next(port for port in shuffled if _is_free(port))) for name in named}


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
