"""fiveways.js, when the hub is killed, comes back, is another one, keeps people out, or talks nonsense."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.processes import low_port
from tests.integration.web.engines import Engine, Story, run, site
from tests.integration.web.fakes import Fake, serving
from tests.support import hubs
from tests.support.freezing import freeze, thaw

SCHEMES = ["umq+ws", "lrpm+ws", "nq+ws", "nq+http"]
KILLS = [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGTERM, id="stopped")]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


class Phoenix:
    """A hub that can be ended, and started again on its port."""

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
def phoenix(request: pytest.FixtureRequest) -> "Callable[..., Phoenix]":
    """Make hubs that are gone when the test is over."""

    def make(*arguments: str) -> Phoenix:
        made = Phoenix(*arguments)
        request.addfinalizer(made.close)
        return made

    return make


@every_scheme
@pytest.mark.parametrize("how", KILLS)
def test_all_is_restored(engine: Engine, phoenix: Callable[..., Phoenix], scheme: str, how: signal.Signals) -> None:
    place = phoenix()
    story = Story(engine, "restored", {"url": place.hub.url(scheme)})
    story.said("ready")
    place.end(how)
    place.start()
    story.tell("restarted")
    story.end()


def test_answers_on_two_connections_are_taken_in_order(engine: Engine, phoenix: Callable[..., Phoenix]) -> None:
    place = phoenix()
    run(engine, "overtaken", url=place.hub.url("nq+http"), wsUrl=place.hub.url("nq+ws"))


@every_scheme
def test_what_was_under_way(engine: Engine, phoenix: Callable[..., Phoenix], scheme: str) -> None:
    place = phoenix()
    story = Story(engine, "interrupted", {"url": place.hub.url(scheme)})
    story.said("calling")
    place.end(signal.SIGKILL)
    place.start()
    story.tell("restarted")
    story.end()


@pytest.mark.parametrize("scheme", ["nq+ws", "nq+http"])
def test_a_hub_with_a_store_goes_on(
    engine: Engine, phoenix: Callable[..., Phoenix], scheme: str, tmp_path: Path
) -> None:
    place = phoenix("--set", f"store.path={tmp_path / 'store'}")
    for case, word in (("restored", "ready"), ("interrupted", "calling")):
        story = Story(engine, case, {"url": place.hub.url(scheme)})
        story.said(word)
        place.end(signal.SIGKILL)
        place.start()
        story.tell("restarted")
        story.end()


@every_scheme
def test_what_a_page_serves_ends_with_the_hub(engine: Engine, phoenix: Callable[..., Phoenix], scheme: str) -> None:
    place = phoenix()
    story = Story(engine, "serving_through", {"url": place.hub.url(scheme)})
    story.said("ready")
    place.end(signal.SIGKILL)
    place.start()
    story.tell("restarted")
    story.end()


@every_scheme
def test_who_does_not_want_another_connection(engine: Engine, phoenix: Callable[..., Phoenix], scheme: str) -> None:
    place = phoenix()
    story = Story(engine, "once", {"url": place.hub.url(scheme)})
    story.said("ready")
    place.end(signal.SIGKILL)
    place.start()
    story.tell("restarted")
    story.end()


@pytest.mark.parametrize("scheme", ["umq+ws", "lrpm+ws", "nq+ws"])
def test_a_hub_that_falls_silent_is_left(engine: Engine, phoenix: Callable[..., Phoenix], scheme: str) -> None:
    place = phoenix()
    story = Story(engine, "silent", {"url": place.hub.url(scheme)})
    story.said("connected")
    freeze(place.hub.process.pid)
    try:
        story.said("left")
    finally:
        thaw(place.hub.process.pid)
    story.tell("thawed")
    story.end()


# Who comes in.

TOKEN = "of-ann/+?=~"  # noqa: S105  made for this test


@pytest.fixture
def guarded(tmp_path: Path) -> list[str]:
    """How a hub is started that wants to know who comes."""
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
def test_a_token_lets_in_again_and_again(
    engine: Engine, phoenix: Callable[..., Phoenix], guarded: list[str], scheme: str
) -> None:
    place = phoenix(*guarded)
    story = Story(engine, "let_in", {"url": place.hub.url(scheme), "token": TOKEN})
    story.said("ready")
    place.end(signal.SIGKILL)
    place.start()
    story.tell("restarted")
    story.end()
    run(engine, "refused", url=place.hub.url(scheme), token=TOKEN)


def test_a_secret_lets_in_without_being_sent(
    engine: Engine, phoenix: Callable[..., Phoenix], guarded: list[str]
) -> None:
    place = phoenix(*guarded)
    login = {"identity": "bob", "secret": "a long secret of bob"}
    story = Story(engine, "let_in", {"url": place.hub.url("lrpm+ws"), **login})
    story.said("ready")
    place.end(signal.SIGKILL)
    place.start()
    story.tell("restarted")
    story.end()


@every_scheme
def test_who_is_not_let_in_any_more_stops_asking(
    engine: Engine, phoenix: Callable[..., Phoenix], guarded: list[str], scheme: str
) -> None:
    place = phoenix()
    story = Story(engine, "shut_out", {"url": place.hub.url(scheme)})
    story.said("ready")
    place.end(signal.SIGKILL)
    # A token that is wrong, and in NQ none at all, is refused at once; elsewhere it might still be told as a variable.
    place.start(*guarded, "--set", "auth.login_timeout=0.2")
    story.end()


# Nonsense.

DEEP = "[" * 200 + "]" * 200
NONSENSE: dict[str, tuple[str, list[str], list[str | bytes]]] = {
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


@pytest.mark.parametrize("protocol", NONSENSE)
def test_a_hub_that_talks_nonsense(engine: Engine, protocol: str) -> None:
    subprotocol, greeting, script = NONSENSE[protocol]
    server = Fake(greeting, script, subprotocol)
    with serving(server):
        story = Story(engine, "hostile", {"url": f"{protocol}+{server.url}"})
        story.said("connected")
        if protocol == "nq":
            # Its conversation is not the link's: it complains, and goes on.
            complaint = next(heard for heard in iter(server.heard.get, None) if "malformed" in heard)
            assert complaint.count("malformed") == 8
        else:
            assert server.over.wait(hubs.PATIENCE)
        story.tell("over", len(script))
        story.end()


@pytest.mark.parametrize(
    ("content", "kind"), [(b"hello", "text/plain"), (b"{}", "application/json"), (b"[[[", "application/json")]
)
def test_a_site_that_is_no_hub(engine: Engine, content: bytes, kind: str) -> None:
    with site({"/nq": (content, kind)}) as place:
        run(engine, "no_hub", url=f"nq+{place}nq")
        run(engine, "no_hub", url=f"lrpm+{place.replace('http', 'ws')}nq")
