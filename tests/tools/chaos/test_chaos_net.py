"""The short form of `make chaos-net`: a lossy network with one partition, removed at the end."""

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
    if reason := missing():
        pytest.skip(reason)


def start_chaos_net(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "chaos.net", "--scenario", "short", "--in-flight", "60", *arguments]
    environment = {**os.environ, "PYTHONPATH": path, **mark()}
    return subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def leftovers(pid: int) -> list[str]:
    devices = [path.name for path in Path("/sys/class/net").glob(f"fw{pid}*")]
    return devices + [path.name for path in NAMESPACES.glob(f"fiveways-chaos-{pid}-*")]


def test_every_request_is_answered_after_loss_and_a_partition() -> None:
    with start_chaos_net() as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    name, requests, answered, lost, doubled, wrong, _, dropped, *_ = out.splitlines()[1].split()
    assert (name, lost, doubled, wrong) == ("short", "0", "0", "0")
    assert requests == answered
    assert int(answered) > 0
    assert int(dropped) > 0
    assert leftovers(process.pid) == []


def test_interrupted_run_removes_its_namespaces() -> None:
    with start_chaos_net() as process:
        assert process.stderr is not None
        while process.stderr.read(1) not in ("\n", ""):  # progress ends with a CR, which is read as LF
            pass
        assert leftovers(process.pid) != []
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert leftovers(process.pid) == []


def test_next_run_removes_namespaces_of_a_killed_run() -> None:
    with start_chaos_net() as process:
        assert process.stderr is not None
        while process.stderr.read(1) not in ("\n", ""):
            pass
        process.kill()
        process.wait()
        remaining = leftovers(process.pid)
    assert remaining != []
    remove_leftovers()
    assert leftovers(process.pid) == []
