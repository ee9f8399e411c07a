"""The broker that a hub starts for itself where it is told of none: nats-server, which speaks MQTT too."""

import asyncio
import contextlib
import ctypes
import json
import logging
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError, MissingExtra
from fiveways.runtime.mqtt.broker_folder import Home

_log = logging.getLogger("fiveways.broker")
_PROGRAM: Final = "nats-server"
_LOOPBACK: Final = "127.0.0.1"
_READY_WITHIN: Final = 10.0
_STOP_TIMEOUT: Final = 5.0
_LOOK_EVERY: Final = 0.02
_RESTART_DELAYS: Final = (0.1, 0.5, 1.0)
"""Seconds before it is started anew, should it have died."""
_PR_SET_PDEATHSIG: Final = 1
"""PR_SET_PDEATHSIG."""
_CONFIG: Final = """
server_name: fiveways
listen: "{host}:-1"
max_payload: 8388608
jetstream {{
  store_dir: {folder}
  limits {{ default_max_consumers: -1 }}
}}
authorization {{
  users: [
    {{ user: {user}, password: {password} }}
    {{ user: "devices", password: "{unused}", permissions: {{ publish: {{ deny: {denied} }} }} }}
  ]
}}
mqtt {{
  listen: "{host}:{port}"
  max_ack_pending: 64
  no_auth_user: "devices"
}}
"""
"""Each subscription takes its share of 65,535 messages that may be unacknowledged: with 64, there may be 1,023.

Clients without credentials are `devices`, whose password nobody knows. NATS clients have to have credentials.
"""
_DENIED: Final = ("fiveways.hubs.>", "$MQTT.>", "$JS.>")
"""Subjects of hubs' claims, of nats-server's own messages, and of the API by which anybody could delete these."""
_HUB: Final = "fiveways-hub"
_SECRET_BYTES: Final = 24


class BrokerStartError(FivewaysError):
    """No broker can be started here."""


class EmbeddedBroker:
    """A nats-server that lives as long as its hub, on loopback alone."""

    def __init__(self, port: int, folder: Path | None, user: str = "", password: str = "") -> None:
        """Make it; in `folder` it keeps what it retains, without one that ends with it.

        Only hubs may publish claims: those that have this user and password, which are made if they are not given.
        """
        self.user, self.password = user or _HUB, password or secrets.token_hex(_SECRET_BYTES)
        self.port = port or _free_port()
        self._storage_folder = folder
        self._temporary_folder: Home | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"mqtt://{_LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it listens; NoBroker says why it does not."""
        if not _is_free(self.port):
            raise BrokerStartError(
                f"port {self.port} is taken, maybe by a broker: name that as mqtt.url, or another port as mqtt.port"
            )
        self._temporary_folder = Home()
        await self._launch()
        self._watch = asyncio.create_task(self._restart_if_ended(), name="watch over the broker")

    async def stop(self) -> None:
        """End it."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        process = self._process
        if process is not None:
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, _STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                await asyncio.to_thread(process.wait)
        if self._temporary_folder is not None:
            self._temporary_folder.remove()

    async def _launch(self) -> None:
        assert self._temporary_folder is not None  # noqa: S101  it is made before
        home = self._temporary_folder.path
        folder = (self._storage_folder or home / "kept").absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise BrokerStartError(f"the broker's folder {folder} cannot be made: {exc.strerror}") from exc
        config, told = home / "nats.conf", home / "nats.log"
        config.write_text(self._config(folder), encoding="utf-8")
        with told.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603  it returns at once
                [_program(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the hub, which then ends it
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  no threads by now
            )
        await self._wait_until_listening(told)

    def _config(self, folder: Path) -> str:
        """Return its configuration, which holds the password; nobody else can read the folder where it is."""
        return _CONFIG.format(
            host=_LOOPBACK,
            port=self.port,
            folder=json.dumps(str(folder)),
            user=json.dumps(self.user, ensure_ascii=False),
            password=json.dumps(self.password, ensure_ascii=False),
            unused=secrets.token_hex(_SECRET_BYTES),
            denied=json.dumps(_DENIED),
        )

    async def _wait_until_listening(self, told: Path) -> None:
        process, loop = self._process, asyncio.get_running_loop()
        assert process is not None  # noqa: S101  it has just been started
        until = loop.time() + _READY_WITHIN
        while _is_free(self.port):
            if process.poll() is not None:
                raise BrokerStartError(f"the broker did not start: {_last_log_line(told)}")
            if loop.time() > until:
                raise BrokerStartError(f"the broker did not listen within {_READY_WITHIN:g} seconds")
            await asyncio.sleep(_LOOK_EVERY)

    async def _restart_if_ended(self) -> None:
        """Start it anew, should it die before its time."""
        turn = 0
        while True:
            await asyncio.sleep(_RESTART_DELAYS[0])
            if self._process is None or self._process.poll() is None:
                turn = 0
                continue
            _log.error("the broker ended with status %s, and is started anew", self._process.returncode)
            await asyncio.sleep(_RESTART_DELAYS[min(turn, len(_RESTART_DELAYS) - 1)])
            turn += 1
            try:
                await self._launch()
            except (BrokerStartError, OSError) as exc:
                _log.error("%s", exc)


def _program() -> str:
    path = Path(sysconfig.get_path("scripts")) / _PROGRAM
    if not path.exists():
        missing = MissingExtra("hub", f"the embedded broker ({_PROGRAM} beside Python)")
        raise BrokerStartError(f"{missing}, or name another broker as mqtt.url")
    return str(path)


def _end_with_parent() -> None:
    """Have the system end the broker when the hub is gone, however that went."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) != 0


def _last_log_line(told: Path) -> str:
    lines = told.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1].partition("] ")[2] if lines else "it said nothing"
