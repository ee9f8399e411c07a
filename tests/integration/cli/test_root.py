"""Help, usage errors and shell completion."""

import subprocess
import sys
from pathlib import Path

import pytest

from fiveways.cli import main
from tests.support.hubs import completions

COMMANDS = [
    *("serve", "call", "publish", "subscribe", "discover", "push", "pull", "queues", "clock"),
    *("check", "config check", "config show"),
    *("context add", "context list", "context show", "context use", "context remove"),
    "traffic",
    *("tail", "trace", "replay"),
    "proto",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    output = capsys.readouterr().out
    assert "Example" in output
    assert f"fiveways {command}" in output.split("Example", 1)[1]


@pytest.mark.parametrize("command", ["", "config", "context", *COMMANDS])
def test_help_fits_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    output = capsys.readouterr().out
    assert "<bool>" not in output
    assert "range>" not in output
    examples = [line for line in output.splitlines() if line.startswith(("  fiveways", "   fiveways"))]
    assert examples
    assert all(line.startswith("   fiveways") for line in examples)


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert [command for command in COMMANDS if command.split()[0] not in output] == []
    assert all(code in output for code in ("0 success", "1 failure", "2 wrong", "124 timeout", "--install-completion"))


def test_missing_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    output = capsys.readouterr()
    assert "fiveways serve" in output.out
    assert output.err == ""


def test_help_imports_neither_the_hub_nor_the_network() -> None:
    code = "import sys; from fiveways.cli import main; main(['--help']); sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    modules = set(done.stderr.split())
    assert "fiveways.cli.root" in modules
    heavy = {"picows", "uvloop", "msgspec", "fiveways.hub", "fiveways.client", "fiveways.runtime", "fiveways.app"}
    assert modules & heavy == set()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frob"], "fiveways: no such command 'frob'; `fiveways --help` shows an example\n"),
        (
            ["call", "lrpm+ws://hub"],
            "fiveways call: missing argument 'METHOD'; `fiveways call --help` shows an example\n",
        ),
        (
            ["call", "a", "b", "--frob"],
            "fiveways call: no such option: --frob; `fiveways call --help` shows an example\n",
        ),
        (["call", "lrpm+ws://hub", "m", "1", "2"], None),
        (["serve", "--port", "70000"], None),
        (["subscribe", "lrpm+ws://hub", "t", "--count", "0"], None),
        (["push", "nq+ws://hub"], "fiveways push: missing argument 'QUEUE'; `fiveways push --help` shows an example\n"),
        (["pull", "lrpm+ws://hub", "q", "--count", "0"], None),
        (["pull", "lrpm+ws://hub", "q", "--timeout", "0"], None),
        (["config", "frob"], None),
    ],
)
def test_usage_error_is_one_sentence_and_returns_2(
    arguments: list[str], sentence: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert sentence is None or output.err == sentence


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fiveways ")


def test_shell_completes_commands_and_urls() -> None:
    assert completions("su") == ["subscribe"]
    assert completions("call", "lrpm") == ["lrpm+ws://localhost:7500", "lrpm+wss://"]


@pytest.mark.parametrize("command", ["call", "push", "pull", "queues"])
def test_completion_is_silent_if_hub_is_unreachable(command: str) -> None:
    assert completions(command, "lrpm+ws://127.0.0.1:1", "ma") == []


def test_proto_prints_a_valid_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["proto"]) == 0
    (tmp_path / "rpc.proto").write_text(capsys.readouterr().out)
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={tmp_path}", f"--python_out={tmp_path}"]
    subprocess.run([*compiler, "rpc.proto"], check=True)  # noqa: S603  our own schema
    assert b"TimeoutUnit" in (tmp_path / "rpc_pb2.py").read_bytes()
