"""The short form of `make chaos`: two kills with all participants, and the command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import uvloop

from chaos.__main__ import Plan, run
from tests.support.paths import ROOT
from tests.support.processes import mark


def chaos(*arguments: str, module: str = "chaos") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": path, **mark()}
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def test_two_kills_cause_no_loss_and_no_duplicate() -> None:
    result = chaos("--kills", "2", "--in-flight", "90", "--seed", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^2 kills, \d+ requests, \d+ answered, lost 0, doubled 0, wrong 0, ", result.stdout, re.MULTILINE)
    for kind in ("requesters", "raw requesters", "queues", "retained", "identities", "reloads", "journal"):
        assert re.search(rf"^  {kind}: .*lost 0, doubled 0, wrong 0, failures 0$", result.stdout, re.MULTILINE), (
            result.stdout
        )


def test_hub_stopped_longer_than_its_peers_timeouts_loses_nothing(tmp_path: Path) -> None:
    participants = frozenset({"services", "requesters"})
    outcome = uvloop.run(run(Plan(kills=0, in_flight=120, seed=7, participants=participants, pause=6.0), tmp_path))
    assert outcome.is_clean, f"{outcome}: {outcome.faults[:5]}"


def test_only_chosen_participants_run() -> None:
    result = chaos("--kills", "0", "--only", "retained,queues", "--without", "queues")
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.findall(r"^  ([a-z ]+):", result.stdout, re.MULTILINE) == ["retained", "hub"]


def test_unknown_participants_are_refused() -> None:
    result = chaos("--only", "queue")
    assert result.returncode == 2
    assert "queue: unknown; there are services, raw-services, requesters," in result.stderr


def test_requesters_without_services_are_refused() -> None:
    result = chaos("--only", "requesters")
    assert result.returncode == 2
    assert "requesters need one of services, raw-services" in result.stderr
