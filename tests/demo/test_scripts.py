"""What `make run` does before the demo: scripts/programs, as somebody who may not install anything."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.hubs import ROOT
from tests.processes import mark


def programs(wanted: str, path: Path, **variables: str) -> tuple[int, str]:
    """Run scripts/programs with nothing but the programs in a folder."""
    shell = shutil.which("sh")
    assert shell
    done = subprocess.run(  # noqa: S603  our own script
        [shell, ROOT / "scripts" / "programs", wanted],
        env={"PATH": str(path), **mark(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture
def poor(tmp_path: Path) -> Path:
    """A folder with `id` alone, which says that we are nobody."""
    program = tmp_path / "id"
    program.write_text("#!/bin/sh\necho 1000\n", encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def test_without_java_the_demo_is_told_to_do_without_it(poor: Path) -> None:
    code, err = programs("run", poor, CI="true")
    assert code == 0
    assert err == (
        "programs: missing: openjdk-17-jre-headless\nprograms: without java there will be no tables and no report\n"
    )


def test_with_java_there_is_nothing_to_say(poor: Path) -> None:
    (poor / "java").symlink_to(shutil.which("true") or os.devnull)
    assert programs("run", poor) == (0, "")


def test_tests_need_more_and_fail_without_it_where_they_must_not_be_skipped(poor: Path) -> None:
    code, err = programs("test", poor)
    assert code == 0
    assert "tests that need chromium are skipped" in err
    assert programs("test", poor, CI="true")[0] == 1
    assert programs("nonsense", poor)[0] == 2
