"""A client-only install: all client features work, and other features name the extra that they need."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from fiveways import extras
from tests.support import hubs

_BLOCKED = {name.partition(".")[0] for names in extras.MODULES.values() for name in names}
_BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
_COMMANDS = """
import io, json
from contextlib import redirect_stderr, redirect_stdout

from fiveways.cli import main

ended = []
for line in sys.argv[1:]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(json.loads(line))
    ended.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""
_CALLS = """
import asyncio, fiveways

async def call(url):
    async with fiveways.connect(url) as peer:
        print(await peer.call("math.add", [2, 3]))

for url in sys.argv[1:]:
    asyncio.run(call(url))
"""
_APP = """
import asyncio, fiveways

app = fiveways.App()

@app.method("client.double")
async def double(n: int) -> int:
    return 2 * n

async def main(url):
    async with fiveways.connect(url, app=app), fiveways.connect(url) as caller:
        print(await caller.call("client.double", [21]))
    with fiveways.connect_sync(url) as caller:
        print(caller.call("hub.ping"))

asyncio.run(main(sys.argv[1]))
"""
_IMPORTS = """
from importlib import import_module

for name in sys.argv[1:]:
    try:
        import_module(name)
    except ImportError as exc:
        print(exc)
"""
_MQTT = """
import asyncio, fiveways

async def main(url):
    async with fiveways.connect_mqtt(url) as peer:
        print(await peer.call("hub.ping"))

asyncio.run(main(sys.argv[1]))
"""
OTHER_COMMANDS = {
    "serve": ("hub", ""),
    "demo": ("hub", ""),
    "tail": ("journal", "journal"),
    "trace": ("journal", "c1 journal"),
    "replay": ("journal", "journal lrpm+ws://localhost:1"),
    "report": ("journal", "--tables tables"),
    "sql": ("pipeline", "select"),
    "pipeline run": ("pipeline", "--journal journal --out tables"),
    "pipeline watch": ("pipeline", "--journal journal --out tables"),
    "pipeline tables": ("pipeline", ""),
}
"""Other commands: the extra that each needs, and valid arguments."""
CLIENT_COMMANDS = ["call", "publish", "subscribe", "discover", "push", "pull", "queues", "check", "traffic", "config"]


def run(program: str, *arguments: str) -> tuple[int, str, str]:
    """Run a program in a Python without the packages of any extra."""
    result = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", _BLOCKER + program, *arguments],
        env=hubs.environment(),
        capture_output=True,
        text=True,
        timeout=5 * hubs.PATIENCE,  # some programs run ten commands
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def run_commands(*commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Run `fiveways` commands in one such Python; return exit code, output and errors of each."""
    code, out, err = run(_COMMANDS, *map(json.dumps, commands))
    assert (code, err) == (0, "")
    return [tuple(result) for result in json.loads(out)]


@pytest.fixture(scope="module")
def hub() -> Iterator[hubs.Hub]:
    flags = ("--set", "zmq.listen=true", "--set", "zmq.port=0", "--set", "mqtt.enabled=true", "--set", "mqtt.port=0")
    with hubs.serving("--app", "fiveways.demo.app:app", *flags) as running:
        yield running


def test_client_calls_in_every_protocol_and_transport(hub: hubs.Hub) -> None:
    urls = [
        hub.url(protocol) for protocol in ("umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq+ws", "nq+http", "nq+zmq")
    ]
    code, out, err = run(_CALLS, *urls)
    assert (code, err) == (0, "")
    assert [float(line) for line in out.split()] == [5.0] * len(urls)


def test_client_calls_the_hub_through_a_broker(hub: hubs.Hub) -> None:
    broker = next(url for url in hub.urls.values() if "mqtt://" in url)
    assert run(_MQTT, "mqtt://" + broker.partition("mqtt://")[2]) == (0, "pong\n", "")


def test_app_serves_methods_and_sync_client_calls(hub: hubs.Hub) -> None:
    assert run(_APP, hub.url("lrpm")) == (0, "42\npong\n", "")


def test_all_commands_have_help() -> None:
    names = [name.split() for name in (*CLIENT_COMMANDS, *OTHER_COMMANDS)]
    for name, (code, out, err) in zip(names, run_commands(*([*name, "--help"] for name in names)), strict=True):
        assert (code, err) == (0, ""), name
        assert f"fiveways {' '.join(name)}" in out


def test_client_commands_run(hub: hubs.Hub) -> None:
    url = hub.url("lrpm")
    results = run_commands(
        ["call", url, "math.add", "[2, 3]"],
        ["publish", url, "news", '"x"', "--retain"],
        ["subscribe", url, "news", "--count", "1"],
        ["discover", url, "text.shout"],
        ["push", url, "jobs", "7"],
        ["queues", url],
        ["check", url],
        ["config", "show"],
    )
    assert [code for code, _, _ in results] == [0] * len(results), results
    assert [out for _, out, _ in results[:3]] == ["5.0\n", "", '"x"\n']


def test_other_commands_name_the_missing_extra() -> None:
    commands = [[*name.split(), *arguments.split()] for name, (_, arguments) in OTHER_COMMANDS.items()]
    for (name, (extra, _)), result in zip(OTHER_COMMANDS.items(), run_commands(*commands), strict=True):
        assert result == (1, "", f"fiveways {name} needs the {extra} extra: pip install 'fiveways[{extra}]'\n")


def test_import_without_the_extra_raises_a_readable_error() -> None:
    modules = {
        "fiveways.runtime.server": "hub",
        "fiveways.journal.reader": "journal",
        "fiveways.replay.replayer": "journal",
        "fiveways.pipeline.report.page": "journal",
        "fiveways.pipeline.gold.slo": "pipeline",
        "fiveways.pipeline.peer": "pipeline",
    }
    code, out, err = run(_IMPORTS, *modules)
    assert (code, err) == (0, "")
    for line, extra in zip(out.splitlines(), modules.values(), strict=True):
        assert line.startswith("fiveways."), line
        assert line.endswith(f" needs the {extra} extra: pip install 'fiveways[{extra}]'")
