"""Processes of failed tests are terminated, and SIGINT reaches child processes in every environment."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import processes
from tests.support.paths import ROOT

PATIENCE = 300.0

PARTS = """
import os
import signal
import subprocess

import pytest

from tests.support import processes
from tests.support import hubs

owners = []


def start():
    owners.append(os.environ[processes.VARIABLE])
    return subprocess.Popen(["sh", "-c", "sleep 600 & echo; wait"], stdout=subprocess.PIPE)


def test_sigint_reaches_a_child():
    child = start()
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    assert child.wait(hubs.PATIENCE) == -signal.SIGINT
    raise AssertionError("FAILED ON PURPOSE: sleep is still there")


@pytest.fixture(scope="session")
def kept():
    return start()


def test_a_hub_and_its_broker(kept):
    hub = hubs.Hub(hubs.start("serve", "--port", "0", "--set", "mqtt.enabled=true", "--set", "mqtt.port=0"))
    owners.append(os.environ[processes.VARIABLE])
    assert len(processes.owned(owners[-1])) == 2
    hub.process.kill()
    raise AssertionError("FAILED ON PURPOSE: the broker is an orphan")


@pytest.fixture(scope="module")
def broken():
    start()
    raise AssertionError("FAILED ON PURPOSE in the setup of a fixture")


def test_a_fixture_that_fails(broken):
    pass


def test_all_are_gone_but_those_of_a_fixture(kept):
    assert [bool(processes.owned(each)) for each in owners] == [False, True, False, False]
    assert kept.poll() is None


@pytest.fixture(scope="module")
def never_ended():
    start()
    yield
    raise AssertionError("FAILED ON PURPOSE in the teardown of a fixture")


def test_a_fixture_that_fails_at_its_end(never_ended):
    pass
"""


def test_run_with_sigint_ignored_and_failures_leaves_no_process(tmp_path: Path) -> None:
    # As in this tree, conftest.py is not in the root directory: pytest limits its hooks to its folder.
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "test_parts.py").write_text(PARTS, encoding="utf-8")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    # Failed tests leave objects behind that warn when they are collected; these warnings are not tested here.
    quiet = ("-p", "no:cacheprovider", "-p", "no:unraisableexception")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-n",
        "1",
        *quiet,
    ]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen([*command, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603  ours
    finally:
        signal.signal(signal.SIGINT, before)
    out, _ = process.communicate(timeout=PATIENCE)
    assert re.search(r"^=+ 2 failed, 2 passed, 2 errors in ", out, re.MULTILINE), out
    # With CI=true the summary at the end repeats these texts.
    assert len(re.findall(r"^E +AssertionError: FAILED ON PURPOSE", out, re.MULTILINE)) == 4, out
    assert processes.owned(os.environ[processes.VARIABLE]) == []
