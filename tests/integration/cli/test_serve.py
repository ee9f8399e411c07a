"""`fiveways serve`: greeting, admission, logging and shutdown."""

import json
import signal
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from fiveways.cli import logs, main
from fiveways.cli.program import program_command
from fiveways.cli.serve import print_greeting
from fiveways.settings.operations import LogSettings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, ServerSettings, Settings
from tests.support.hubs import PATIENCE, run, serving
from tests.support.paths import ROOT

TOKEN = "let-me-in"  # noqa: S105

CONFIG = f"""
[auth]
anonymous = "never"

[[auth.identity]]
name = "ann"
token = "{TOKEN}"

[[auth.identity]]
name = "bob"
secret_file = "bob.secret"
call = ["hub.*"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name, text in (("fiveways.toml", CONFIG), ("bob.secret", "bob's own\n"), ("ann.token", f"{TOKEN}\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    return tmp_path / "fiveways.toml"


def test_greeting_has_urls_a_command_and_reachability() -> None:
    with serving() as hub:
        assert set(hub.urls) >= {"umq", "umq36", "lrpm", "health"}
        port = hub.urls["health"].rpartition(":")[2].partition("/")[0]
        assert f""" -m fiveways call lrpm+ws://localhost:{port} hub.echo '"hello"'\n""" in hub.hints
        assert "Only programs on this machine can connect" in hub.hints
        assert all(name in hub.hints for name in ("server.host", "[[auth.identity]]"))
        code, log = hub.end()
        assert (code, "Traceback" in log) == (0, False)


def test_hints_use_the_command_that_the_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("fiveways", "python"):
        (programs / name).touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    for path, script, module in (
        (programs, "fiveways", "python -m fiveways"),
        (tmp_path, "bin/fiveways", "bin/python -m fiveways"),
    ):
        monkeypatch.setenv("PATH", str(path))
        monkeypatch.setattr(sys, "argv", [str(programs / "fiveways")])
        assert program_command() == script
        monkeypatch.setattr(sys, "argv", ["/lib/fiveways/__main__.py"])
        assert program_command() == module
        monkeypatch.setattr(sys, "argv", ["-c"])
        assert program_command() == "fiveways"


def test_broken_application_is_not_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "broken_app.py").write_text("1 / 0\n", encoding="utf-8")
    code, out, err = run("serve", "--port", "0", "--app", "broken_app:app", PYTHONPATH=f"{ROOT / 'src'}:{tmp_path}")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "ZeroDivisionError" in err


IDENTITY = IdentitySettings("ann", token=Secret(TOKEN))
GREETINGS = [
    (
        Settings(),
        "lrpm+ws://127.0.0.1:1/lrpm",
        "lrpm+ws://localhost:1 hub.echo '\"hello\"'\n",
        "Only programs on this machine",
    ),
    (
        Settings(server=ServerSettings(host="::1")),
        "lrpm+ws://[::1]:1/lrpm",
        "lrpm+ws://[::1]:1 hub.echo",
        "the hub listens on ::1",
    ),
    (
        Settings(server=ServerSettings(host=""), auth=AuthSettings(anonymous="always")),
        "lrpm+ws://0.0.0.0:1/lrpm",
        "lrpm+ws://localhost:1 hub.echo",
        "Any peer that can reach this machine can connect",
    ),
    (
        Settings(server=ServerSettings(host="192.0.2.1"), auth=AuthSettings(anonymous="never", identity=(IDENTITY,))),
        "lrpm+ws://192.0.2.1:1/lrpm",
        "lrpm+ws://192.0.2.1:1 hub.echo '\"hello\"' --token TOKEN\n",
        "must authenticate as one of: ann.",
    ),
]


