"""The directory, the ports and the hub process of a demo run."""

import asyncio
import json
import os
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, NoReturn, Self

from fiveways.demo import processes, schema, stamper
from fiveways.demo.shop_peers import HubEndpoints
from fiveways.errors import FivewaysError

FOLDER_NAME: Final = "fiveways-demo"
DEFAULT_PORTS: Final = {"http": 7500, "zmq": 7555, "mqtt": 1883}
"""Preferred ports."""
_LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 3
"""Attempts to start the hub, because another program may take a free port meanwhile."""
_START_TIMEOUT: Final = 30.0
_STOP_TIMEOUT: Final = 8.0
SEGMENT_AGE: Final = 3.0
"""Seconds after which a journal segment is closed for Spark."""


_KEPT_BYTES: Final = 256 << 20
"""Maximum size of the journal, for a demo that runs for long."""


class StartFailed(FivewaysError):
    """The demo cannot start."""


class BadFolder(StartFailed):
    """The given directory cannot be used."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The directory of one run."""

    path: Path

    @classmethod
    def create(cls, directory: Path | None = None) -> Self:
        """Create a new directory, at the given path or with a free name; BadFolder if that fails."""
        if directory is not None:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                if any(directory.iterdir()):
                    raise BadFolder(f"{directory} is not empty; choose another directory, or omit the option")
            except OSError as exc:
                raise BadFolder(f"{directory} cannot be used: {exc.strerror}") from exc
            return cls(directory)
        for name in _folder_names():
            try:
                Path(name).mkdir()
            except FileExistsError:
                continue
            except OSError:
                return cls(Path(tempfile.mkdtemp(prefix=f"{FOLDER_NAME}-")))
            return cls(Path(name))
        raise AssertionError

    @property
    def journal(self) -> Path:
        """The journal of the hub."""
        return self.path / "journal"

    @property
    def tables(self) -> Path:
        """The tables of the pipeline."""
        return self.path / "tables"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def schema(self) -> Path:
        """The protobuf descriptor set of the services."""
        return self.path / schema.FILE

    @property
    def settings(self) -> Path:
        """The configuration file of the hub."""
        return self.path / "fiveways.toml"

    @property
    def log(self) -> Path:
        """Log output of all processes."""
        return self.path / "demo.log"


