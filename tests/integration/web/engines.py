"""Engines that run fiveways.js: Node.js and Chromium, with the same interface. They run `js/battery.mjs`.

Both have one primitive, `ask`: it runs `drive(command)` of `js/driver.mjs` in the engine, and returns its result.
"""

import json
import re
import select
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import Page

from tests.integration.web.browsers import PATIENCE, Chromium, missing
from tests.support.paths import ROOT
from tests.support.processes import mark

HERE = Path(__file__).parent / "js"
MODULE = ROOT / "src/fiveways/web/fiveways.js"
POLICY = "default-src 'none'; script-src 'self'; connect-src ws: http:"
"""A strict content security policy: no inline script, no eval."""
_names = count(1)


class Engine(Protocol):
    """A JavaScript engine."""

    def ask(self, command: dict[str, object]) -> Any:  # noqa: ANN401  JSON
        """Run a command and return its result."""


class Scenario:
    """One running case of the battery."""

    def __init__(self, engine: Engine, case: str, world: Mapping[str, object]) -> None:
        self._engine = engine
        self._name = f"{case} {next(_names)}"
        self._ask("start", case=case, world=dict(world))

    def _ask(self, what: str, **more: object) -> Any:  # noqa: ANN401  JSON
        answer = self._engine.ask({"do": what, "story": self._name, **more})
        assert answer["ok"], answer["error"]
        return answer["value"]

    def wait_for(self, word: str) -> Any:  # noqa: ANN401  JSON
        """Wait for a message of the case; return its value."""
        return self._ask("said", word=word)

    def signal(self, word: str, value: object = None) -> None:
        """Send a message that the case waits for."""
        self._ask("tell", word=word, value=value)

    def end(self) -> Any:  # noqa: ANN401  JSON
        """Wait for the end of the case; raise AssertionError if it failed."""
        return self._ask("end")


def run(engine: Engine, case: str, **world: object) -> Any:  # noqa: ANN401  JSON
    """Run a case until it ends."""
    return Scenario(engine, case, world).end()


class Node:
    """A Node.js process that reads commands, one per line."""

    def __init__(self, **variables: str) -> None:
        """Start the process with additional environment variables."""
        command, environment = node_command()
        self._process = subprocess.Popen(  # noqa: S603  our own script
            [*command, str(HERE / "node.mjs"), MODULE.as_uri()],
            env={**environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: dict[str, object]) -> Any:  # noqa: ANN401  JSON
        """Write a command, and read its result."""
        stdout, stdin = self._process.stdout, self._process.stdin
        assert stdout is not None
        assert stdin is not None
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], 2 * PATIENCE)
        line = stdout.readline() if ready else ""
        assert line, f"Node.js did not answer {command}"
        return json.loads(line)

    def close(self) -> None:
        """Close the standard input and wait for the exit."""
        self._process.communicate(timeout=PATIENCE)


def node_command() -> tuple[list[str], dict[str, str]]:
    """Return the command that starts Node.js with a WebSocket, and its environment."""
    program = shutil.which("node") or shutil.which("nodejs")
    if program is None:
        missing("Node is not installed; its Debian package is `nodejs`")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    major, minor = map(int, re.findall(r"\d+", version.stdout)[:2])
    environment = {"PATH": "/usr/bin:/bin", "NODE_PATH": "/usr/share/nodejs", **mark()}
    if major >= 22:
        return [program], environment
    if (major, minor) >= (20, 10):
        return [program, "--experimental-websocket", "--no-warnings"], environment
    if not Path("/usr/share/nodejs/ws").exists():
        missing(f"Node {major} has no WebSocket; the Debian package `node-ws` has one")
    options = ["--experimental-global-webcrypto", "--no-warnings", "--require", str(HERE / "websocket.cjs")]
    return [program, *options], environment


class Browser:
    """A page in Chromium that runs commands."""

    def __init__(self, chromium: Chromium, page: Page) -> None:
        self._chromium = chromium
        self._page = page

    def ask(self, command: dict[str, object]) -> Any:  # noqa: ANN401  JSON
        """Run the command on the page."""
        return self._chromium.do(lambda: self._page.evaluate("(command) => globalThis.drive(command)", command))


@contextmanager
def browser_engine(chromium: Chromium) -> Iterator[Browser]:
    """Open a page under a strict policy with the module and the battery; errors of the page fail."""
    files = {
        "/": (b'<!doctype html><title>battery</title><script type="module" src="/page.mjs"></script>', "text/html"),
        "/fiveways.js": (MODULE.read_bytes(), "text/javascript"),
        **{f"/{path.name}": (path.read_bytes(), "text/javascript") for path in HERE.iterdir()},
    }
    errors: list[str] = []
    with site(files, POLICY) as url:
        page = chromium.open()

        def load() -> None:
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(url)
            page.wait_for_function("() => globalThis.drive !== undefined")

        chromium.do(load)
        yield Browser(chromium, page)
        chromium.do(page.context.close)
    assert errors == []


class _Site(BaseHTTPRequestHandler):
    def __init__(self, files: dict[str, tuple[bytes, str]], policy: str, *arguments: Any) -> None:  # noqa: ANN401
        self._files = files
        self._policy = policy
        super().__init__(*arguments)

    def do_GET(self) -> None:
        content, kind = self._files.get(self.path, (b"", ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(content)))
        if self._policy:
            self.send_header("Content-Security-Policy", self._policy)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def site(files: dict[str, tuple[bytes, str]], policy: str = "") -> Iterator[str]:
    """Serve files on a free port; yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Site, files, policy)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