@pytest.mark.parametrize(("settings", "url", "first", "reach"), GREETINGS)
def test_greeting_depends_on_settings(
    settings: Settings, url: str, first: str, reach: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_greeting([("lrpm", url)], settings, has_app=True)
    output = capsys.readouterr().out
    assert f"  lrpm     {url}\n" in output
    assert f"  fiveways call {first}" in output
    assert reach in output


def test_logs_are_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(level="warning", format="json"))
    logs.LOG.info("too small to tell")
    try:
        int("x")
    except ValueError:
        logs.LOG.exception("it\nbroke")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["text"]) == ("error", "fiveways.serve", "it\nbroke")
    assert "ValueError" in entry["traceback"]
    logs.configure(LogSettings())
    logs.LOG.info("hello\nyou")
    assert capsys.readouterr().err.endswith("INFO    fiveways.serve: hello\\nyou\n")


def test_log_fields_are_keys(capsys: pytest.CaptureFixture[str]) -> None:
    extra = {"fields": {"peer": "ab12", "reason": 'two words, "quoted"\n', "text": "not this", "none": "", "count": 3}}
    logs.configure(LogSettings(format="json"))
    logs.LOG.warning("hello", extra=extra)
    line = json.loads(capsys.readouterr().err)
    assert datetime.fromisoformat(line.pop("at")).tzinfo is not None
    assert line == {
        "level": "warning",
        "logger": "fiveways.serve",
        "text": "hello",
        "peer": "ab12",
        "reason": 'two words, "quoted"\n',
        "count": 3,
    }
    logs.configure(LogSettings())
    logs.LOG.warning("hello", extra=extra)
    text = capsys.readouterr().err.partition("fiveways.serve: ")[2]
    assert text == 'hello peer=ab12 reason="two words, \\"quoted\\"\\n" text="not this" count=3\n'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_hub_with_exit_code_0(number: signal.Signals) -> None:
    with serving() as hub:
        hub.signal(number)
        assert hub.process.wait(timeout=PATIENCE) == 0


def test_port_in_use_is_named_with_a_hint() -> None:
    with serving() as hub:
        port = hub.urls["health"].rpartition(":")[2].partition("/")[0]
        code, out, err = run("serve", "--port", port)
    assert (code, out) == (1, "")
    assert err == f"fiveways serve: port {port} is in use; choose another with --port, or 0 for any free port\n"


def test_public_address_without_authentication_is_refused() -> None:
    code, out, err = run("serve", "--port", "0", "--host", "0.0.0.0")  # noqa: S104
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert all(name in err for name in ("server.host", "[[auth.identity]]", "auth.anonymous"))


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--config", "missing.toml"], 1, "missing.toml: cannot be read: No such file or directory"),
        (["--app", "no_such_module:app"], 2, "there is no module 'no_such_module'"),
        (["--app", "tests.support.hub_app:missing"], 2, "has no 'missing'; it has tests.support.hub_app:app"),
        (["--set", "nonsense"], 2, "--set takes section.key=value, not 'nonsense'"),
        (["--set", "log.level=shout"], 2, "log.level must be one of debug, info, warning, error, not 'shout'"),
        (
            ["--set", "tracing.endpoint=localhost"],
            2,
            "tracing.endpoint must be a URL such as http://localhost:4318/v1/traces",
        ),
        (["--set", "tracing.sample=2"], 2, "tracing.sample"),
        (["--set", "log.levl=info"], 2, "unknown setting log.levl; did you mean log.level?"),
    ],
)
def test_configuration_error_is_one_sentence(arguments: list[str], code: int, sentence: str) -> None:
    exit_code, out, err = run("serve", "--port", "0", *arguments)
    assert (exit_code, out, err.count("\n")) == (code, "", 1)
    assert sentence in err


def test_journal_path_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        code, out, err = run("serve", "--port", "0", "--journal", str(path))
        assert (code, out) == (1, "")
        assert (
            err == f"fiveways serve: journal.path is {path}, which is a file or below a file; it must be a directory\n"
        )


