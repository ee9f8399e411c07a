"""Display of notes and progress of a call, on a terminal and elsewhere."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_output import CommandRunner
from tests.support.hubs import Hub, serving
from tests.support.terminals import Terminal

protocols_with_notes = pytest.mark.parametrize("protocol", ["nq+http", "nq+ws", "lrpm", "lrpm?encoding=cbor"])
WARNING = {"kind": "warn", "text": "no picture"}
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving("--app", "tests.support.hub_app:app") as running:
        yield running


def arguments(hub: Hub, protocol: str, *steps: object, waits: bool = True) -> list[str]:
    return ["call", hub.url(protocol), "demo.build", json.dumps({"steps": steps, "waits": waits})]


@protocols_with_notes
@pytest.mark.parametrize(
    ("value", "numbers"), [(0.5, " 50%"), ({"done": 3, "total": 12}, " 25%  3/12"), ([1, 10], " 10%  1/10")]
)
def test_bar_moves_and_disappears_at_the_end(
    hub: Hub, said: CommandRunner, protocol: str, value: object, numbers: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with Terminal(*arguments(hub, protocol, "soon", [value, "page 5"]), out=out) as terminal:
        terminal.until("page 5")
        assert "demo.build" in terminal.shown
        assert numbers in terminal.shown
        said("call", hub.url("umq"), "demo.go")
        assert terminal.end() == 0
    assert out.read_text() == '"built"\n'
    assert terminal.shown.count(HIDE_CURSOR) == terminal.shown.count(SHOW_CURSOR) == 1
    # The bar is erased, and nothing follows it.
    assert terminal.shown.endswith("\x1b[2K")


@protocols_with_notes
def test_warning_is_a_line_above_the_bar(hub: Hub, said: CommandRunner, protocol: str) -> None:
    with Terminal(*arguments(hub, protocol, [0.5, "page [bold]5"], WARNING, 0.75)) as terminal:
        # Markup in the text of a method is not interpreted.
        terminal.until("75%")
        assert "page [bold]5" in terminal.shown
        assert "warning [demo_warn]: no picture" in terminal.shown
        said("call", hub.url("umq"), "demo.go")
        assert terminal.end() == 0
    assert '"built"' in terminal.shown


def test_call_without_notes_shows_a_spinner(hub: Hub) -> None:
    with Terminal("call", hub.url("nq+http"), "demo.sleep") as terminal:
        terminal.until("demo.sleep")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    assert terminal.shown.count(HIDE_CURSOR) == terminal.shown.count(SHOW_CURSOR) == 1
    assert "%" not in terminal.shown


def test_protocol_without_progress_has_no_bar(hub: Hub) -> None:
    with Terminal("call", hub.url("umq"), "demo.sleep", "--timeout", "2") as terminal:
        assert terminal.end() == 124
    assert terminal.shown == "fiveways call: no response within 2 s\r\n"


def test_failure_is_printed_after_the_bar(hub: Hub) -> None:
    with Terminal(*arguments(hub, "nq+http", [0.5, "page 5"]), "--timeout", "2") as terminal:
        assert terminal.end() == 124
    assert terminal.shown.rpartition("\x1b[2K")[2] == "fiveways call: no response within 2 s\r\n"


@protocols_with_notes
def test_no_bar_without_a_terminal(hub: Hub, said: CommandRunner, protocol: str) -> None:
    assert said(*arguments(hub, protocol, [0.5, "page 5"], "more", WARNING, waits=False)) == '"built"\n'
    assert said.err == "fiveways call: warning [demo_warn]: no picture\n"


@pytest.mark.parametrize("protocol", ["nq+http", "nq+ws"])
def test_verbose_prints_all_notes(hub: Hub, said: CommandRunner, protocol: str) -> None:
    steps = [{"kind": kind, "text": "x"} for kind in ("transient", "debug")]
    assert said(*arguments(hub, protocol, *steps, WARNING, waits=False)) == '"built"\n'
    assert said.err == "fiveways call: warning [demo_warn]: no picture\n"
    assert said(*arguments(hub, protocol, [0.5, "page 5"], *steps, waits=False), "--verbose") == '"built"\n'
    lines = said.err.splitlines()
    assert "fiveways call: transient [demo_transient]: x" in lines
    assert "fiveways call: debug [demo_debug]: x" in lines
    assert "fiveways call: note: page 5" in lines


def test_verbose_prints_all_notes_on_a_terminal(hub: Hub, said: CommandRunner) -> None:
    steps = [{"kind": "debug", "text": "cold"}, [0.5, "page 5"]]
    with Terminal(*arguments(hub, "nq+http", *steps), "--verbose") as terminal:
        terminal.until("page 5")
        assert "debug [demo_debug]: cold" in terminal.shown
        said("call", hub.url("umq"), "demo.go")
        assert terminal.end() == 0
