"""scripts/setup prints one line per step, and writes the output of pip to a log file."""

import re
from pathlib import Path

import pytest

from tests.tools.scripts.machines import Machine

LOCK = "".join(f"{package} \\\n    --hash=sha256:00\n" for package in ("pyspark==4.2.0", "setuptools==80.0", "uv==0.8"))
PIP = "echo 'DEPRECATION: pyspark is built in an old way'\necho 'WARNING: running pip as root' >&2\n"


def new_machine(folder: Path, user: int) -> Machine:
    machine = Machine(folder, user)
    for name in ("requirements-pipeline.lock", "requirements-dev.lock"):
        (machine.tree / name).write_text(LOCK, encoding="utf-8")
    return machine


@pytest.fixture
def machine_with_venv(tmp_path: Path) -> Machine:
    """A machine with a .venv and a noisy pip."""
    machine = new_machine(tmp_path, 0)
    machine.write_program(machine.tree / ".venv/bin/python", f'case "$1" in -m) {PIP} ;; esac')
    return machine


def machine_without_ensurepip(folder: Path, user: int) -> Machine:
    """Return a machine without ensurepip until apt-get installs it."""
    machine = new_machine(folder, user)
    marker = folder / "ensurepip"
    venv = f'{PIP}mkdir -p .venv/bin; printf "#!/bin/sh\\n" >.venv/bin/python; chmod +x .venv/bin/python'
    machine.add_program(
        "python3",
        f'case "$*" in *ensurepip*) [ -e {marker} ] || exit 1 ;; *print*) echo python3.11 ;;'
        f' --version) echo Python 3.11.2 ;; "-m venv"*) [ -e {marker} ] || exit 1; {venv} ;; esac',
        recorded=False,
    )
    machine.add_program("chmod", 'exec /bin/chmod "$@"', recorded=False)
    machine.add_program("apt-get", f'case "$1" in install) touch {marker} ;; esac; echo noise')
    return machine


@pytest.mark.parametrize(
    ("lock_kind", "lock", "marks"),
    [("run", "requirements-pipeline.lock", {".runs"}), ("dev", "requirements-dev.lock", {".runs", ".ready"})],
)
def test_each_step_is_one_line_and_pip_writes_to_the_log(
    machine_with_venv: Machine, lock_kind: str, lock: str, marks: set[str]
) -> None:
    code, lines, log = machine_with_venv.run("setup", lock_kind)
    assert code == 0
    assert lines[0] == f"setup: details are in {machine_with_venv.tree}/.cache/setup.log"
    assert re.fullmatch(
        rf"setup: installing the Python packages of {lock}; the first time about .* MB on disk.*", lines[1]
    )
    assert lines[2:] == ["setup: installing fiveways from this tree"]
    assert "DEPRECATION" in log
    assert "WARNING" in log
    assert {path.name for path in (machine_with_venv.tree / ".venv").glob(".r*")} == marks


def test_packages_are_installed_by_hash_before_the_tree(machine_with_venv: Machine) -> None:
    machine_with_venv.run("setup", "run")
    pip = [call for call in machine_with_venv.calls if " -m pip install " in call]
    assert "--require-hashes -r requirements-pipeline.lock" in pip[0]
    assert "--require-hashes -r /" in pip[1]  # only setuptools, from the other lock file
    assert pip[2].endswith("--no-deps --no-build-isolation --editable .")
    assert len(pip) == 3


def test_failure_of_pip_shows_the_end_of_its_log(machine_with_venv: Machine) -> None:
    noise = 'i=0; while [ $i -lt 99 ]; do i=$((i + 1)); echo "line $i"; done; exit 1'
    machine_with_venv.write_program(machine_with_venv.tree / ".venv/bin/python", f'case "$1" in -m) {noise} ;; esac')
    code, lines, log = machine_with_venv.run("setup", "run")
    assert code != 0
    assert lines[-1] == "    line 99"
    assert len(lines) < 30
    assert "line 1\n" in log
    assert not (machine_with_venv.tree / ".venv/.runs").exists()


def test_root_gets_ensurepip_in_the_version_of_the_installed_python(tmp_path: Path) -> None:
    machine = machine_without_ensurepip(tmp_path, 0)
    machine.add_program("dpkg-query", "printf 3.11.2-6", recorded=False)
    code, lines, _ = machine.run("setup", "run")
    assert code == 0
    assert machine.calls[-1] == "apt-get install -y --no-upgrade --no-install-recommends python3.11-venv=3.11.2-6"
    assert lines[1:4] == [
        "setup: updating the lists of Debian packages",
        "setup: installing Debian packages: python3.11-venv=3.11.2-6",
        "setup: creating .venv with Python 3.11.2",
    ]


def test_root_gets_another_version_if_that_of_the_installed_python_is_unavailable(tmp_path: Path) -> None:
    machine = machine_without_ensurepip(tmp_path, 0)
    machine.add_program("dpkg-query", "printf 3.11.2-6", recorded=False)
    (tmp_path / "ensurepip").unlink(missing_ok=True)
    machine.add_program("apt-get", f'case "$*" in *=*) exit 100 ;; install*) touch {tmp_path}/ensurepip ;; esac')
    assert machine.run("setup", "run").code == 0
    assert machine.calls[-1] == "apt-get install -y --no-upgrade --no-install-recommends python3.11-venv"


def test_user_is_told_the_missing_package(tmp_path: Path) -> None:
    machine = machine_without_ensurepip(tmp_path, 1000)
    command = "sudo apt-get install --no-install-recommends python3.11-venv"
    assert machine.run("setup", "run") == (
        1,
        [f"setup: the Debian package python3.11-venv is missing; install it with: {command}"],
        "",
    )
    assert machine.calls == []
