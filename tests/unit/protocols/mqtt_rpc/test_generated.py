"""The checked-in code is what the compiler makes of rpc.proto; `make proto` writes it anew."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[4] / "src"
FOLDER = Path("fiveways/protocols/mqtt_rpc")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("proto")
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCE}", f"--python_out={out}"]
    command += [f"--mypy_out=quiet:{out}", f"--plugin=protoc-gen-mypy={plugin}", str(SOURCE / FOLDER / "rpc.proto")]
    subprocess.run(command, check=True)  # noqa: S603  a compiler that the lock file names
    return out


@pytest.mark.parametrize("name", ["rpc_pb2.py", "rpc_pb2.pyi"])
def test_it_is_what_the_compiler_writes(generated: Path, name: str) -> None:
    made = (generated / FOLDER / name).read_text(encoding="utf-8")
    assert (SOURCE / FOLDER / name).read_text(encoding="utf-8") == made
