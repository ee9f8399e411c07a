"""fiveways.js with a hub that is killed, restarted, replaced, closed to the client, or sends invalid frames."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.processes import low_port
from tests.integration.web.engines import Engine, Scenario, run, site
from tests.integration.web.fakes import FakeHub, serving
from tests.support import hubs
from tests.support.freezing import freeze, thaw

SCHEMES = ["umq+ws", "lrpm+ws", "nq+ws", "nq+http"]
KILLS = [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGTERM, id="stopped")]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


class RestartableHub:
    """A hub that can be stopped, and restarted on its port."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = (*arguments, "--app", "examples.app:app", "--set", "server.drain_timeout=0.1")
        self.port = str(low_port())
        self.start()

    def end(self, number: signal.Signals) -> None:
        self.hub.signal(number)
        self.hub.process.communicate(timeout=hubs.PATIENCE)

    def close(self) -> None:
        self.hub.end()

    def start(self, *arguments: str) -> None:
        self.hub = hubs.Hub(hubs.start("serve", "--port", self.port, *self._arguments, *arguments))
        assert self.hub.urls, self.hub.end()


@pytest.fixture
def restartable_hub(request: pytest.FixtureRequest) -> "Callable[..., RestartableHub]":
    """Returns a function that starts hubs, which are stopped after the test."""

    def make(*arguments: str) -> RestartableHub:
        started = RestartableHub(*arguments)
        request.addfinalizer(started.close)
        return started

    return make


