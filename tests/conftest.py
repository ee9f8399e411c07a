"""How all tests are run, and what every run says at its end."""

import os
import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from fiveways.protocols import registry
from tests.processes import (
    pytest_fixture_post_finalizer,
    pytest_fixture_setup,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
)
from tests.protocols import vectors

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

# A machine that is busy with other work makes no example wrong.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


SPARK = "tests/pipeline/"


class OneSpark(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each test to whoever has time, but for those with Spark, which go to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else nodeid


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
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSpark:
    """Choose who runs what; the groups that xdist knows by itself have no effect with this pytest."""
    return OneSpark(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many vectors stand behind each protocol."""
    terminalreporter.section("vectors per protocol")
    for spec in registry.all_specs():
        entries = list(vectors.load(spec))
        dialogues = sum(each.is_dialogue for each in entries)
        codec = len(entries) - dialogues
        terminalreporter.write_line(f"{spec.name:10} {len(entries):4} ({codec} codec, {dialogues} dialogues)")
