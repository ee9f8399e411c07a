"""A simulated machine for scripts/: its programs are shell scripts in a folder, and none of them changes anything."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT
from tests.support.processes import mark

COMMON = ("awk", "cat", "env", "mkdir", "mktemp", "rm", "sed", "sh", "tail", "touch")
"""Programs that every system has."""


class ScriptResult(NamedTuple):
    """The result of a script."""

    code: int
    lines: list[str]
    """The lines of stderr."""
    log: str


class Machine:
    """A copy of scripts/ in a folder, and the programs on its PATH."""

    def __init__(self, folder: Path, user: int) -> None:
        """Create the machine for root (0) or for a user."""
        self.tree = folder / "tree"
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._calls = folder / "calls"
        for name in COMMON:
            (self._programs / name).symlink_to(shutil.which(name) or name)
        self.add_program("id", f"echo {user}", recorded=False)
        self.add_program("ldconfig", "", recorded=False)

    def add_program(self, name: str, body: str = "exit 0", *, recorded: bool = True) -> None:
        """Add a program, a few lines of shell; `recorded` also records its arguments."""
        self.write_program(self._programs / name, body, recorded=recorded)

    def write_program(self, path: Path, body: str, *, recorded: bool = True) -> None:
        """Write a program to a path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        record = f'echo "{path.name} $*" >>{self._calls}\n' if recorded else ""
        path.write_text(f"#!/bin/sh\n{record}{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def add_apt_get(self, **programs: str) -> None:
        """Add a noisy apt-get that installs these programs, given as package and program."""
        cases = "\n".join(
            f'case "$*" in *" {package.replace("_", "-")}"*) touch {self._programs / program};'
            f" chmod +x {self._programs / program} ;; esac"
            for package, program in programs.items()
        )
        noise = "\n".join(f"echo noise {number}" for number in range(50))
        self.add_program("chmod", f'exec {shutil.which("chmod")} "$@"', recorded=False)
        self.add_program("apt-get", f'{noise}\ncase "$1" in install) ;; *) exit 0 ;; esac\n{cases}')

    @property
    def calls(self) -> list[str]:
        """The recorded programs with their arguments."""
        return self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []

    def run(self, script: str, *arguments: str, **variables: str) -> ScriptResult:
        """Run a script until it exits."""
        shell = shutil.which("sh")
        assert shell
        result = subprocess.run(  # noqa: S603  our own script
            [shell, self.tree / "scripts" / script, *arguments],
            env={"PATH": str(self._programs), **mark(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.stdout == ""
        log = self.tree / ".cache" / f"{script}.log"
        return ScriptResult(
            result.returncode, result.stderr.splitlines(), log.read_text(encoding="utf-8") if log.exists() else ""
        )
