"""scripts/setup: one line per step, and pip's output in a log file."""

import re
from pathlib import Path

import pytest

from tests.tools.scripts.machines import Machine

LOCK = "".join(f"{each} \\\n    --hash=sha256:00\n" for each in ("pyspark==4.2.0", "setuptools==80.0", "uv==0.8"))
PIP = "echo 'DEPRECATION: pyspark is built in an old way'\necho 'WARNING: running pip as root' >&2\n"


def new(folder: Path, user: int) -> Machine:
    machine = Machine(folder, user)
    for name in ("requirements-pipeline.lock", "requirements-dev.lock"):
        (machine.tree / name).write_text(LOCK, encoding="utf-8")
    return machine


@pytest.fixture
def ready(tmp_path: Path) -> Machine:
    """A machine that has a .venv, with a noisy pip."""
    machine = new(tmp_path, 0)
    machine.place(machine.tree / ".venv/bin/python", f'case "$1" in -m) {PIP} ;; esac')
    return machine


def bare(folder: Path, user: int) -> Machine:
    """A machine whose Python has no ensurepip until apt-get installs it."""
    machine = new(folder, user)
    there = folder / "ensurepip"
    venv = f'{PIP}mkdir -p .venv/bin; printf "#!/bin/sh\\n" >.venv/bin/python; chmod +x .venv/bin/python'
    machine.has(
        "python3",
        f'case "$*" in *ensurepip*) [ -e {there} ] || exit 1 ;; *print*) echo python3.11 ;;'
        f' --version) echo Python 3.11.2 ;; "-m venv"*) [ -e {there} ] || exit 1; {venv} ;; esac',
        recorded=False,
    )
    machine.has("chmod", 'exec /bin/chmod "$@"', recorded=False)
    machine.has("apt-get", f'case "$1" in install) touch {there} ;; esac; echo noise')
    return machine


@pytest.mark.parametrize(
    ("wanted", "lock", "marks"),
    [("run", "requirements-pipeline.lock", {".runs"}), ("dev", "requirements-dev.lock", {".runs", ".ready"})],
)
def test_each_step_is_one_line_and_pip_is_not_heard(ready: Machine, wanted: str, lock: str, marks: set[str]) -> None:
    code, lines, log = ready.run("setup", wanted)
    assert code == 0
    assert lines[0] == f"setup: details are in {ready.tree}/.cache/setup.log"
    assert re.fullmatch(
        rf"setup: installing the Python packages of {lock}; the first time about .* MB on disk.*", lines[1]
    )
    assert lines[2:] == ["setup: installing fiveways from this tree"]
    assert "DEPRECATION" in log
    assert "WARNING" in log
    assert {path.name for path in (ready.tree / ".venv").glob(".r*")} == marks


def test_packages_are_installed_by_hash_and_the_tree_last(ready: Machine) -> None:
    ready.run("setup", "run")
    pip = [call for call in ready.calls if " -m pip install " in call]
    assert "--require-hashes -r requirements-pipeline.lock" in pip[0]
    assert "--require-hashes -r /" in pip[1]  # setuptools alone, from the other lock file
    assert pip[2].endswith("--no-deps --no-build-isolation --editable .")
    assert len(pip) == 3


def test_failure_of_pip_shows_the_end_of_its_log(ready: Machine) -> None:
    noise = 'i=0; while [ $i -lt 99 ]; do i=$((i + 1)); echo "line $i"; done; exit 1'
    ready.place(ready.tree / ".venv/bin/python", f'case "$1" in -m) {noise} ;; esac')
    code, lines, log = ready.run("setup", "run")
    assert code != 0
    assert lines[-1] == "    line 99"
    assert len(lines) < 30
    assert "line 1\n" in log
    assert not (ready.tree / ".venv/.runs").exists()


def test_root_gets_ensurepip_in_the_version_of_the_installed_python(tmp_path: Path) -> None:
    machine = bare(tmp_path, 0)
    machine.has("dpkg-query", "printf 3.11.2-6", recorded=False)
    code, lines, _ = machine.run("setup", "run")
    assert code == 0
    assert machine.calls[-1] == "apt-get install -y --no-upgrade --no-install-recommends python3.11-venv=3.11.2-6"
    assert lines[1:4] == [
        "setup: updating the lists of Debian packages",
        "setup: installing Debian packages: python3.11-venv=3.11.2-6",
        "setup: creating .venv with Python 3.11.2",
    ]


def test_root_gets_another_version_if_that_of_the_installed_python_is_gone(tmp_path: Path) -> None:
    machine = bare(tmp_path, 0)
    machine.has("dpkg-query", "printf 3.11.2-6", recorded=False)
    (tmp_path / "ensurepip").unlink(missing_ok=True)
    machine.has("apt-get", f'case "$*" in *=*) exit 100 ;; install*) touch {tmp_path}/ensurepip ;; esac')
    assert machine.run("setup", "run").code == 0
    assert machine.calls[-1] == "apt-get install -y --no-upgrade --no-install-recommends python3.11-venv"


def test_user_is_told_which_package_is_missing(tmp_path: Path) -> None:
    machine = bare(tmp_path, 1000)
    command = "sudo apt-get install --no-install-recommends python3.11-venv"
    assert machine.run("setup", "run") == (
        1,
        [f"setup: the Debian package python3.11-venv is missing; install it with: {command}"],
        "",
    )
    assert machine.calls == []
