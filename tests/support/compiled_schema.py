"""The schemas of the tests, compiled once per process."""

import importlib.util
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.support.paths import PROTO_FOLDER

SCHEMAS = PROTO_FOLDER
PATIENCE = 300.0

# The folder is removed when the process exits.
_folder = tempfile.TemporaryDirectory(prefix="fiveways-schemas-")


class Schema(NamedTuple):
    """A descriptor set with imports and comments, and the generated code."""

    path: Path
    module: ModuleType


@cache
def greeter() -> Schema:
    """Return tests/support/proto/greeter.proto, compiled."""
    folder = Path(_folder.name)
    path = folder / "greeter.binpb"
    flags = ["--include_imports", "--include_source_info", f"--descriptor_set_out={path}", f"--python_out={folder}"]
    protoc(*flags, f"--proto_path={SCHEMAS}", "greeter.proto")
    return Schema(path, _imported(folder / "greeter_pb2.py"))


@cache
def crossing() -> Path:
    """Return tests/support/proto/crossing.proto as a descriptor set, with its comments."""
    path = Path(_folder.name) / "crossing.binpb"
    flags = ["--include_imports", "--include_source_info", f"--descriptor_set_out={path}"]
    protoc(*flags, f"--proto_path={SCHEMAS}", "crossing.proto")
    return path


def compiled(folder: Path, text: str, *flags: str, name: str = "some") -> Path:
    """Compile the text of a .proto file to a descriptor set, with its imports unless flags are given."""
    (folder / f"{name}.proto").write_text(text, encoding="utf-8")
    path = folder / f"{name}.binpb"
    flags = flags or ("--include_imports",)
    protoc(*flags, f"--descriptor_set_out={path}", f"--proto_path={folder}", f"{name}.proto")
    return path


def protoc(*arguments: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603 - our own
    assert result.returncode == 0, result.stderr


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
