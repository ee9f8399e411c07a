"""The parameters that a hub command takes from a saved context."""

from pathlib import Path
from typing import Any

import pytest
import typer

from fiveways.cli import context_store
from fiveways.cli.context_store import SavedContext
from fiveways.cli.root import app

PROGRAM: Any = typer.main.get_command(app)
SAVED = SavedContext("mqtt-rpc+mqtt://hub/Greeter", None, "me", Path("/s"), (Path("/a.binpb"), Path("/b.binpb")))


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("URL", "TOKEN", "IDENTITY", "SECRET_FILE"):
        monkeypatch.delenv(f"FIVEWAYS_{name}", raising=False)
    context_store.save("broker", SAVED)


def parsed(command: str, *arguments: str) -> dict[str, Any]:
    with PROGRAM.commands[command].make_context(command, list(arguments)) as context:
        found: dict[str, Any] = context.params
        return found


def test_parameters_that_were_not_given_come_from_the_context() -> None:
    found = parsed("call", "broker", "SayHello")
    assert (found["url"], found["method"], found["body"]) == (SAVED.url, "SayHello", None)
    assert (found["identity"], found["secret_file"], found["token_file"]) == ("me", Path("/s"), None)
    assert found["schema"] == [Path("/a.binpb"), Path("/b.binpb")]
    assert "schema" not in parsed("publish", "broker", "topic")


def test_given_schema_and_credentials_replace_those_of_the_context() -> None:
    found = parsed("call", "broker", "SayHello", "--schema", "c.binpb", "--token", "t")
    assert [str(path) for path in found["schema"]] == ["c.binpb"]
    assert (found["token"], found["identity"], found["secret_file"]) == ("t", "", None)


def test_url_takes_nothing_from_the_default_context() -> None:
    context_store.make_default("broker")
    found = parsed("call", "umq+ws://hub", "method")
    assert (found["url"], found["identity"], list(found["schema"] or ())) == ("umq+ws://hub", "", [])
    assert parsed("call", "method")["identity"] == "me"


def test_check_falls_back_to_the_local_hub() -> None:
    assert parsed("check")["url"] == "http://localhost:7500"
    assert parsed("check", "broker")["url"] == SAVED.url
