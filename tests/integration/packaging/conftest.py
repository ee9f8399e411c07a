"""The wheel, built once from a copy of the sources."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from zipfile import ZipFile

import pytest

from tests.support.paths import ROOT

_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@dataclass(frozen=True)
class Wheel:
    """A built wheel: its files, its metadata, and the output of the build."""

    files: frozenset[str]
    metadata: Message
    output: str


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Build without a network: the backend is called directly, in a copy that the build may write into."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    command = [sys.executable, "-c", _BUILD, str(out)]
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # it causes a warning
    result = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)  # noqa: S603
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("fiveways-*.whl")
    with ZipFile(path) as file:
        names = frozenset(file.namelist())
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(file.read(metadata_name).decode())
    return Wheel(names, metadata, result.stdout + result.stderr)
