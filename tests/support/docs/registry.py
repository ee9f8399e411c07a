"""Registry of all kinds of blocks, programs, and commands that are not run. An unregistered block fails."""

import re
import signal
from typing import NamedTuple

KINDS = {
    "python": "run; `# prints` has the expected output. With a file name as its first comment it is saved instead",
    "console": "run; each `$` is a command, then its output. With a name: the output of that background command",
    "sh": "run, each line a command",
    "indented": "TOML if it begins with a table, else commands; two or more blanks begin an explanation",
    "toml": "read as `fiveways config check` reads it; saved if its first comment is a file's name",
    "json": "parsed",
    "frames": "sent and expected on a raw WebSocket",
    "proto": "saved; a later command compiles it",
    "ini": "a unit for systemd: saved, and verified by systemd-analyze where that is installed",
}

DRAWINGS = {
    "text": "drawings, and output of the author's terminal: nothing to run",
    "nginx": "the configuration of a program that the tests do not install",
    "yaml": "the configuration of Prometheus, which the tests do not install",
}


class TestedElsewhere(NamedTuple):
    """Blocks of a page that another test runs."""

    page: str
    kind: str
    test: str


TESTED_ELSEWHERE = [
    TestedElsewhere("docs/spark-peer.md", "py", "tests/integration/pipeline/test_spark_peer.py"),
    TestedElsewhere("docs/javascript.md", "js", "tests/integration/web/test_javascript_docs.py"),
    TestedElsewhere("docs/javascript.md", "html", "tests/integration/web/test_javascript_docs.py"),
    TestedElsewhere("docs/demo.md", "sh", "tests/integration/demo/test_demo_docs.py"),
]
"""One entry per page with a test of its own."""


class NotRun(NamedTuple):
    """A pattern of commands that are checked and not run, with the reason."""

    pattern: str
    reason: str


NOT_RUN = [
    NotRun(r"make\b", "it would recreate .venv; `make -n` checks the target"),
    NotRun(
        r"(\S*/)?pip install\b", "it would change the installed packages; its extras are compared with pyproject.toml"
    ),
    NotRun(r"(python3|\S*/python) -m venv\b", "it would create a virtual environment"),
    NotRun(r"(sudo|apt-get|systemctl|journalctl|useradd|install)\b", "it changes the machine"),
    NotRun(r"source \S+/activate$", "each command runs in a new shell, which already finds the programs"),
    NotRun(r"git clone\b|cd \S+$", "the repository is already present"),
    NotRun(
        r"fiveways pipeline run .*--master spark://",
        "it needs a cluster; tests/integration/pipeline/test_cluster.py starts one",
    ),
]

PROGRAMS = ("curl", "openssl")
"""Programs that pages use and that neither the tests' packages nor every system provides."""

SIGNAL = re.compile(r"kill -(9|HUP|TERM|STOP|CONT) PID")
"""The reader types the pid that the hub printed; here the signal goes to the hub of the page."""

BACKGROUND = re.compile(
    r"fiveways serve\b|fiveways tail\b.* (-f|--follow)\b|fiveways pull\b.* --follow\b"
    r"|fiveways subscribe\b(?!.*--count)|&$"
)
"""Commands that run until they are terminated."""

REPEATED = re.compile(r"fiveways (tail|trace)\b")
"""Commands that read records of the journal, which the hub writes with a delay; they are repeated."""

SPARK = re.compile(r"fiveways (pipeline (run|watch)|sql)\b")
"""Commands that run in the Spark session of the tests, in this process."""


def not_run(command: str) -> NotRun | None:
    """Return the registered reason if a command is not run."""
    return next((entry for entry in NOT_RUN if re.match(entry.pattern, command)), None)


def signal_of(command: str) -> signal.Signals | None:
    """Return the signal that a command sends to the hub."""
    match = SIGNAL.fullmatch(command)
    if match is None:
        return None
    return signal.SIGKILL if match[1] == "9" else signal.Signals[f"SIG{match[1]}"]


def tested_elsewhere(page: str, kind: str) -> TestedElsewhere | None:
    """Return the test that runs such blocks of a page, if any."""
    return next((entry for entry in TESTED_ELSEWHERE if (entry.page, entry.kind) == (page, kind)), None)
