"""`fiveways check`: the health of a hub, as a Nagios plug-in."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from fiveways.cli.connection_options import connection_options
from fiveways.cli.errors import UsageError, error_message, printable
from fiveways.client.urls import DEFAULT_PORT
from fiveways.errors import FivewaysError

_READY_TEXT = "ok"
"""Prefix of the body of /readyz when the hub is ready."""
_MAX_RESPONSE_BYTES = 200
"""Maximum bytes to read of a response."""


class State(IntEnum):
    """Exit codes of Nagios plug-ins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Unhealthy(FivewaysError):
    """The hub responded, but it is not healthy."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of `fiveways check`."""

    url: str
    warning: float | None = None
    critical: float | None = None
    timeout: float = 10.0
    ping: bool = False
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    identity: str = ""
    secret_file: Path | None = None


def check(options: CheckOptions) -> State:
    """Run the probes, print one line, and return the exit code."""
    times: dict[str, float] = {}
    try:
        state, text = _evaluate(times, options, _probe(options, times))
    except UsageError as exc:
        state, text = State.UNKNOWN, str(exc)
    except TimeoutError:
        state, text = State.CRITICAL, f"no response from {options.url} within {options.timeout:g} s"
    except (OSError, http.client.HTTPException) as exc:
        state, text = State.CRITICAL, f"{options.url} cannot be reached: {error_message(exc)}"
    except FivewaysError as exc:
        state, text = State.CRITICAL, error_message(exc)
    numbers = " ".join(f"{name}={duration:.6f}s;{_thresholds(options)};0" for name, duration in times.items())
    # Nagios reads the text after a vertical bar as performance data.
    print(f"FIVEWAYS {state.name} - {printable(text.replace('|', '/'))}", *(["|", numbers] if times else []))  # noqa: T201
    return state


def report_unknown(exc: UsageError) -> State:
    """Print the line for a command line without a valid hub, and return the exit code."""
    print(f"FIVEWAYS UNKNOWN - {printable(str(exc).replace('|', '/'))}")  # noqa: T201
    return State.UNKNOWN


def _thresholds(options: CheckOptions) -> str:
    return ";".join("" if threshold is None else f"{threshold:g}" for threshold in (options.warning, options.critical))


def _probe(options: CheckOptions, times: dict[str, float]) -> str:
    """Run the probes and record their times. Return the problems of a ready hub, or an empty text."""
    parts = _split(options.url)
    body = ""
    for name in ("livez", "readyz"):
        with _timed(times, name):
            body = _get(parts, name, options.timeout)
    if options.ping:
        connection = connection_options(
            _client_url(options.url, parts), options.token, options.token_file, options.identity, options.secret_file
        )

        async def ping() -> None:
            async with connection.connect_within(options.timeout) as peer:
                with _timed(times, "ping"):
                    await peer.call("hub.ping", timeout=options.timeout)

        asyncio.run(ping())
    return body.removeprefix(_READY_TEXT).removeprefix(", but ")


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times[name] = time.perf_counter() - started


def _evaluate(times: dict[str, float], options: CheckOptions, problems: str) -> tuple[State, str]:
    name, slowest = max(times.items(), key=lambda item: item[1])
    text = f"{name} took {slowest * 1000:.1f} ms"
    if options.critical is not None and slowest > options.critical:
        return State.CRITICAL, f"{text}, more than {options.critical:g} s"
    if options.warning is not None and slowest > options.warning:
        return State.WARNING, f"{text}, more than {options.warning:g} s"
    if problems:
        return State.WARNING, f"ready, but {problems}"
    return State.OK, f"alive and ready, {text}"


def _split(url: str) -> SplitResult:
    """Return the parts of a URL that names a hub, as an HTTP URL or the URL of a client."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as exc:
        raise UsageError(f"{url!r} is not a URL: {exc}") from exc
    if not parts.hostname or parts.scheme.rpartition("+")[2] not in {"http", "https", "ws", "wss"}:
        raise UsageError(f"{url!r} does not name a hub; use a URL such as http://localhost:{DEFAULT_PORT}")
    return parts


def _client_url(url: str, parts: SplitResult) -> str:
    if "+" in parts.scheme:
        return url
    return f"lrpm+{parts.scheme.replace('http', 'ws')}://{parts.netloc}"


def _get(parts: SplitResult, name: str, timeout: float) -> str:
    """Return the body of a path of the hub; Unhealthy if the status is not 200."""
    secure = parts.scheme.endswith(("https", "wss"))
    connection_class = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connection_class(
        parts.hostname or "", parts.port or (443 if secure else DEFAULT_PORT), timeout=timeout
    )
    # A proxy may serve the hub under a path prefix. The path of a client's URL belongs to the protocol.
    prefix = "" if "+" in parts.scheme else parts.path.rstrip("/")
    try:
        connection.request("GET", f"{prefix}/{name}")
        response = connection.getresponse()
        text = response.read(_MAX_RESPONSE_BYTES).decode(errors="replace").strip()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise Unhealthy(f"/{name} returned {response.status} {text or response.reason}")
    return text
