"""A machine on which scripts/ can be tried: its programs are scripts in a folder, and none of them changes anything."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT
from tests.support.processes import mark

COMMON = ("awk", "cat", "env", "mkdir", "mktemp", "rm", "sed", "sh", "tail", "touch")
"""Programs that every system has."""


class Ended(NamedTuple):
    """A script that is over."""

    code: int
    lines: list[str]
    """What it showed."""
    log: str


class Machine:
    """A copy of scripts/ in a folder, and the programs that it finds."""

    def __init__(self, folder: Path, user: int) -> None:
        """Make one, for root (0) or for a user."""
        self.tree = folder / "tree"
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._calls = folder / "calls"
        for name in COMMON:
            (self._programs / name).symlink_to(shutil.which(name) or name)
        self.has("id", f"echo {user}", recorded=False)
        self.has("ldconfig", "", recorded=False)

    def has(self, name: str, body: str = "exit 0", *, recorded: bool = True) -> None:
        """Give it a program, a few lines of shell; its arguments are written down if it is recorded."""
        self.place(self._programs / name, body, recorded=recorded)

    def place(self, path: Path, body: str, *, recorded: bool = True) -> None:
        """Write a program to a path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        record = f'echo "{path.name} $*" >>{self._calls}\n' if recorded else ""
        path.write_text(f"#!/bin/sh\n{record}{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def installs(self, **programs: str) -> None:
        """Give it an apt-get that is noisy, and installs these programs: the package, and the program in it."""
        cases = "\n".join(
            f'case "$*" in *" {package.replace("_", "-")}"*) touch {self._programs / program};'
            f" chmod +x {self._programs / program} ;; esac"
            for package, program in programs.items()
        )
        noise = "\n".join(f"echo noise {number}" for number in range(50))
        self.has("chmod", f'exec {shutil.which("chmod")} "$@"', recorded=False)
        self.has("apt-get", f'{noise}\ncase "$1" in install) ;; *) exit 0 ;; esac\n{cases}')

    @property
    def calls(self) -> list[str]:
        """What the recorded programs were called with."""
        return self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []

    def run(self, script: str, *arguments: str, **variables: str) -> Ended:
        """Run a script of ours to its end."""
        shell = shutil.which("sh")
        assert shell
        done = subprocess.run(  # noqa: S603  our own script
            [shell, self.tree / "scripts" / script, *arguments],
            env={"PATH": str(self._programs), **mark(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == ""
        log = self.tree / ".cache" / f"{script}.log"
        return Ended(done.returncode, done.stderr.splitlines(), log.read_text(encoding="utf-8") if log.exists() else "")
