"""The stage: a folder, ports that are free, and the hub with all that it has, in a process of its own."""

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
"""Ports that are taken if they are free."""
_LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 3
"""A port that was free may be taken a moment later."""
_START_TIMEOUT: Final = 30.0
_STOP_TIMEOUT: Final = 8.0
SEGMENT_AGE: Final = 3.0
"""Seconds after which what was written down may be read by Spark."""


_KEPT_BYTES: Final = 256 << 20
"""Of a demo that is kept for long, so much is remembered."""


class StartFailed(FivewaysError):
    """The demo cannot begin."""


class BadFolder(StartFailed):
    """The folder that was asked for cannot be used."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where all of one run lies."""

    path: Path

    @classmethod
    def create(cls, wanted: Path | None = None) -> Self:
        """Make a folder that no run has used: the one that is wanted, or one that is named by us; BadFolder if not."""
        if wanted is not None:
            try:
                wanted.mkdir(parents=True, exist_ok=True)
                if any(wanted.iterdir()):
                    raise BadFolder(f"{wanted} is not empty: name another folder, or none")
            except OSError as exc:
                raise BadFolder(f"{wanted} cannot be used: {exc.strerror}") from exc
            return cls(wanted)
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
        """What the hub writes down."""
        return self.path / "journal"

    @property
    def tables(self) -> Path:
        """What Spark makes of it."""
        return self.path / "tables"

    @property
    def report(self) -> Path:
        """The page about it."""
        return self.path / "report.html"

    @property
    def schema(self) -> Path:
        """The services as protobuf has them."""
        return self.path / schema.FILE

    @property
    def settings(self) -> Path:
        """The hub's."""
        return self.path / "fiveways.toml"

    @property
    def log(self) -> Path:
        """What the processes had to say."""
        return self.path / "demo.log"


def _folder_names() -> Iterator[str]:
    yield FOLDER_NAME
    yield from (f"{FOLDER_NAME}-{number}" for number in count(2))


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the hub listens."""

    http: int
    zmq: int
    mqtt: int
    label_service: int
    """Where the ZeroMQ program gets its work."""

    @classmethod
    def choose(cls, wanted: int | None, *, usual: bool) -> Self:
        """Find ports: the usual ones where they are free, others where not; NoStage if the wanted one is taken."""
        check_port(wanted)
        taken: set[int] = set()

        def one(port: int) -> int:
            found = port if usual and port and _is_free(port) and port not in taken else _free_port(taken)
            taken.add(found)
            return found

        http = wanted or one(0 if wanted == 0 else DEFAULT_PORTS["http"])
        taken.add(http)
        return cls(http, one(DEFAULT_PORTS["zmq"]), one(DEFAULT_PORTS["mqtt"]), one(0))

    def non_default(self) -> list[str]:
        """Return which ports are not the usual ones, in words."""
        named = {"http": "WebSocket and HTTP", "zmq": "ZeroMQ", "mqtt": "MQTT"}
        return [
            f"{named[name]} is on port {getattr(self, name)}, not {port}"
            for name, port in DEFAULT_PORTS.items()
            if getattr(self, name) != port
        ]


def check_port(wanted: int | None) -> None:
    """Raise NoStage if the port that somebody wants is taken."""
    if wanted and not _is_free(wanted):
        raise StartFailed(f"port {wanted} is in use; choose another with --port, or 0 for any free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True


def _free_port(but: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((_LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in but:
            return port


class DemoHub:
    """The hub and the ZeroMQ program: `async with Stage(folder, port) as stage:`."""

    def __init__(self, folder: RunFolder, port: int | None = None) -> None:
        self._folder = folder
        self._wanted = port
        self._running: list[Process] = []
        self.ports = Ports(0, 0, 0, 0)

    @property
    def endpoints(self) -> HubEndpoints:
        """Where the hub answers."""
        return HubEndpoints(self.ports.http, self.ports.zmq, self.ports.mqtt, self._folder.schema)

    @property
    def dashboard(self) -> str:
        """What to look at in a browser."""
        return f"http://localhost:{self.ports.http}/"

    async def __aenter__(self) -> Self:
        self._folder.schema.write_bytes(schema.descriptor_set())
        try:
            for number in range(_TRIES):
                self.ports = Ports.choose(self._wanted, usual=number == 0)
                self._folder.settings.write_text(hub_settings(self._folder, self.ports), encoding="utf-8")
                if await self._start():
                    if number:  # a port was taken after it was found free: no error, as others were tried
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
        """Start both, and wait for the hub; say whether it is there."""
        log, python = self._folder.log, sys.executable
        command = [python, "-m", "fiveways", "serve", "--config", str(self._folder.settings)]
        self._running.append(hub := await processes.start(command, log))
        command = [python, str(stamper.__file__), f"tcp://{_LOOPBACK}:{self.ports.label_service}"]
        self._running.append(await processes.start(command, log))
        assert hub.stdout is not None  # noqa: S101  it is a pipe
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                # It says so when all that it has is open.
                while line := await hub.stdout.readline():
                    if line.startswith(b"Ctrl-C"):
                        return True
        except TimeoutError:
            return False
        return False

    async def _stop(self) -> None:
        running, self._running = self._running, []
        await asyncio.gather(*(processes.stop(each, _STOP_TIMEOUT) for each in running))

    async def wait_for_exit(self) -> NoReturn:
        """Wait until one of both has ended, which it should not: NoStage says so."""
        ends = [asyncio.create_task(each.wait()) for each in self._running]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()
        which = "hub" if ends[0].done() and not ends[0].cancelled() else "ZeroMQ program"
        raise StartFailed(f"the {which} has ended before its time: {_last_log_line(self._folder.log)}")


def hub_settings(folder: RunFolder, ports: Ports) -> str:
    """Return the hub's settings: all that it has, for this machine alone."""

    def text(value: object) -> str:
        return json.dumps(str(value), ensure_ascii=False)

    def absolute(path: Path) -> str:
        return text(path.absolute())

    served = ", ".join(text(f"/{name}") for name in schema.SERVICES if name != "Greenhouse")
    return f"""# What `fiveways demo` started its hub with; `fiveways serve --config` takes it as well.
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
    return lines[-1] if lines else "it said nothing"
