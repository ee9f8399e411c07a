"""How all tests are run, and what every run says at its end."""

import os
import signal
import sys

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import reporting
from tests.processes import (
    pytest_fixture_post_finalizer,
    pytest_fixture_setup,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
)

__all__ = [
    "pytest_fixture_post_finalizer",
    "pytest_fixture_setup",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
]

# A shell without job control starts what it puts into the background with SIGINT ignored, and so do `nohup` and many CI
# runners. Children inherit that, and tests that interrupt them would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker collects all tests, and hundreds of tests start a program of ours: where compiled files may not be kept, a
# worker spends 20 seconds on compiling tests, and each program half a second.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A machine that is busy with other work makes no example wrong.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


TOGETHER = ("tests/pipeline/", "tests/web/")
"""The folders whose tests share what is slow to start: one Spark, one browser."""
FIRST = (*TOGETHER, *(f"tests/{name}/" for name in ("demo", "docs", "cli", "mqtt", "runtime", "client", "transports")))
"""The folders with tests that take long, the longest first; the short ones fill the gaps at the end."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives whole files to workers, because most tests of a file share a hub; those in `TOGETHER` go to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first: the scheduler gives out files in this order."""
    items.sort(key=lambda item: next((at for at, each in enumerate(FIRST) if item.nodeid.startswith(each)), len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:  # noqa: ARG001  the name is part of the hook
    """One worker has Spark for most of the time, and is given two cores' work at once or none; the others wait a lot.

    Half of what tests without Spark take is spent on timers and on processes that start. So there is one worker more
    than there are cores; who knows better sets xdist's own variable, or says a number.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Choose the scheduler; the groups that xdist knows by itself have no effect with this pytest."""
    config.option.loadscopereorder = False  # the number of tests in a file does not tell how long they take
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many vectors stand behind each protocol, and which tests were skipped."""
    sections = {
        "vectors per protocol": reporting.vectors_per_protocol(),
        "skipped tests": reporting.skipped(terminalreporter.stats.get("skipped", [])),
    }
    for title, lines in sections.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
