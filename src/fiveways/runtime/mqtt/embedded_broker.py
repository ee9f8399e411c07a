"""The embedded broker: a nats-server with MQTT, which the hub starts if the settings name no broker."""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from fiveways.errors import FivewaysError, MissingExtra
from fiveways.runtime.structured_logging import log_fields

_log = logging.getLogger("fiveways.broker")
_PROGRAM: Final = "nats-server"
_LOOPBACK: Final = "127.0.0.1"
_START_TIMEOUT: Final = 10.0
_STOP_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.02
_RESTART_DELAYS: Final = (0.1, 0.5, 1.0)
"""Seconds before each attempt to restart a broker that has exited."""
_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) that sends a signal when the parent process ends."""
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
"""The configuration of nats-server.

Each subscription reserves `max_ack_pending` of 65,535 unacknowledged messages: with 64, there may be 1,023
subscriptions. Clients without credentials are `devices`, with a random, unknown password. NATS clients need
credentials.
"""
_DENIED: Final = ("fiveways.hubs.>", "$MQTT.>", "$JS.>")
"""Subjects of the hubs' claims, of nats-server's internal messages, and of the API that can delete these."""
_HUB: Final = "fiveways-hub"
_SECRET_BYTES: Final = 24
_FOLDER_PREFIX: Final = "fiveways-broker-"
_LOCK: Final = "lock"


class BrokerStartError(FivewaysError):
    """The broker cannot be started."""


class _TemporaryFolder:
    """A temporary folder. Its lock ends with the process; the next hub removes folders without a lock."""

    def __init__(self) -> None:
        _remove_leftovers()
        self.path: Final = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        new_lock = self.path / ".lock"
        self._lock = os.open(new_lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new_lock.rename(self.path / _LOCK)  # under this name, other hubs find it locked

    def remove(self) -> None:
        """Delete the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


class EmbeddedBroker:
    """A nats-server on loopback that runs as long as its hub."""

    def __init__(self, port: int, folder: Path | None, user: str = "", password: str = "") -> None:
        """Store retained messages in `folder`, or in a temporary folder if it is None.

        Only clients with this user and password may publish claims; a missing password is generated.
        """
        self.user, self.password = user or _HUB, password or secrets.token_hex(_SECRET_BYTES)
        self.port = port or _free_port()
        self._storage_folder = folder
        self._temporary_folder: _TemporaryFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._restart_task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"mqtt://{_LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it listens; BrokerStartError if that fails."""
        if not _is_free(self.port):
            raise BrokerStartError(
                f"port {self.port} is in use; if by a broker, set mqtt.url to it, else set mqtt.port to another port"
            )
        self._temporary_folder = _TemporaryFolder()
        await self._launch()
        self._restart_task = asyncio.create_task(self._restart_if_ended(), name="restart the broker")

    async def stop(self) -> None:
        """Stop it."""
        if self._restart_task is not None:
            self._restart_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restart_task
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
        assert self._temporary_folder is not None  # noqa: S101  set by start()
        home = self._temporary_folder.path
        folder = (self._storage_folder or home / "kept").absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise BrokerStartError(f"cannot create the broker's folder {folder}: {exc.strerror}") from exc
        config, log_path = home / "nats.conf", home / "nats.log"
        config.write_text(self._config(folder), encoding="utf-8")
        with log_path.open("wb") as log_file:
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603  it does not block
                [_program(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C must only reach the hub, which stops the broker
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  there are no threads yet
            )
        await self._wait_until_listening(log_path)

    def _config(self, folder: Path) -> str:
        """Return the configuration, which contains the password; other users cannot read its folder."""
        return _CONFIG.format(
            host=_LOOPBACK,
            port=self.port,
            folder=json.dumps(str(folder)),
            user=json.dumps(self.user, ensure_ascii=False),
            password=json.dumps(self.password, ensure_ascii=False),
            unused=secrets.token_hex(_SECRET_BYTES),
            denied=json.dumps(_DENIED),
        )

    async def _wait_until_listening(self, log_path: Path) -> None:
        process, loop = self._process, asyncio.get_running_loop()
        assert process is not None  # noqa: S101  set by _launch()
        deadline = loop.time() + _START_TIMEOUT
        while _is_free(self.port):
            if process.poll() is not None:
                raise BrokerStartError(f"the broker did not start: {_last_log_line(log_path)}")
            if loop.time() > deadline:
                raise BrokerStartError(f"the broker did not listen within {_START_TIMEOUT:g} seconds")
            await asyncio.sleep(_POLL_INTERVAL)

    async def _restart_if_ended(self) -> None:
        """Restart it if it exits."""
        attempt = 0
        while True:
            await asyncio.sleep(_RESTART_DELAYS[0])
            if self._process is None or self._process.poll() is None:
                attempt = 0
                continue
            _log.error("the embedded broker exited; restarting it", extra=log_fields(status=self._process.returncode))
            await asyncio.sleep(_RESTART_DELAYS[min(attempt, len(_RESTART_DELAYS) - 1)])
            attempt += 1
            try:
                await self._launch()
            except (BrokerStartError, OSError) as exc:
                _log.error("%s", exc)


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # it has no lock yet, is in use, or belongs to another user
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _program() -> str:
    path = Path(sysconfig.get_path("scripts")) / _PROGRAM
    if not path.exists():
        missing = MissingExtra("hub", f"the embedded broker ({_PROGRAM} beside Python)")
        raise BrokerStartError(f"{missing}, or name another broker as mqtt.url")
    return str(path)


def _end_with_parent() -> None:
    """Let the kernel stop the broker when the hub ends for any reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) != 0


def _last_log_line(log_path: Path) -> str:
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1].partition("] ")[2] if lines else "it wrote no log"
