"""Saved contexts and `FIVEWAYS_URL`: the choice of the hub, against hubs in separate processes."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_output import CommandRunner
from tests.support.hubs import Hub, completions, run, serving

TOKEN = "zebra-crossing-42"  # noqa: S105  token of a test hub
CLOSED = "lrpm+ws://127.0.0.1:1"
"""The URL of a closed port."""
HUB_COMMANDS = ["call", "publish", "subscribe", "discover", "push", "pull", "queues", "check"]


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving("--app", "tests.support.hub_app:app") as running:
        yield running


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("credentials") / "hub.token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, token_file: Path) -> Iterator[Hub]:
    """A hub that requires authentication."""
    config = tmp_path_factory.mktemp("guarded") / "fiveways.toml"
    config.write_text(
        '[auth]\nanonymous = "never"\n'
        f'[[auth.identity]]\nname = "worker"\ntoken_file = "{token_file}"\n'
        f'[[auth.identity]]\nname = "signer"\nsecret_file = "{token_file}"\n'
    )
    with serving("--config", str(config), "--app", "tests.support.hub_app:app") as running:
        yield running


def folder() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"], "fiveways", "contexts")


def test_context_name_replaces_the_url(hub: Hub, said: CommandRunner) -> None:
    said("context", "add", "prod", hub.url("lrpm"))
    assert json.loads(said("call", "prod", "math.add", "[2, 3]")) == 5
    assert json.loads(said("call", "--raw", "prod", "math.add", "[2, 3]")) == 5
    assert said("publish", "prod", "contexts.kept", "7", "--retain") == ""
    assert said("subscribe", "prod", "contexts.kept", "--count", "1") == "7\n"
    assert "math.add" in json.loads(said("discover", "prod"))["methods"]
    assert said("push", "prod", "contexts", "1") == "1\n"
    assert json.loads(said("queues", "prod", "contexts"))["waiting"] == 1
    assert said("pull", "prod", "contexts") == "1\n"
    assert said("check", "prod", "--ping").startswith("FIVEWAYS OK")


def test_hub_is_omitted_when_there_is_a_default_context(hub: Hub, said: CommandRunner) -> None:
    said("context", "add", "prod", hub.url("umq36"))
    said("context", "use", "prod")
    assert json.loads(said("call", "math.add", "[2, 3]")) == 5
    assert said("call", "hub.echo", "-1.5") == "-1.5\n"
    assert json.loads(said("call", "--timeout", "20", "math.add", "--raw", "[2, 3]")) == 5
    assert said("publish", "contexts.omitted", "8", "--retain") == ""
    assert said("subscribe", "contexts.omitted", "--count", "1") == "8\n"
    assert "math.add" in json.loads(said("discover"))["methods"]
    assert said("push", "omitted", "1") == "1\n"
    assert said("queues", "omitted", "--raw").startswith("{")
    assert said("pull", "omitted") == "1\n"
    assert said("check", "--ping").startswith("FIVEWAYS OK")


def test_hub_is_taken_from_argument_then_variable_then_default(
    hub: Hub, said: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("context", "add", "good", hub.url("lrpm"))
    said("context", "add", "bad", CLOSED)
    said("context", "use", "bad")
    said("call", "hub.ping", code=1)
    for value in (hub.url("umq"), "good", " good "):
        monkeypatch.setenv("FIVEWAYS_URL", value)
        said("call", "hub.ping")
    said("call", "bad", "hub.ping", code=1)
    said("call", CLOSED, "hub.ping", code=1)
    monkeypatch.setenv("FIVEWAYS_URL", "bad")
    said("context", "use", "good")
    assert said.err == "fiveways context: FIVEWAYS_URL is set and overrides the default context\n"
    said("call", "hub.ping", code=1)
    said("call", "good", "hub.ping")
    said("call", hub.url("nq+http"), "hub.ping")
    monkeypatch.setenv("FIVEWAYS_URL", "")
    said("call", "hub.ping")


def test_method_named_like_a_context_needs_an_explicit_url(hub: Hub, said: CommandRunner) -> None:
    said("context", "add", "status", hub.url("lrpm"))
    said("context", "use", "status")
    said("call", "status", code=2)
    assert "missing argument 'METHOD'" in said.err
    said("call", hub.url("lrpm"), "status", code=1)
    assert "no such method" in said.err
    said("publish", "status", "status", "1", "--retain")
    assert said("subscribe", "status", "status", "--count", "1") == "1\n"


@pytest.mark.parametrize("credentials", ["token", "secret"])
def test_credential_files_of_the_context_are_used(
    guarded: Hub, said: CommandRunner, token_file: Path, credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"token": ["--token-file"], "secret": ["--identity", "signer", "--secret-file"]}[credentials]
    monkeypatch.chdir(token_file.parent)
    said("context", "add", "prod", guarded.url("lrpm"), *flags, token_file.name)
    monkeypatch.chdir("/")
    assert said("call", "prod", "hub.echo", "1") == "1\n"
    said("call", guarded.url("lrpm"), "hub.echo", "1", code=1)
    said("context", "use", "prod")
    assert said("call", "hub.echo", "1") == "1\n"
    assert said("check", "--ping").startswith("FIVEWAYS OK")


def test_explicit_credentials_override_the_context(
    guarded: Hub, said: CommandRunner, token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    url = guarded.url("lrpm")
    said("context", "add", "right", url, "--token-file", str(token_file))
    said("context", "add", "wrong", url, "--token-file", str(wrong))
    said("call", "wrong", "hub.ping", code=1)
    said("call", "wrong", "hub.ping", "--token-file", str(token_file))
    said("call", "wrong", "hub.ping", "--identity", "signer", "--secret-file", str(token_file))
    said("call", "right", "hub.ping", "--token", "wrong", code=1)
    monkeypatch.setenv("FIVEWAYS_TOKEN", TOKEN)
    said("call", "wrong", "hub.ping")
    monkeypatch.setenv("FIVEWAYS_TOKEN", "wrong")
    said("call", "right", "hub.ping", code=1)


def test_no_secret_is_written_or_shown(guarded: Hub, said: CommandRunner, token_file: Path) -> None:
    commands = [
        ["context", "add", "prod", guarded.url("lrpm"), "--token-file", str(token_file)],
        ["context", "use", "prod"],
        ["context", "list"],
        ["context", "show", "prod"],
        ["call", "hub.ping"],
    ]
    output = [f"{said(*command)}{said.err}" for command in commands]
    written = [path.read_text() for path in folder().rglob("*") if path.is_file()]
    assert len(written) == 2
    assert not any(TOKEN in text for text in [*output, *written])
    assert f'token_file = "{token_file}"' in output[3]


@pytest.mark.parametrize(
    "url",
    [
        "lrpm+ws://worker:zebra@hub:7500",
        "lrpm+ws://zebra@hub:7500",
        "lrpm+ws://[zebra@hub",
        "mqtt-rpc+mqtt://worker:zebra@hub/Greeter",
        "lrpm+wss://hub?token=zebra",
        "lrpm+wss://hub?encoding=cbor&Access_Token=zebra",
        "lrpm+wss://hub/lrpm?PASSWORD=zebra",
        "lrpm+wss://hub/lrpm#api_key=zebra",
    ],
)
def test_url_with_a_secret_is_refused_and_not_shown(said: CommandRunner, url: str) -> None:
    assert said("context", "add", "prod", url, code=2) == ""
    assert "must not contain a name, a password or a token" in said.err
    assert said.err.count("\n") == 1
    assert "zebra" not in said.err
    assert not folder().exists()


def test_files_are_private_even_with_a_permissive_umask(said: CommandRunner) -> None:
    before = os.umask(0)
    try:
        said("context", "add", "prod", CLOSED)
        said("context", "use", "prod")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder().parent, *folder().parent.rglob("*")]}
    assert modes == {"fiveways": 0o700, "contexts": 0o700, "prod.toml": 0o600, "default": 0o600}


@pytest.mark.parametrize("verb", HUB_COMMANDS)
def test_help_shows_an_optional_url_whatever_the_contexts_are(
    verb: str, said: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIVEWAYS_URL", "missing")
    output = said(verb, "--help")
    assert "[URL]" in output
    assert f"fiveways {verb} " in output.split("Example", 1)[1]


@pytest.mark.parametrize("verb", [verb for verb in HUB_COMMANDS if verb != "check"])
def test_command_without_hub_suggests_url_variable_and_default(verb: str, said: CommandRunner) -> None:
    said(verb, code=2)
    assert said.err == (
        f"fiveways {verb}: no hub is given: give a URL or the name of a saved context as the first argument, "
        "set FIVEWAYS_URL, or choose a default with `fiveways context use NAME`; no contexts are saved\n"
    )


def test_unknown_context_is_one_sentence_that_lists_the_saved_ones(
    said: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("context", "add", "prod", CLOSED)
    said("context", "add", "test", CLOSED)
    end = "; saved contexts: prod, test\n"
    said("call", "porx", "math.add", code=2)
    assert said.err.startswith("fiveways call: 'porx' is neither a URL nor a saved context, and there is no default")
    assert said.err.endswith(end)
    said("context", "use", "prod")
    said("call", "porx", "math.add", "[2, 3]", code=2)
    assert said.err == f"fiveways call: 'porx' is neither a URL nor a saved context{end}"
    for command in ("show", "use", "remove"):
        said("context", command, "porx", code=2)
        assert said.err == f"fiveways context: there is no context 'porx'{end}"
    monkeypatch.setenv("FIVEWAYS_URL", "porx")
    said("call", "math.add", code=2)
    assert said.err == f"fiveways call: FIVEWAYS_URL is 'porx', which is neither a URL nor a saved context{end}"


def test_check_reports_an_unusable_context_as_unknown(said: CommandRunner) -> None:
    said("context", "add", "prod", CLOSED)
    line = said("check", "porx", code=3)
    assert line == "FIVEWAYS UNKNOWN - 'porx' is neither a URL nor a saved context; saved contexts: prod\n"
    (folder() / "prod.toml").write_text("url = 5\n")
    assert said("check", "prod", code=3).startswith("FIVEWAYS UNKNOWN - ")
    assert said("check", CLOSED, code=2).startswith("FIVEWAYS CRITICAL - ")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('url = "lrpm+ws://hub"\nidentity = \n', 2, "not valid TOML"),
        ('\nurl = "lrpm+ws://hub"\ntoken = "zebra"\n', 3, "unknown key token"),
        ("url = 5\n", 1, "url must be a string"),
        ('token_file = "t"\n', 1, "url is missing"),
        ('url = "lrpm+ws://hub"\nschema = "a.binpb"\n', 2, "schema must be a list of paths"),
        ('identity = "me"\nurl = "lrpm+ws://me:zebra@hub"\n', 2, "must not contain"),
    ],
)
def test_broken_context_is_one_sentence_with_file_and_line(
    hub: Hub, said: CommandRunner, text: str, line: int, reason: str
) -> None:
    said("context", "add", "good", hub.url("lrpm"))
    path = folder() / "prod.toml"
    path.write_text(text)
    for arguments in (["call", "prod", "hub.ping"], ["context", "show", "prod"], ["context", "use", "prod"]):
        assert said(*arguments, code=2) == ""
        assert f"{path}, line {line}: " in said.err
        assert reason in said.err
        assert said.err.count("\n") == 1
        assert "zebra" not in said.err
    listed = said("context", "list", code=2)
    assert listed == f"  good  {hub.url('lrpm')}\n  prod  (broken)\n"
    # Other contexts and URLs are not affected, and a broken context can be removed or replaced.
    said("call", "good", "hub.ping")
    said("context", "add", "prod", CLOSED, "--force")
    said("context", "remove", "prod")


def test_broken_default_is_one_sentence_and_can_be_chosen_again(hub: Hub, said: CommandRunner) -> None:
    said("context", "add", "prod", hub.url("lrpm"))
    path = folder() / "default"
    path.write_bytes(b"\xff\n")
    said("call", "hub.ping", code=2)
    assert said.err.startswith(f"fiveways call: {path}, line 1: not a valid context name")
    said("call", "prod", "hub.ping")
    said("context", "use", "prod")
    said("call", "hub.ping")


def test_removal_of_the_default_leaves_no_default(said: CommandRunner) -> None:
    said("context", "add", "prod", CLOSED)
    said("context", "add", "test", CLOSED)
    said("context", "use", "prod")
    assert said("context", "list").splitlines() == [f"* prod  {CLOSED}", f"  test  {CLOSED}"]
    assert said("context", "remove", "test") == "Removed context test\n"
    assert said("context", "remove", "prod") == "Removed context prod; there is no default context any more\n"
    assert said("context", "list") == ""
    said("discover", code=2)
    assert "no hub is given" in said.err
    assert list(folder().iterdir()) == []


def test_default_context_without_file_is_named(said: CommandRunner) -> None:
    said("context", "add", "prod", CLOSED)
    said("context", "use", "prod")
    (folder() / "prod.toml").unlink()
    said("discover", code=2)
    assert said.err.startswith("fiveways discover: the default context 'prod' does not exist; ")


@pytest.mark.parametrize("name", ["", "a.b", "a:b", "../up", "a/b", "a b", ".hidden", "_a", "é", "a\n", "x" * 65])
def test_name_outside_the_alphabet_is_refused(name: str, said: CommandRunner) -> None:
    said("context", "add", name, CLOSED, code=2)
    assert "is not a valid context name" in said.err
    assert said.err.count("\n") == 1
    assert not folder().exists()


def test_context_is_replaced_with_force_only(said: CommandRunner) -> None:
    said("context", "add", "prod", CLOSED)
    said("context", "add", "prod", "umq+ws://other", code=2)
    assert said.err == "fiveways context: context 'prod' already exists; --force replaces it\n"
    said("context", "add", "prod", "umq+ws://other", "--force", "--schema", "/a b.binpb", "--schema", '/q"uote')
    assert said("context", "show", "prod") == 'url = "umq+ws://other"\nschema = ["/a b.binpb", "/q\\"uote"]\n'


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["hub"], "must begin with a scheme"),
        (["http://hub"], "has no protocol"),
        (["mqtt-rpc+ftp://hub"], "is not a broker scheme"),
        ([CLOSED, "--identity", "me"], "must be given together"),
        ([CLOSED, "--secret-file", "s"], "must be given together"),
        ([CLOSED, "--token-file", "t", "--identity", "me", "--secret-file", "s"], "cannot be combined"),
    ],
)
def test_unusable_context_is_not_saved(arguments: list[str], reason: str, said: CommandRunner) -> None:
    said("context", "add", "prod", *arguments, code=2)
    assert reason in said.err
    assert not folder().exists()


def test_unwritable_directory_is_one_sentence(said: CommandRunner) -> None:
    folder().parent.write_text("a file in the place of the directory")
    said("context", "add", "prod", CLOSED, code=2)
    assert said.err.endswith(f"prod.toml cannot be written: {folder().parent}: File exists\n")
    assert said("context", "list") == ""


def test_config_home_is_below_the_home_directory_by_default(
    said: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        said("context", "add", "prod", CLOSED, "--force")
    assert [path.name for path in (tmp_path / ".config/fiveways/contexts").iterdir()] == ["prod.toml"]


def test_hub_and_its_settings_ignore_the_variable(
    said: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "fiveways.toml"
    config.write_text("[server]\nport = 0\n")
    with serving("--config", str(config), FIVEWAYS_URL=CLOSED) as hub:
        code, out, err = run("call", "hub.echo", "1", FIVEWAYS_URL=hub.url("lrpm"))
        assert (code, out, err) == (0, "1\n", "")
        code, log = hub.end()
    assert code == 0
    assert "the hub is running" in log
    assert "FIVEWAYS_URL" not in log
    monkeypatch.setenv("FIVEWAYS_URL", CLOSED)
    assert said("config", "check", str(config)).endswith("it sets 1 setting\n")
    assert said.err == ""


def test_shell_completes_contexts_and_urls(said: CommandRunner) -> None:
    said("context", "add", "lrpm-prod", CLOSED)
    assert completions("call", "lrpm") == ["lrpm-prod", "lrpm+ws://localhost:7500", "lrpm+wss://"]
    assert completions("context", "use", "l") == ["lrpm-prod"]
    (folder() / "lrpm-prod.toml").write_text("broken")
    assert completions("call", "lrpm-prod", "ma") == []


def test_shell_completes_methods_and_queues_of_the_chosen_hub(
    guarded: Hub, said: CommandRunner, token_file: Path
) -> None:
    said("context", "add", "prod", guarded.url("lrpm"), "--token-file", str(token_file))
    said("push", "prod", "thumbnails", "1")
    assert completions("call", "prod", "math") == ["math.add"]
    assert completions("pull", "prod", "thumb") == ["thumbnails"]
    assert completions("call", "math") == []
    said("context", "use", "prod")
    assert completions("call", "math") == ["math.add"]
    assert completions("push", "thumb") == ["thumbnails"]