@every_scheme
@pytest.mark.parametrize("kill_signal", KILLS)
def test_session_state_is_restored(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str, kill_signal: signal.Signals
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "restored", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("ready")
    restartable.end(kill_signal)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()


def test_responses_on_two_connections_are_handled_in_order(
    engine: Engine, restartable_hub: Callable[..., RestartableHub]
) -> None:
    restartable = restartable_hub()
    run(engine, "overtaken", url=restartable.hub.url("nq+http"), wsUrl=restartable.hub.url("nq+ws"))


@every_scheme
def test_pending_calls_after_a_kill(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "interrupted", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("calling")
    restartable.end(signal.SIGKILL)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()


@pytest.mark.parametrize("scheme", ["nq+ws", "nq+http"])
def test_hub_with_a_store_continues(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str, tmp_path: Path
) -> None:
    restartable = restartable_hub("--set", f"store.path={tmp_path / 'store'}")
    for case, word in (("restored", "ready"), ("interrupted", "calling")):
        scenario = Scenario(engine, case, {"url": restartable.hub.url(scheme)})
        scenario.wait_for(word)
        restartable.end(signal.SIGKILL)
        restartable.start()
        scenario.signal("restarted")
        scenario.end()


@every_scheme
def test_calls_served_by_a_page_end_with_the_hub(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "serving_through", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("ready")
    restartable.end(signal.SIGKILL)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()


@every_scheme
def test_client_without_reconnect_closes(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "once", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("ready")
    restartable.end(signal.SIGKILL)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()


@pytest.mark.parametrize("scheme", ["umq+ws", "lrpm+ws", "nq+ws"])
def test_client_leaves_a_silent_hub(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], scheme: str
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "silent", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("connected")
    freeze(restartable.hub.process.pid)
    try:
        scenario.wait_for("left")
    finally:
        thaw(restartable.hub.process.pid)
    scenario.signal("thawed")
    scenario.end()


# Authentication.

TOKEN = "of-ann/+?=~"  # noqa: S105  made for this test


@pytest.fixture
def guarded(tmp_path: Path) -> list[str]:
    """Flags of a hub that requires authentication."""
    file = tmp_path / "fiveways.toml"
    file.write_text(
        f"""
[auth]
anonymous = "never"

[[auth.identity]]
name = "ann"
token = "{TOKEN}"
call = ["*"]

[[auth.identity]]
name = "bob"
secret = "a long secret of bob"
call = ["*"]
""",
        encoding="utf-8",
    )
    return ["--config", str(file)]


@every_scheme
def test_token_signs_in_after_each_reconnect(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], guarded: list[str], scheme: str
) -> None:
    restartable = restartable_hub(*guarded)
    scenario = Scenario(engine, "let_in", {"url": restartable.hub.url(scheme), "token": TOKEN})
    scenario.wait_for("ready")
    restartable.end(signal.SIGKILL)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()
    run(engine, "refused", url=restartable.hub.url(scheme), token=TOKEN)


def test_secret_signs_in_without_being_sent(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], guarded: list[str]
) -> None:
    restartable = restartable_hub(*guarded)
    login = {"identity": "bob", "secret": "a long secret of bob"}
    scenario = Scenario(engine, "let_in", {"url": restartable.hub.url("lrpm+ws"), **login})
    scenario.wait_for("ready")
    restartable.end(signal.SIGKILL)
    restartable.start()
    scenario.signal("restarted")
    scenario.end()


@every_scheme
def test_refused_client_stops_reconnecting(
    engine: Engine, restartable_hub: Callable[..., RestartableHub], guarded: list[str], scheme: str
) -> None:
    restartable = restartable_hub()
    scenario = Scenario(engine, "shut_out", {"url": restartable.hub.url(scheme)})
    scenario.wait_for("ready")
    restartable.end(signal.SIGKILL)
    # A wrong token, and in NQ a missing one, is refused at once; other protocols may still send it as a variable.
    restartable.start(*guarded, "--set", "auth.login_timeout=0.2")
    scenario.end()


# Invalid input.

DEEP = "[" * 200 + "]" * 200
INVALID: dict[str, tuple[str, list[str], list[str | bytes]]] = {
    "lrpm": (
        "lrpm.json",
        ['[2,{"session":"x"},{}]'],
        [
            *("", "x", "{}", "[]", "null", "[999,1]", "[41]", '[41,"x",1]', "[41,-1,1]", "[41,1.5,1]", "[40,300]"),
            *("[2,null,{}]", "[3,{}]", "[60,1]", '[64,256,"x"]', '["WHAT",1]', "[41,256,1e999]", f"[41,256,{DEEP}]"),
            *('[41,256,"\\ud800"]', " [41,256,1]", b"\x01", "[20,40]", "[true]"),
        ],
    ),
    "umq": (
        "umq.1",
        ['W1.0.0\n{"session":"x"}'],
        ["", "\n", "Q1\n", b"\x01", "A\nR1\n", "A1x\nR1\n", "A99999\nR1\n", "W1.0.0\n", "R\n", "-\nno", "A1\nA1\nR1\n"],
    ),
    "nq": (
        "nq.1",
        ['{"e":{"type":"sys","note":"peer","args":["0","run"]}}'],
        [
            '["x",1,null,[],{},{"r":0},{"i":[null]},{"a":1},{"a":{},"i":"1"},{"e":1},{"i":"x","e":[]},{"a":"1","i":true}]',
        ],
    ),
}


@pytest.mark.parametrize("protocol", INVALID)
def test_invalid_frames_of_a_hub_end_the_connection(engine: Engine, protocol: str) -> None:
    subprotocol, greeting, script = INVALID[protocol]
    server = FakeHub(greeting, script, subprotocol)
    with serving(server):
        scenario = Scenario(engine, "hostile", {"url": f"{protocol}+{server.url}"})
        scenario.wait_for("connected")
        if protocol == "nq":
            # An NQ session outlives its link: the client reports the errors and continues.
            report = next(packet for packet in iter(server.received.get, None) if "malformed" in packet)
            assert report.count("malformed") == 8
        else:
            assert server.script_done.wait(hubs.PATIENCE)
        scenario.signal("over", len(script))
        scenario.end()


@pytest.mark.parametrize(
    ("content", "kind"), [(b"hello", "text/plain"), (b"{}", "application/json"), (b"[[[", "application/json")]
)
def test_site_without_a_hub_is_refused(engine: Engine, content: bytes, kind: str) -> None:
    with site({"/nq": (content, kind)}) as restartable:
        run(engine, "no_hub", url=f"nq+{restartable}nq")
        run(engine, "no_hub", url=f"lrpm+{restartable.replace('http', 'ws')}nq")
