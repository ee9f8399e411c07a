"""Hub processes, started as a user starts them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tests.support.paths import ROOT

PATIENCE = 300.0
"""Timeout in seconds; no test depends on it otherwise."""


def environment(**variables: str) -> dict[str, str]:
    """Return the environment without variables that affect `fiveways`."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("FIVEWAYS_")}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}", "COLUMNS": "200", **variables}


def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start `fiveways` with these arguments; with --lines, stdin is a pipe."""
    return feed(subprocess.PIPE if "--lines" in arguments else subprocess.DEVNULL, *arguments, **variables)


def feed(stdin: IO[str] | int, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start `fiveways` with this standard input."""
    return subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-m", "fiveways", *arguments],
        cwd=ROOT,
        env=environment(**variables),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run `fiveways` until it exits; return exit code, output and errors."""
    process = start(*arguments, **variables)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def completions(*words: str) -> list[str]:
    """Return the completions of the fish shell after these words."""
    variables = {"_FIVEWAYS_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    code, out, err = run(**variables, _TYPER_COMPLETE_ARGS=f"fiveways {' '.join(words)}")
    assert (code, err) == (0, "")
    return [line.partition("\t")[0] for line in out.splitlines() if line]


class Hub:
    """A running hub."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.greeting = "".join(_until_blank(process.stdout))
        urls = re.findall(r"^  ([\w-]+) +(\S+)$", self.greeting, re.MULTILINE)
        self.urls = dict(urls)
        # One protocol may be served over several transports.
        self.urls.update({url.partition("://")[0]: url for _, url in urls})
        # The rest of the greeting: suggested commands, and a hint on anonymous peers.
        self.hints = "".join([*_until_blank(process.stdout), *_until_blank(process.stdout)]) if self.urls else ""

    def url(self, protocol: str) -> str:
        """Return the URL of `umq`, `lrpm` and so on, of `lrpm?encoding=cbor`, or of `nq+http`."""
        name, mark, query = protocol.partition("?")
        return f"{self.urls[name]}{mark}{query}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def log_line(self, part: str) -> str:
        """Wait for a log line that contains `part`."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if part in line)

    def end(self) -> tuple[int, str]:
        """Terminate the hub; return its exit code and the rest of its log."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err


def _until_blank(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    for line in stream:
        if not line.strip():
            return
        yield line


@contextmanager
def serving(*arguments: str, **variables: str) -> Iterator[Hub]:
    """Run a hub on a free port, and stop it at the end."""
    hub = Hub(start("serve", "--port", "0", *arguments, **variables))
    try:
        assert hub.urls, hub.end()
        yield hub
    finally:
        hub.end()
