"""Every kind of block, every program, and what is not run here and why. A block that is not in these lists fails."""

import re
import signal
from typing import NamedTuple

KINDS = {
    "python": "run; `# prints` says what it prints. With a file's name as its first comment it is saved instead",
    "console": "run; each `$` is a command, and below it what it shows. With a name: what such a command shows by now",
    "sh": "run, each line a command",
    "indented": "TOML if it begins with a table, else as sh; two blanks or more begin an explanation",
    "toml": "read as `fiveways config check` reads it; saved if its first comment is a file's name",
    "json": "parsed",
    "frames": "said and heard on a raw WebSocket",
    "proto": "saved; a later command compiles it",
    "ini": "a unit for systemd: saved, and verified by systemd-analyze where that is installed",
}

DRAWINGS = {
    "text": "drawings, and output that a command has shown in its author's terminal: nothing to run",
    "nginx": "the configuration of another program, which the tests do not have",
    "yaml": "as nginx: that of Prometheus",
}


class Elsewhere(NamedTuple):
    """Blocks that another test runs."""

    page: str
    kind: str
    test: str


ELSEWHERE = [
    Elsewhere("docs/spark-peer.md", "py", "tests/integration/pipeline/test_spark_peer.py"),
    Elsewhere("docs/javascript.md", "js", "tests/integration/web/test_javascript_docs.py"),
    Elsewhere("docs/javascript.md", "html", "tests/integration/web/test_javascript_docs.py"),
    Elsewhere("docs/demo.md", "sh", "tests/integration/demo/test_demo_docs.py"),
]
"""One line for each page that has a test of its own."""


class NotRun(NamedTuple):
    """Commands that are looked at and not run."""

    pattern: str
    reason: str


NOT_RUN = [
    NotRun(r"make\b", "it would make .venv anew; `make -n` says whether the target is there"),
    NotRun(
        r"(\S*/)?pip install\b", "it would change the tests' own packages; its extras are compared with pyproject.toml"
    ),
    NotRun(r"(python3|\S*/python) -m venv\b", "as pip install"),
    NotRun(r"(sudo|apt-get|systemctl|journalctl|useradd|install)\b", "it changes the machine"),
    NotRun(r"source \S+/activate$", "each command has a shell of its own here, which finds the programs"),
    NotRun(r"git clone\b|cd \S+$", "the tree is here already"),
    NotRun(
        r"fiveways pipeline run .*--master spark://",
        "it needs a cluster: tests/integration/pipeline/test_cluster.py starts one",
    ),
]

PROGRAMS = ("curl", "openssl")
"""What pages call that comes neither with the tests' packages nor with every system."""

SIGNAL = re.compile(r"kill -(9|HUP|TERM|STOP|CONT) PID")
"""A reader types the pid that the hub printed; here the page's own hub gets the signal."""

LASTING = re.compile(
    r"fiveways serve\b|fiveways tail\b.* (-f|--follow)\b|fiveways pull\b.* --follow\b"
    r"|fiveways subscribe\b(?!.*--count)|&$"
)
"""Commands that go on until somebody ends them."""

LATER = re.compile(r"fiveways (tail|trace)\b")
"""Commands that read what a hub writes down a moment later: they are repeated until they show it."""

SPARK = re.compile(r"fiveways (pipeline (run|watch)|sql)\b")
"""Commands that are run in the one Spark of the tests, in this process."""


def not_run(command: str) -> NotRun | None:
    """Return why a command is not run, if it is not."""
    return next((each for each in NOT_RUN if re.match(each.pattern, command)), None)


def stands_for(command: str) -> signal.Signals | None:
    """Return the signal that a command sends to the hub."""
    found = SIGNAL.fullmatch(command)
    if found is None:
        return None
    return signal.SIGKILL if found[1] == "9" else signal.Signals[f"SIG{found[1]}"]


def elsewhere(page: str, kind: str) -> Elsewhere | None:
    """Return who runs such blocks of a page, if somebody else does."""
    return next((each for each in ELSEWHERE if (each.page, each.kind) == (page, kind)), None)
