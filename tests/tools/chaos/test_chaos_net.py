"""The short form of `make chaos-net`: a lossy network that is cut once, and is removed in the end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.net.namespaces import missing, remove_leftovers
from tests.support.paths import ROOT
from tests.support.processes import mark

NAMESPACES = Path("/run/netns")


@pytest.fixture(scope="module", autouse=True)
def _needs_a_network() -> None:
    if why := missing():
        pytest.skip(why)


def started(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "chaos.net", "--scenario", "short", "--in-flight", "60", *arguments]
    environment = {**os.environ, "PYTHONPATH": path, **mark()}
    return subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def left_by(pid: int) -> list[str]:
    devices = [path.name for path in Path("/sys/class/net").glob(f"fw{pid}*")]
    return devices + [path.name for path in NAMESPACES.glob(f"fiveways-chaos-{pid}-*")]


def test_all_is_answered_after_loss_and_a_partition() -> None:
    with started() as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    name, requests, answered, lost, doubled, wrong, _, dropped, *_ = out.splitlines()[1].split()
    assert (name, lost, doubled, wrong) == ("short", "0", "0", "0")
    assert requests == answered
    assert int(answered) > 0
    assert int(dropped) > 0
    assert left_by(process.pid) == []


def test_interrupted_run_removes_everything() -> None:
    with started() as process:
        assert process.stderr is not None
        while process.stderr.read(1) not in ("\n", ""):  # progress ends with a CR, which is read as LF
            pass
        assert left_by(process.pid) != []
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert left_by(process.pid) == []


def test_next_run_removes_what_a_killed_one_left() -> None:
    with started() as process:
        assert process.stderr is not None
        while process.stderr.read(1) not in ("\n", ""):
            pass
        process.kill()
        process.wait()
        left = left_by(process.pid)
    assert left != []
    remove_leftovers()
    assert left_by(process.pid) == []
