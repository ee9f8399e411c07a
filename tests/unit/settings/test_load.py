"""Tests of the settings: precedence of sources, validation and error texts."""

from pathlib import Path

import pytest

from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.settings.hub_settings import to_hub_settings
from fiveways.settings.limits import LimitSettings
from fiveways.settings.load import SECTIONS, ExposedHubError, is_loopback, load, load_again, read_settings
from fiveways.settings.sections import AuthSettings, IdentitySettings, Secret, Settings
from fiveways.settings.sources import SettingsError
from fiveways.wire.limits import Limits

TOKEN = "a token that nobody may see"  # noqa: S105
SECRET = "a secret that nobody may see"  # noqa: S105


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fiveways.toml"


def write_file(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file


def refusal(file: Path, text: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load(write_file(file, text))
    return caught.value


def test_defaults_admit_this_machine_only() -> None:
    settings = load()
    assert settings == Settings()
    assert (settings.server.host, settings.server.port, settings.auth.anonymous) == ("127.0.0.1", 7500, "loopback")


def test_flags_override_variables_and_variables_override_the_file(file: Path) -> None:
    write_file(file, "[server]\nport = 1\nping_timeout = 1\ndrain_timeout = 1\n[calls]\nmax_timeout = 1\n")
    env = {"FIVEWAYS_SERVER_PORT": "2", "FIVEWAYS_SERVER_PING_TIMEOUT": "2", "UNRELATED": "x"}
    loaded = read_settings(file, env, {"server.port": 3})
    server = loaded.settings.server
    assert (server.port, server.ping_timeout, server.drain_timeout, server.ping_interval) == (3, 2.0, 1.0, 20.0)
    assert {name: str(location) for name, location in loaded.locations.items()} == {
        "server.port": "command line",
        "server.ping_timeout": "FIVEWAYS_SERVER_PING_TIMEOUT",
        "server.drain_timeout": f"{file}, line 4",
        "calls.max_timeout": f"{file}, line 6",
    }


def test_file_sets_values_of_all_types(file: Path) -> None:
    text = """
        [server]
        origins = ["https://a.example"]
        [limits]
        max_text = 1_000
        rate = 5
        [topics.when_full]
        "alarms.*" = "block"
        "log.*" = "skip"
        [umq36]
        default_method = "text.lines"
        [nq]
        answer_ttl = 3600
        [log]
        level = "debug"
    """
    settings = load(write_file(file, text))
    assert settings.server.origins == ("https://a.example",)
    assert settings.limits == LimitSettings(max_text=1000, rate=5.0)
    assert isinstance(settings.limits, Limits)
    assert to_hub_settings(settings).topic_policies == (("alarms.*", "block"), ("log.*", "skip"))
    assert settings.protocol_options()["umq36"] == {"default_method": "text.lines"}
    assert settings.protocol_options()["nq"]["answer_ttl"] == 3600
    assert settings.log.level == "debug"


VARIABLES = [
    ("FIVEWAYS_SERVER_HOST", "::1", "server", "host", "::1"),
    ("FIVEWAYS_SERVER_PORT", "0", "server", "port", 0),
    ("FIVEWAYS_SERVER_ORIGINS", "https://a, https://b", "server", "origins", ("https://a", "https://b")),
    ("FIVEWAYS_SERVER_ORIGINS", '["https://a"]', "server", "origins", ("https://a",)),
    ("FIVEWAYS_SERVER_ORIGINS", "", "server", "origins", ()),
    ("FIVEWAYS_CALLS_TIMEOUT", "2.5", "calls", "timeout", 2.5),
    ("FIVEWAYS_CALLS_TIMEOUT", "2", "calls", "timeout", 2.0),
    ("FIVEWAYS_AUTH_ANONYMOUS", "never", "auth", "anonymous", "never"),
    ("FIVEWAYS_TOPICS_WHEN_FULL", '{ "a.*" = "close" }', "topics", "when_full", {"a.*": "close"}),
    ("FIVEWAYS_UMQ36_DEFAULT_METHOD", "text.lines", "umq36", "default_method", "text.lines"),
]


@pytest.mark.parametrize(("name", "text", "section", "key", "value"), VARIABLES)
def test_variable_is_converted_to_the_type_of_its_setting(
    name: str, text: str, section: str, key: str, value: object
) -> None:
    assert getattr(getattr(load(env={name: text}), section), key) == value


def test_variable_can_set_identities() -> None:
    settings = load(env={"FIVEWAYS_AUTH_IDENTITY": f'[{{ name = "a", token = "{TOKEN}" }}]'})
    assert settings.auth.identity == (IdentitySettings("a", token=Secret(TOKEN)),)


def test_variables_without_a_section_are_ignored() -> None:
    # A cluster sets these for a service of this name.
    env = {"FIVEWAYS_SERVICE_HOST": "10.0.0.1", "FIVEWAYS_PORT": "tcp://10.0.0.1:7500", "FIVEWAYS_TOKEN": "t"}
    assert load(env=env) == Settings()


INVALID_FILES = [
    ("[server]\n\nprt = 1\n", 3, "unknown setting server.prt; did you mean server.port?"),
    ("[server]\ntimeout = 1\n", 2, "unknown setting server.timeout; it belongs to [calls]"),
    ("[log]\nport = 1\n", 2, "unknown setting log.port; it belongs to [server] and [zmq] and [mqtt]"),
    ("[log]\nxyzzy = 1\n", 2, "unknown setting log.xyzzy; [log] has level, format"),
    ("# nothing\nport = 1\n", 2, "port must be in [server] or [zmq] or [mqtt]"),
    ("[sever]\nport = 1\n", 1, "unknown section [sever]; did you mean [server]?"),
    (
        "[xyzzy]\n",
        1,
        f"unknown section [xyzzy]; the sections are {', '.join(f'[{name}]' for name in SECTIONS)}",
    ),
    ("server = 1\n", 1, "server must be a table, written [server]"),
    ('[server]\nport = "x"\n', 2, "server.port must be a whole number from 0 to 65535, not 'x'"),
    ("[server]\nhost = [\n 1,\n]\nport = 65536\n", 2, "server.host must be a text"),
    (
        "[server]\norigins = [\n 'a',\n]\nport = 65536\n",
        5,
        "server.port must be a whole number from 0 to 65535, not 65536",
    ),
    ("[server]\nport = true\n", 2, "server.port must be a whole number from 0 to 65535, not true"),
    ("[server]\norigins = 'a'\n", 2, "server.origins must be a list of texts"),
    ("[server]\ndrain_timeout = 0\n", 2, "server.drain_timeout must be a number above 0, not 0"),
    ("[limits]\nmax_text = -1\n", 2, "limits.max_text must be a whole number, 0 or more, not -1"),
    ("[limits]\nrate = nan\n", 2, "limits.rate must be a number, 0 or more, not nan"),
    ("[calls]\ntimeout = inf\n", 2, "calls.timeout must be a number above 0, not inf"),
    ("[auth]\nanonymous = 'x'\n", 2, "auth.anonymous must be one of loopback, always, never, not 'x'"),
    (
        "[topics]\n[topics.when_full]\na = 'drop'\n",
        2,
        "topics.when_full must be a table of texts, each one of skip, close, unsubscribe, block",
    ),
    ("[auth]\nidentity = 1\n", 2, "auth.identity must be a list of tables, each written [[auth.identity]]"),
    ("[[auth.identity]]\ntoken = 'a'\n", 1, "auth.identity.name is missing"),
    ("[[auth.identity]]\nname = ''\n", 2, "auth.identity.name must be a text that is not empty, not ''"),
    ("[[auth.identity]]\nname = 'a'\n", 1, "'a' needs one of token, token_file, secret, secret_file"),
    (
        "[[auth.identity]]\nname = 'a'\ntoken = 'x'\n\n[[auth.identity]]\nname = 'b'\ntokn = 'x'\n",
        7,
        "unknown setting auth.identity.tokn; did you mean auth.identity.token?",
    ),
    (
        "[[auth.identity]]\nname = 'a'\ntoken = 'x'\n[[auth.identity]]\nname = 'a'\ntoken = 'y'\n",
        4,
        "duplicate identity 'a'",
    ),
    (
        "[[auth.identity]]\nname = 'a'\ntoken = 'x'\n[[auth.identity]]\nname = 'b'\ntoken = 'x'\n",
        4,
        "'b' and 'a' have the same token",
    ),
    (
        "[[auth.identity]]\nname = 'a'\ntoken = 'x'\ntoken_file = 'y'\n",
        4,
        "'a' has both token and token_file",
    ),
    ("[server\nport = 1\n", 1, "not valid TOML: Expected ']' at the end of a table declaration (column 8)"),
    ("[server]\nport = 1\nport = 2\n", 3, "not valid TOML: Cannot overwrite a value (column 9)"),
    ('[server]\nhost = """\n\n', 2, "not valid TOML: Unterminated string"),
]


@pytest.mark.parametrize(("text", "line", "sentence"), INVALID_FILES)
def test_invalid_file_is_refused_with_its_line(file: Path, text: str, line: int, sentence: str) -> None:
    error = refusal(file, text)
    assert str(error) == f"{file}, line {line}: {sentence}"
    assert error.line == line


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"FIVEWAYS_SERVER_PORT": "x"}, "server.port must be a whole number from 0 to 65535, not 'x'"),
        (
            {"FIVEWAYS_SERVER_PORT": "1\nhost = 2"},
            "server.port must be a whole number from 0 to 65535, not '1\\nhost = 2'",
        ),
        ({"FIVEWAYS_SERVER_PROT": "1"}, "unknown setting server.prot; did you mean server.port?"),
        ({"FIVEWAYS_AUTH_IDENTITY": f"[{{name = 'a', token = '{TOKEN}'"}, "auth.identity must be a list of tables"),
    ],
)
def test_invalid_variable_is_refused_with_its_name(env: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(env=env)
    (name,) = env
    assert str(caught.value) == f"{name}: {sentence}"


@pytest.mark.parametrize("pattern", ["(", "x*", ""])
def test_invalid_regular_expression_is_refused(file: Path, pattern: str) -> None:
    error = refusal(file, f"[journal]\nredact_patterns = ['ok', {pattern!r}]\n")
    assert "journal.redact_patterns must be a list of regular expressions" in str(error)


@pytest.mark.parametrize(
    "endpoint",
    [
        *("localhost:4318", "ftp://x", "http:///v1/traces", "http://localhost:99999/v1", "http://localhost:0/v1"),
        *("http://localhost:x", "http://[::1", "http://a b/", "//localhost/v1", "4318"),
    ],
)
def test_invalid_endpoint_is_refused_without_showing_it(file: Path, endpoint: str) -> None:
    error = refusal(file, f"[tracing]\nsample = 1\nendpoint = {endpoint!r}\n")
    requirement = "tracing.endpoint must be a URL such as http://localhost:4318/v1/traces, or empty"
    assert str(error) == f"{file}, line 3: {requirement}"
    assert error.key == "tracing.endpoint"


@pytest.mark.parametrize("endpoint", ["", "http://localhost:4318/v1/traces", "https://u:p@[::1]/v1?key=1"])
def test_endpoint_may_be_a_url_or_empty(file: Path, endpoint: str) -> None:
    file.write_text(f"[tracing]\nendpoint = '{endpoint}'\n")
    assert load(file).tracing.endpoint == endpoint


def test_invalid_flag_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^command line: server.port must be a whole number"):
        load(flags={"server.port": "x"})
    with pytest.raises(SettingsError, match=r"^command line: unknown section \[sever\]"):
        load(flags={"sever.port": "1"})


def test_unreadable_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing.toml: cannot be read: No such file or directory"):
        load(tmp_path / "missing.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"[server]\n# \xff\n")
    with pytest.raises(SettingsError, match=r"binary.toml, line 2: not valid UTF-8"):
        load(binary)


def test_windows_line_ends_and_bom_keep_line_numbers(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1\r\nprt = 2\r\n")
    with pytest.raises(SettingsError, match=r"line 3: unknown setting server.prt"):
        load(file)


def test_secret_file_is_relative_to_the_settings_file(file: Path) -> None:
    for name, text in (("a.token", f"{TOKEN}\n"), ("a.secret", SECRET)):
        write_file(file.parent / name, text)
    settings = load(
        write_file(file, "[[auth.identity]]\nname = 'a'\ntoken_file = 'a.token'\nsecret_file = 'a.secret'\n")
    )
    (identity,) = settings.auth.identity
    assert (identity.token.reveal(), identity.secret.reveal()) == (TOKEN, SECRET)


@pytest.mark.parametrize(("content", "error_text"), [(None, "cannot read {}: No such file"), ("\n", "{} is empty")])
def test_missing_or_empty_secret_file_is_refused(file: Path, content: str | None, error_text: str) -> None:
    if content is not None:
        write_file(file.parent / "a.token", content)
    error = refusal(file, "[[auth.identity]]\nname = 'a'\ntoken_file = 'a.token'\n")
    assert (error.line, error.key) == (3, "auth.identity.token_file")
    assert error_text.format(file.parent / "a.token") in str(error)


def test_world_readable_secrets_cause_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_file(file, f"[[auth.identity]]\nname = 'a'\ntoken = '{TOKEN}'\nsecret_file = 'a.secret'\n")
    secret = write_file(file.parent / "a.secret", SECRET)
    assert read_settings(file).warnings == ()
    for path in (file, secret):
        path.chmod(0o644)
    load(file)
    assert [record.message for record in caplog.records] == [
        f"{file} holds the token of 'a', and every user of this machine can read it: chmod o= {file}",
        f"{secret} holds the secret of 'a', and every user of this machine can read it: chmod o= {secret}",
    ]


def test_secrets_are_redacted_in_texts_and_errors(file: Path) -> None:
    write_file(file, f"[[auth.identity]]\nname = 'a'\ntoken = '{TOKEN}'\nsecret = '{SECRET}'\n")
    loaded = read_settings(file, {"FIVEWAYS_TOKEN": TOKEN})
    settings = loaded.settings
    shown = [repr(settings), str(settings.auth), repr(settings.origin), repr(to_hub_settings(settings))]
    assert [text for text in shown if TOKEN in text or SECRET in text] == []
    assert "token=***" in shown[0]
    assert "secret=''" in repr(IdentitySettings("a", token=Secret("x")))
    assert "nobody" not in str(refusal(file, "[[auth.identity]]\nname = 'a'\ntoken = ['nobody']\n"))


OPEN = [("0.0.0.0", False), ("::", False), ("", False), ("192.0.2.1", False), ("hub.example", False)]  # noqa: S104
LOCAL = [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True)]


@pytest.mark.parametrize(("host", "is_local"), OPEN + LOCAL)
def test_loopback_is_distinguished_from_other_hosts(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


@pytest.mark.parametrize(("host", "_"), OPEN)
def test_exposed_hub_without_identities_is_refused(host: str, _: bool) -> None:
    with pytest.raises(ExposedHubError) as caught:
        load(flags={"server.host": host})
    sentence = str(caught.value)
    assert sentence.startswith(f"command line: server.host = {host!r} makes the hub reachable from other machines")
    assert all(name in sentence for name in ("[[auth.identity]]", 'auth.anonymous = "always"', '"127.0.0.1"'))


@pytest.mark.parametrize("auth", ["[[auth.identity]]\nname = 'a'\ntoken = 'x'\n", "[auth]\nanonymous = 'always'\n"])
def test_exposed_hub_is_allowed_with_an_identity_or_anonymous_always(file: Path, auth: str) -> None:
    assert load(write_file(file, f"[server]\nhost = '0.0.0.0'\n{auth}")).server.host == "0.0.0.0"  # noqa: S104


def test_load_again_reads_the_same_sources(file: Path) -> None:
    write_file(file, "[log]\nlevel = 'debug'\n[calls]\ntimeout = 5\n")
    settings = load(file, {"FIVEWAYS_CALLS_TIMEOUT": "7"}, {"server.port": 0})
    write_file(file, "[log]\nlevel = 'error'\n[calls]\ntimeout = 6\n")
    later = load_again(settings)
    assert (later.log.level, later.calls.timeout, later.server.port) == ("error", 7.0, 0)
    write_file(file, "[log]\nlevel = 'shout'\n")
    with pytest.raises(SettingsError, match=r"line 2: log.level must be one of"):
        load_again(later)
    assert load_again(Settings()) == Settings()


def test_hub_settings_are_converted() -> None:
    defaults = to_hub_settings(Settings())
    assert defaults == HubSettings(version=defaults.version)
    identity_settings = IdentitySettings("a", token=Secret("t"), secret=Secret("s"), call=("x.*",), offer=())
    auth = AuthSettings(anonymous="never", login_timeout=1.0, publish=("y",), identity=(identity_settings,))
    hub_settings = to_hub_settings(Settings(auth=auth, limits=LimitSettings(max_queue=5, rate=9.0)))
    (identity,) = hub_settings.identities
    assert identity == Identity("a", "t", "s", Permissions(call=("x.*",), offer=()))
    assert (hub_settings.anonymous_permissions, hub_settings.anonymous, hub_settings.login_timeout) == (
        Permissions(publish=("y",)),
        "never",
        1.0,
    )
    assert (hub_settings.max_queue, hub_settings.rate) == (5, 9.0)
