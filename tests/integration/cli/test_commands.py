"""The commands against a hub in a separate process, in every protocol."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_output import CommandRunner
from tests.support.hubs import PATIENCE, Hub, completions, run, serving, start

PROTOCOLS = ["umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq+ws", "nq+http"]
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving("--app", "tests.support.hub_app:app") as running:
        yield running


@every_protocol
def test_call_prints_the_result(hub: Hub, said: CommandRunner, protocol: str) -> None:
    url = hub.url(protocol)
    assert said("call", url, "hub.echo", '"hello"') == '"hello"\n'
    assert json.loads(said("call", url, "math.add", "[2, 3]")) == 5
    assert json.loads(said("call", url, "math.add", '{"a": 2, "b": 3}')) == 5
    assert said("call", url, "text.shout", '"hey"', "--raw") == "HEY\n"
    assert said("call", url, "hub.echo", "-1.5") == "-1.5\n"
    assert said("call", url, "bytes.make", "3") == '{"$base64":"AAEC"}\n'
    assert said.err == ""


def test_url_path_is_optional(hub: Hub, said: CommandRunner) -> None:
    assert said("call", hub.url("lrpm").removesuffix("/lrpm"), "hub.echo", "1") == "1\n"


@every_protocol
def test_failed_call_prints_one_sentence_and_returns_1(hub: Hub, said: CommandRunner, protocol: str) -> None:
    url = hub.url(protocol)
    assert said("call", url, "no.such", code=1) == ""
    assert said.err.startswith("fiveways call: no such method")
    said("call", url, "math.add", '["x", 1]', code=1)
    assert said.err.startswith("fiveways call: bad arguments: ")
    said("call", url, "demo.fail", code=1)
    assert "no luck" in said.err
    assert said.err.count("\n") == 1


@every_protocol
def test_call_timeout_returns_124(hub: Hub, said: CommandRunner, protocol: str) -> None:
    assert said("call", hub.url(protocol), "demo.sleep", "--timeout", "0.3", code=124) == ""
    assert said.err.count("\n") == 1


@every_protocol
def test_streamed_response_prints_a_line_per_part(hub: Hub, said: CommandRunner, protocol: str) -> None:
    assert said("call", hub.url(protocol), "demo.countdown", "2", "--stream") == "2\n1\n0\n"
    assert json.loads(said("call", hub.url(protocol), "demo.countdown", "2")) == [2, 1, 0]


@every_protocol
def test_attachments_are_sent_and_saved(hub: Hub, said: CommandRunner, protocol: str, tmp_path: Path) -> None:
    contents = {"a": b"first \x00", "b": bytes(3000)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    attach = [argument for name in contents for argument in ("--attach", str(tmp_path / name))]
    url, directory = hub.url(protocol), tmp_path / "kept"
    assert said("call", url, "files.swap", *attach, "--save-attachments", str(directory)) == "2\n"
    assert [path.read_bytes() for path in sorted(directory.iterdir())] == [contents["b"], contents["a"]]
    assert said("call", url, "files.swap", *attach) == "2\n"
    assert "the response has 2 attachments; save them with --save-attachments DIR" in said.err


@every_protocol
def test_retained_value_is_published_and_received(hub: Hub, said: CommandRunner, protocol: str) -> None:
    url, topic = hub.url(protocol), f"cli.{PROTOCOLS.index(protocol)}.kept"
    assert said("publish", url, topic, '{"heat": 21.5}', "--retain") == ""
    assert said("subscribe", url, topic, "--count", "1") == '{"heat":21.5}\n'
    pattern = topic.replace("kept", "*")
    output = json.loads(said("subscribe", url, pattern, "--count", "1", "--envelope"))
    assert output == {"topic": topic, "data": {"heat": 21.5}}


@every_protocol
def test_subscribe_prints_events_from_other_protocols(hub: Hub, said: CommandRunner, protocol: str) -> None:
    topic = f"cli.{PROTOCOLS.index(protocol)}.live"
    # The retained value proves that the subscription exists.
    said("publish", hub.url("umq"), topic, "0", "--retain")
    process = start("subscribe", hub.url(protocol), topic, "--count", "3")
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    said("publish", hub.url("lrpm"), topic, "1")
    said("publish", hub.url("umq36"), topic, "2")
    assert process.communicate(timeout=PATIENCE) == ("1\n2\n", "")
    assert process.returncode == 0


def test_ctrl_c_ends_subscribe_without_output(hub: Hub, said: CommandRunner) -> None:
    said("publish", hub.url("umq"), "cli.interrupted", "0", "--retain")
    process = start("subscribe", hub.url("lrpm"), "cli.interrupted")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_closed_stdout_ends_subscribe_without_output(hub: Hub, said: CommandRunner) -> None:
    said("publish", hub.url("umq"), "cli.piped", "0", "--retain")
    process = start("subscribe", hub.url("lrpm"), "cli.piped")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    said("publish", hub.url("umq"), "cli.piped", "1")
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=PATIENCE) == 0


def test_subscribe_ends_after_timeout(hub: Hub, said: CommandRunner) -> None:
    url = hub.url("lrpm")
    assert said("subscribe", url, "cli.silent", "--timeout", "0.2") == ""
    assert said("subscribe", url, "cli.silent", "--timeout", "0.2", "--count", "1", code=124) == ""
    assert said.err == "fiveways subscribe: 0 of 1 events arrived within 0.2 s\n"


@every_protocol
def test_methods_are_discovered(hub: Hub, said: CommandRunner, protocol: str) -> None:
    url = hub.url(protocol)
    listing = json.loads(said("discover", url))
    assert "math" in "".join(listing["methods"])
    assert any(route.startswith("hub") for route in listing["routes"])
    name = next(method for method in listing["methods"] if method.startswith("math"))
    assert said("discover", url, name, "--raw") == "Add two numbers.\n"
    said("discover", url, "no.such", code=1)
    assert json.loads(said("discover", url, "math.")) == {"methods": ["add"], "routes": []}
    said("discover", url, "nothing.", code=1)
    assert said.err == "fiveways discover: there is no route nothing.; `fiveways discover URL` lists all routes\n"


def test_method_without_documentation_prints_empty_string_and_note(hub: Hub, said: CommandRunner) -> None:
    assert said("discover", hub.url("lrpm"), "text.shout") == '""\n'
    assert said.err == "fiveways discover: text.shout has no documentation\n"
    said("discover", hub.url("lrpm"), "math.add")
    assert said.err == ""


def test_long_list_is_truncated_with_a_note(said: CommandRunner) -> None:
    with serving("--app", "tests.support.hub_app:app", "--set", "limits.max_text=200") as running:
        listing = json.loads(said("discover", running.url("lrpm")))
        assert listing["methods"]
        assert listing["routes"][-1] == "hub."
        assert "the list is too large for one message; " in said.err
        assert completions("call", running.url("lrpm"), "") == listing["methods"]


def test_shell_completes_methods(hub: Hub) -> None:
    assert completions("call", hub.url("lrpm"), "ma") == ["math.add"]


def test_check_of_running_hub_is_ok(hub: Hub, said: CommandRunner) -> None:
    http = hub.urls["health"].removesuffix("/livez")
    assert said("check", http).startswith("FIVEWAYS OK - alive and ready")
    assert "ping=" in said("check", http, "--ping")
    for protocol in PROTOCOLS:
        assert "ping=" in said("check", hub.url(protocol), "--ping", "--warning", "60")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["call", "ftp://localhost", "x"], "use one of umq+ws://"),
        (["call", "http://localhost", "x"], "use one of nq+http://"),
        (["call", "lrpm+ws://localhost:1", "x", "hello"], "'hello' is not JSON"),
        (["call", "lrpm+ws://localhost:1", "x", "--attach", "/no/such"], "/no/such cannot be read"),
        (["call", "lrpm+ws://localhost:1", "x", "--secret-file", "/no/such"], "/no/such cannot be read"),
        (
            ["call", "lrpm+ws://localhost:1", "x", "--identity", "a"],
            "--identity and --secret-file must be given together",
        ),
        (
            ["call", "lrpm+ws://localhost:1", "x", "--stream", "--attach", "x"],
            "--stream cannot be combined with attachments",
        ),
        (["call", "lrpm+ws://localhost:1", "x", "--stream", "--verbose"], "--stream cannot be combined with --verbose"),
        (["publish", "lrpm+ws://localhost:1", "x", "{"], "'{' is not JSON"),
        (["publish", "lrpm+ws://localhost:1", "a.*"], "the topic 'a.*' holds the wildcard '*'"),
        (["subscribe", "lrpm+ws://localhost:1", "a.**"], "the pattern has '**' in '**'"),
    ],
)
def test_usage_error_returns_2_without_connecting(said: CommandRunner, arguments: list[str], sentence: str) -> None:
    assert said(*arguments, code=2) == ""
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["call", "publish", "subscribe", "discover", "push", "pull", "queues"])
def test_unreachable_hub_returns_1(said: CommandRunner, verb: str) -> None:
    said(verb, "lrpm+ws://127.0.0.1:1", "x", code=1)
    assert said.err.startswith(f"fiveways {verb}: cannot connect to lrpm+ws://127.0.0.1:1")
    assert said.err.count("\n") == 1


def test_program_returns_exit_codes(hub: Hub) -> None:
    url = hub.url("lrpm")
    assert run("call", url, "hub.echo", '"hello"') == (0, '"hello"\n', "")
    assert run("call", url, "no.such")[0] == 1
    assert run("call", url)[0] == 2
    assert run("call", url, "demo.sleep", "--timeout", "0.3")[0] == 124
    assert run("check", url)[0] == 0
