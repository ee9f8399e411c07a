"""Settings of the test run, and the sections that it prints at its end."""

import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import processes, reporting

# A shell without job control ignores SIGINT in background processes, and so do `nohup` and many CI runners. Children
# inherit this, and tests that interrupt them would wait until the timeout.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker collects all tests, and hundreds of tests start a Python program. Without compiled files on disk, a
# worker spends 20 seconds on compiling tests, and each program half a second.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Spark processes a few rows here, so the optimizing compiler of the JVM would cost more than it saves. Without it, the
# default code cache has 48 MB, too little for Spark. Without class verification, start and first job of Spark took 50 s
# of CPU time instead of 58. Hadoop starts `chmod` for each file and folder; VFORK avoids the helper process that the
# JVM would start first.
os.environ["JDK_JAVA_OPTIONS"] = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)

# On a busy machine, slow examples are not errors.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


ONE_SPARK = tuple(
    f"tests/integration/pipeline/test_{name}.py"
    for name in ("streaming_run", "batch_run", "cluster", "cli_pipeline", "process_cleanup")
)
"""Files that also share tables; they take half of the time of tests/integration/pipeline."""
FIRST = (
    *ONE_SPARK,
    "tests/integration/pipeline/",
    "tests/integration/web/",
    "tests/integration/demo/",
    "tests/docs/",
    "tests/integration/cli/",
    "tests/integration/mqtt/",
    "tests/integration/runtime/",
    "tests/integration/client/",
    "tests/integration/transports/",
)
"""Folders with long tests, the longest first; short tests fill the gaps at the end."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Scheduler that gives whole files to workers, because most tests of a file share a hub.

    A Spark session needs long to start and to warm up, so two workers get the files that share one: `ONE_SPARK`, and
    the other half of tests/integration/pipeline.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in ONE_SPARK:
            return ONE_SPARK[0]
        return "tests/integration/pipeline/" if file.startswith("tests/integration/pipeline/") else file


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks as a plugin: pytest does not call those of this file for session fixtures."""
    config.pluginmanager.register(processes, processes.__name__)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and exempt the test objects from all later collections.

    The tests are half a million objects that live until the end. The collector took a quarter of the CPU time of the
    collection of tests, and a full collection during a test took a quarter of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest tests first; the scheduler assigns files in this order."""
    items.sort(
        key=lambda item: next((at for at, prefix in enumerate(FIRST) if item.nodeid.startswith(prefix)), len(FIRST))
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:  # noqa: ARG001  the name is part of the hook
    """Return two workers more than there are cores.

    Tests without Spark spend half of their time on timers and on starting processes; with one additional worker, a run
    on two cores used three quarters of them. xdist's own variable and `-n NUMBER` override this.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 2 if hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Return the scheduler; xdist's own groups have no effect with this pytest."""
    config.option.loadscopereorder = False  # the number of tests in a file says nothing about their duration
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of vectors per protocol, and the skipped tests."""
    sections = {
        "vectors per protocol": reporting.vectors_per_protocol(),
        "skipped tests": reporting.skipped(terminalreporter.stats.get("skipped", [])),
    }
    for title, lines in sections.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
