"""Parameters of hub commands with saved contexts."""

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


def parse(command: str, *arguments: str) -> dict[str, Any]:
    with PROGRAM.commands[command].make_context(command, list(arguments)) as context:
        params: dict[str, Any] = context.params
        return params


def test_parameters_that_were_not_given_come_from_the_context() -> None:
    params = parse("call", "broker", "SayHello")
    assert (params["url"], params["method"], params["body"]) == (SAVED.url, "SayHello", None)
    assert (params["identity"], params["secret_file"], params["token_file"]) == ("me", Path("/s"), None)
    assert params["schema"] == [Path("/a.binpb"), Path("/b.binpb")]
    assert "schema" not in parse("publish", "broker", "topic")


def test_given_schema_and_credentials_replace_those_of_the_context() -> None:
    params = parse("call", "broker", "SayHello", "--schema", "c.binpb", "--token", "t")
    assert [str(path) for path in params["schema"]] == ["c.binpb"]
    assert (params["token"], params["identity"], params["secret_file"]) == ("t", "", None)


def test_url_takes_nothing_from_the_default_context() -> None:
    context_store.make_default("broker")
    params = parse("call", "umq+ws://hub", "method")
    assert (params["url"], params["identity"], list(params["schema"] or ())) == ("umq+ws://hub", "", [])
    assert parse("call", "method")["identity"] == "me"


def test_check_falls_back_to_the_local_hub() -> None:
    assert parse("check")["url"] == "http://localhost:7500"
    assert parse("check", "broker")["url"] == SAVED.url
