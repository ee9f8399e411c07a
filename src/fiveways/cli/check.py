"""`fiveways check`: the state of a hub as Nagios and its like want it."""

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from fiveways.cli.connection_options import connection_options, run_async
from fiveways.cli.errors import UsageError, error_message, printable
from fiveways.client.urls import DEFAULT_PORT
from fiveways.errors import FivewaysError

_READY_TEXT = "ok"
"""How /readyz begins where all is well enough."""
_MAX_RESPONSE_BYTES = 200
"""So many bytes of an answer are read."""


class State(IntEnum):
    """What the exit codes mean."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Unhealthy(FivewaysError):
    """The hub is there, but not well."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What the user typed."""

    url: str
    warning: float | None = None
    critical: float | None = None
    timeout: float = 10.0
    ping: bool = False
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    identity: str = ""
    secret_file: Path | None = None


def check(wish: CheckOptions) -> State:
    """Print one line, and return the exit code."""
    times: dict[str, float] = {}
    try:
        state, text = _evaluate(times, wish, _probe(wish, times))
    except UsageError as exc:
        state, text = State.UNKNOWN, str(exc)
    except TimeoutError:
        state, text = State.CRITICAL, f"no answer from {wish.url} within {wish.timeout:g} s"
    except (OSError, http.client.HTTPException) as exc:
        state, text = State.CRITICAL, f"{wish.url} cannot be reached: {error_message(exc)}"
    except FivewaysError as exc:
        state, text = State.CRITICAL, error_message(exc)
    numbers = " ".join(f"{name}={seconds:.6f}s;{_thresholds(wish)};0" for name, seconds in times.items())
    # The bar begins the numbers that Nagios draws; one in the text would be taken for it.
    print(f"FIVEWAYS {state.name} - {printable(text.replace('|', '/'))}", *(["|", numbers] if times else []))  # noqa: T201
    return state


def report_unknown(exc: UsageError) -> State:
    """Print the line for a command line that names no hub, and return the exit code."""
    print(f"FIVEWAYS UNKNOWN - {printable(str(exc).replace('|', '/'))}")  # noqa: T201
    return State.UNKNOWN


def _thresholds(wish: CheckOptions) -> str:
    return ";".join("" if bound is None else f"{bound:g}" for bound in (wish.warning, wish.critical))


def _probe(wish: CheckOptions, times: dict[str, float]) -> str:
    """Ask what can be asked, and note how long each took; return what is wrong though the hub is ready."""
    parts = _split(wish.url)
    said = ""
    for name in ("livez", "readyz"):
        with _timed(times, name):
            said = _get(parts, name, wish.timeout)
    if wish.ping:
        gate = connection_options(
            _client_url(wish.url, parts), wish.token, wish.token_file, wish.identity, wish.secret_file
        )

        async def ping() -> None:
            async with gate.connect_within(wish.timeout) as peer:
                with _timed(times, "ping"):
                    await peer.call("hub.ping", timeout=wish.timeout)

        run_async(ping())
    return said.removeprefix(_READY_TEXT).removeprefix(", but ")


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    times[name] = time.perf_counter() - began


def _evaluate(times: dict[str, float], wish: CheckOptions, trouble: str) -> tuple[State, str]:
    name, slowest = max(times.items(), key=lambda item: item[1])
    text = f"{name} took {slowest * 1000:.1f} ms"
    if wish.critical is not None and slowest > wish.critical:
        return State.CRITICAL, f"{text}, more than {wish.critical:g} s"
    if wish.warning is not None and slowest > wish.warning:
        return State.WARNING, f"{text}, more than {wish.warning:g} s"
    if trouble:
        return State.WARNING, f"ready, but {trouble}"
    return State.OK, f"alive and ready, {text}"


def _split(url: str) -> SplitResult:
    """Return the parts of a URL that names a hub, in one of its protocols or as HTTP."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as exc:
        raise UsageError(f"{url!r} is no URL: {exc}") from exc
    if not parts.hostname or parts.scheme.rpartition("+")[2] not in {"http", "https", "ws", "wss"}:
        raise UsageError(f"{url!r} names no hub; a URL looks like http://localhost:{DEFAULT_PORT}")
    return parts


def _client_url(url: str, parts: SplitResult) -> str:
    if "+" in parts.scheme:
        return url
    return f"lrpm+{parts.scheme.replace('http', 'ws')}://{parts.netloc}"


def _get(parts: SplitResult, name: str, timeout: float) -> str:
    """GET a path of the hub, and return what it says; Unhealthy if that is not 200."""
    secure = parts.scheme.endswith(("https", "wss"))
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port or (443 if secure else DEFAULT_PORT), timeout=timeout)
    # A proxy may serve the hub below a path; a client's URL has the protocol's own path there.
    below = "" if "+" in parts.scheme else parts.path.rstrip("/")
    try:
        connection.request("GET", f"{below}/{name}")
        answer = connection.getresponse()
        text = answer.read(_MAX_RESPONSE_BYTES).decode(errors="replace").strip()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise Unhealthy(f"/{name} says {answer.status} {text or answer.reason}")
    return text