def test_unauthenticated_peers_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret, token_file = str(config.parent / "bob.secret"), str(config.parent / "ann.token")
    with serving("--config", str(config)) as hub:
        for protocol in ("umq", "umq36", "lrpm", "lrpm?encoding=cbor"):
            url = hub.url(protocol)
            assert main(["call", url, "hub.ping", "--token", TOKEN]) == 0
            assert main(["call", url, "hub.ping", "--token-file", token_file]) == 0
            assert main(["call", url, "hub.ping", "--token", "wrong"]) == 1
            assert capsys.readouterr().err == "fiveways call: the hub does not know this token\n"
            assert main(["call", url, "hub.ping"]) == 1
            message = capsys.readouterr().err
            assert "authentication required: no token was given; give one with --token-file FILE or" in message
            assert message.count("\n") == 1
        bob = ["--identity", "bob", "--secret-file", secret]
        assert main(["call", hub.url("lrpm"), "hub.ping", *bob]) == 0
        assert main(["check", hub.url("lrpm"), "--ping", *bob]) == 0
        capsys.readouterr()
        assert main(["call", hub.url("lrpm"), "math.add", *bob]) == 1
        assert "permission denied" in capsys.readouterr().err
        assert run("call", hub.url("umq"), "hub.ping", FIVEWAYS_TOKEN=TOKEN)[0] == 0
        assert TOKEN not in hub.end()[1]


def test_sighup_reloads_valid_settings_and_keeps_old_ones_otherwise(config: Path) -> None:
    with serving("--config", str(config)) as hub:
        config.write_text(CONFIG.replace("never", "nevr"), encoding="utf-8")
        hub.signal(signal.SIGHUP)
        assert "line 3: auth.anonymous must be one of" in hub.log_line("settings not reloaded")
        assert main(["call", hub.url("lrpm"), "hub.ping"]) == 1
        config.write_text(CONFIG.replace("never", "loopback"), encoding="utf-8")
        hub.signal(signal.SIGHUP)
        hub.log_line("settings reloaded")
        assert main(["call", hub.url("lrpm"), "hub.ping"]) == 0


def test_variables_and_options_configure_the_hub() -> None:
    with serving("--set", "log.format=json", FIVEWAYS_LIMITS_MAX_TEXT="2000", FIVEWAYS_LOG_LEVEL="debug") as hub:
        assert main(["call", hub.url("umq"), "hub.echo", f'"{"x" * 1000}"']) == 0
        assert main(["call", hub.url("umq"), "hub.echo", f'"{"x" * 3000}"']) == 1


def test_json_log_lines_are_objects(config: Path) -> None:
    with serving("--config", str(config), "--set", "log.format=json", "--set", "log.level=debug") as hub:
        for protocol in ("umq", "nq", "nq+http"):
            assert main(["call", hub.url(protocol), "hub.ping", "--token", TOKEN]) == 0
            assert main(["call", hub.url(protocol), "hub.ping", "--token", "wrong-one"]) == 1
        code, err = hub.end()
    lines = [json.loads(line) for line in err.splitlines()]
    assert code == 0
    assert all({"at", "level", "logger", "text"} <= set(line) for line in lines)
    opened = [line for line in lines if line["text"] == "session opened"]
    assert {(line["protocol"], line["identity"], line["level"]) for line in opened} == {
        ("umq", "ann", "debug"),
        ("nq", "ann", "debug"),
    }
    refused = [line for line in lines if line["text"].startswith("login refused")]
    assert {(line["protocol"], line["level"]) for line in refused} == {("umq", "warning"), ("nq", "warning")}
    assert {line["from"].rpartition(":")[0] for line in opened + refused} == {"127.0.0.1"}
    (started,) = [line for line in lines if line["text"] == "the hub is running"]
    assert (started["level"], started["pid"], started["version"]) == ("info", hub.process.pid, version("fiveways"))
    assert f"//{started['host']}:{started['port']}/" in hub.url("umq").replace("localhost", "127.0.0.1")
    assert {"the hub is shutting down; draining open calls", "the hub has stopped"} <= {line["text"] for line in lines}
    assert not [secret for secret in (TOKEN, "wrong-one") if secret in err]
