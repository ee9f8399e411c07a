"""The generated code equals the output of the compiler for rpc.proto; `make proto` regenerates it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src"
FOLDER = Path("fiveways/protocols/mqtt_rpc")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("proto")
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCE}", "--descriptor_set_out=/dev/stdout"]
    command += [f"--mypy_out=quiet:{out}", f"--plugin=protoc-gen-mypy={plugin}", str(SOURCE / FOLDER / "rpc.proto")]
    described = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603  the lock file names it
    with (out / FOLDER / "rpc_pb2.py").open("wb") as file:
        writer = [sys.executable, str(ROOT / "scripts" / "message_classes.py")]
        subprocess.run(writer, check=True, input=described, stdout=file)  # noqa: S603
    return out


@pytest.mark.parametrize("name", ["rpc_pb2.py", "rpc_pb2.pyi"])
def test_generated_code_equals_compiler_output(generated: Path, name: str) -> None:
    created = (generated / FOLDER / name).read_text(encoding="utf-8")
    assert (SOURCE / FOLDER / name).read_text(encoding="utf-8") == created