def _folder_names() -> Iterator[str]:
    yield FOLDER_NAME
    yield from (f"{FOLDER_NAME}-{number}" for number in count(2))


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the hub."""

    http: int
    zmq: int
    mqtt: int
    label_service: int
    """The port of the ZeroMQ program."""

    @classmethod
    def choose(cls, http_port: int | None, *, prefer_defaults: bool) -> Self:
        """Choose free ports, preferably the defaults; StartFailed if the given HTTP port is in use."""
        check_port(http_port)
        taken: set[int] = set()

        def choose_port(port: int) -> int:
            chosen = port if prefer_defaults and port and _is_free(port) and port not in taken else _free_port(taken)
            taken.add(chosen)
            return chosen

        http = http_port or choose_port(0 if http_port == 0 else DEFAULT_PORTS["http"])
        taken.add(http)
        return cls(http, choose_port(DEFAULT_PORTS["zmq"]), choose_port(DEFAULT_PORTS["mqtt"]), choose_port(0))

    def non_default(self) -> list[str]:
        """Return a sentence for each port that is not the default."""
        labels = {"http": "WebSocket and HTTP", "zmq": "ZeroMQ", "mqtt": "MQTT"}
        return [
            f"{labels[name]} is on port {getattr(self, name)}, not {port}"
            for name, port in DEFAULT_PORTS.items()
            if getattr(self, name) != port
        ]


def check_port(port: int | None) -> None:
    """Raise StartFailed if the given port is in use."""
    if port and not _is_free(port):
        raise StartFailed(f"port {port} is in use; choose another with --port, or 0 for any free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True


def _free_port(excluded: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((_LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in excluded:
            return port


class DemoHub:
    """The processes of the hub and of the ZeroMQ program: `async with DemoHub(folder, port) as hub:`."""

    def __init__(self, folder: RunFolder, port: int | None = None) -> None:
        self._folder = folder
        self._port = port
        self._running: list[Process] = []
        self.ports = Ports(0, 0, 0, 0)

    @property
    def endpoints(self) -> HubEndpoints:
        """The addresses of the hub."""
        return HubEndpoints(self.ports.http, self.ports.zmq, self.ports.mqtt, self._folder.schema)

    @property
    def dashboard(self) -> str:
        """The URL of the dashboard."""
        return f"http://localhost:{self.ports.http}/"

    async def __aenter__(self) -> Self:
        self._folder.schema.write_bytes(schema.descriptor_set())
        try:
            for attempt in range(_TRIES):
                self.ports = Ports.choose(self._port, prefer_defaults=attempt == 0)
                self._folder.settings.write_text(hub_settings(self._folder, self.ports), encoding="utf-8")
                if await self._start():
                    if attempt:  # the retry succeeded, so drop the error of the first attempt from the log
                        os.truncate(self._folder.log, 0)
                    return self
                await self._stop()
        except BaseException:
            await self._stop()
            raise
        raise StartFailed(f"the hub does not start: {_last_log_line(self._folder.log)}")

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> bool:
        """Start both processes, and wait for the hub; return False if it does not start."""
        log, python = self._folder.log, sys.executable
        command = [python, "-m", "fiveways", "serve", "--config", str(self._folder.settings)]
        self._running.append(hub := await processes.start(command, log))
        command = [python, str(stamper.__file__), f"tcp://{_LOOPBACK}:{self.ports.label_service}"]
        self._running.append(await processes.start(command, log))
        assert hub.stdout is not None  # noqa: S101  started with a pipe
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                # The hub prints this line when all ports are open.
                while line := await hub.stdout.readline():
                    if line.startswith(b"Ctrl-C"):
                        return True
        except TimeoutError:
            return False
        return False

    async def _stop(self) -> None:
        running, self._running = self._running, []
        await asyncio.gather(*(processes.stop(process, _STOP_TIMEOUT) for process in running))

    async def wait_for_exit(self) -> NoReturn:
        """Wait until one of the processes ends, which is an error: raise StartFailed."""
        exits = [asyncio.create_task(process.wait()) for process in self._running]
        try:
            await asyncio.wait(exits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in exits:
                task.cancel()
        program = "hub" if exits[0].done() and not exits[0].cancelled() else "ZeroMQ program"
        raise StartFailed(f"the {program} ended unexpectedly: {_last_log_line(self._folder.log)}")


def hub_settings(folder: RunFolder, ports: Ports) -> str:
    """Return a configuration with all features of the hub, for the loopback address."""

    def text(value: object) -> str:
        return json.dumps(str(value), ensure_ascii=False)

    def absolute(path: Path) -> str:
        return text(path.absolute())

    served = ", ".join(text(f"/{name}") for name in schema.SERVICES if name != "Greenhouse")
    return f"""# The configuration of the hub in `fiveways demo`; also usable with `fiveways serve --config`.
[server]
port = {ports.http}
drain_timeout = 1.0

[store]
path = {absolute(folder.path / "store.db")}

[journal]
path = {absolute(folder.journal)}
node = "demo"
segment_age = {SEGMENT_AGE}
keep_bytes = {_KEPT_BYTES}
keep_days = 1.0

[zmq]
listen = true
port = {ports.zmq}

[zmq.targets]
"labels.stamp" = ["bind tcp://{_LOOPBACK}:{ports.label_service}"]

[mqtt]
enabled = true
port = {ports.mqtt}
schemas = [{text(schema.FILE)}]
serve = [{served}]

[mqtt.services]
"/Greenhouse" = "{schema.PACKAGE}.Greenhouse"

[mqtt.topics]
"sensors/#" = "in"
"shop/#" = "both"

[dashboard]
tables = {absolute(folder.tables)}

[log]
level = "warning"
"""


def _last_log_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "it printed nothing"
