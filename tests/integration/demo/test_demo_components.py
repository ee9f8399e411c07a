"""Parts of the demo by themselves: folders, ports, the ledger, and what is drawn."""

import asyncio
import logging
import re
import socket
import sys
import tempfile
from dataclasses import replace
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from fiveways.demo import demo_hub, live_view, processes, schema, summary, views
from fiveways.demo.demo_hub import BadFolder, DemoHub, Ports, RunFolder
from fiveways.demo.progress import CallRate, DemoProgress, DemoStep
from fiveways.demo.stats import CALLEES, NO_CALLEE, PROTOCOLS, CallPair, DemoStats
from fiveways.errors import CallFailed, CallTimeout, NotExecuted, Reason
from fiveways.schemas import load_services
from tests.support.terminals import Terminal

SIZES = [(80, 24), (120, 40)]


def test_folders_are_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(RunFolder.create().path) for _ in range(3)] == ["fiveways-demo", "fiveways-demo-2", "fiveways-demo-3"]


def test_port_that_is_taken_at_the_last_moment_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which it could be: by the hub, and by asyncio, whose child has ended before it is told to."""
    folder, free = RunFolder(tmp_path), Ports.choose.__func__  # type: ignore[attr-defined]
    handler = logging.FileHandler(folder.log)

    def ports(wanted: int | None, *, usual: bool) -> Ports:
        found: Ports = free(Ports, wanted, usual=False)
        return replace(found, zmq=taken.getsockname()[1]) if usual else found

    async def start() -> None:
        async with DemoHub(folder, 0):
            pass

    logging.getLogger("asyncio").addHandler(handler)
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            monkeypatch.setattr(Ports, "choose", ports)
            asyncio.run(start())
    finally:
        logging.getLogger("asyncio").removeHandler(handler)
        handler.close()
    assert folder.log.read_text() == ""


def test_child_that_has_ended_is_ended_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def end() -> None:
        for _ in range(30):
            process = await processes.start([sys.executable, "-Ic", "pass"], tmp_path / "log")
            await process.stdout.read()  # type: ignore[union-attr]  # it ends right now
            await processes.stop(process, 60)

    asyncio.run(end())
    assert caplog.text == ""


def test_where_nothing_can_be_written_there_is_a_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = RunFolder.create().path
    assert made.is_dir()
    assert made.parent == tmp_path


def test_a_folder_that_is_wanted_is_made_and_must_be_empty(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert RunFolder.create(wanted).path == wanted
    assert RunFolder.create(wanted).path == wanted
    (wanted / "mine").touch()
    with pytest.raises(BadFolder, match="is not empty"):
        RunFolder.create(wanted)
    with pytest.raises(BadFolder, match="cannot be used"):
        RunFolder.create(wanted / "mine")


def test_ports_that_are_taken_are_left_alone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setitem(demo_hub.DEFAULT_PORTS, "http", taken.getsockname()[1])
        monkeypatch.setitem(demo_hub.DEFAULT_PORTS, "mqtt", other.getsockname()[1])
        found = Ports.choose(None, usual=True)
        told = found.non_default()
    assert len({found.http, found.zmq, found.mqtt, found.label_service} | set(demo_hub.DEFAULT_PORTS.values())) >= 5
    assert f"WebSocket and HTTP is on port {found.http}, not {demo_hub.DEFAULT_PORTS['http']}" in told
    assert f"MQTT is on port {found.mqtt}, not {demo_hub.DEFAULT_PORTS['mqtt']}" in told


def test_the_schema_is_one_that_the_hub_can_read(tmp_path: Path) -> None:
    path = tmp_path / schema.FILE
    path.write_bytes(schema.descriptor_set())
    assert set(load_services([path])) == {f"shop.{name}" for name in schema.SERVICES}


def test_calls_are_counted_by_how_they_end() -> None:
    ledger = DemoStats()
    with ledger.count_call("umq", "nq", "orders.place") as counted:
        pass
    assert counted.has_result
    for exc in (CallFailed("no"), CallTimeout("late"), NotExecuted(Reason.NO_SUCH_METHOD)):
        with ledger.count_call("umq", NO_CALLEE, "front.refund") as counted:
            raise exc
        assert not counted.has_result
    assert (ledger.calls, ledger.failed, ledger.calls_of("umq")) == (4, 3, 4)
    assert ledger.reasons == {"raised": 1, "timeout": 1, "no such method": 1}
    assert ("umq", "nq") not in ledger.missing_pairs()
    assert ("nq", "umq") in ledger.missing_pairs()
    assert ledger.pairs["umq", "nq"].p50 is not None
    assert ledger.pairs["umq", NO_CALLEE].p50 is None


def test_what_is_no_failure_of_a_call_is_not_counted_as_one() -> None:
    ledger = DemoStats()
    with pytest.raises(ZeroDivisionError), ledger.count_call("umq", "nq", "orders.place"):
        raise ZeroDivisionError
    assert not ledger.reasons


def test_a_ledger_does_not_grow() -> None:
    ledger = DemoStats()
    for number in range(1000):
        ledger.count_event("umq", f"topic{number}", number)
        ledger.add_message(f"scene {number}")
        with ledger.count_call("umq", "nq", "orders.place"):
            raise CallTimeout("late")
        with ledger.count_call("umq", "nq", "orders.place"):
            pass
    assert len(ledger.latest_events) < 100
    assert next(reversed(ledger.latest_events)) == "topic999"
    assert len(ledger.messages) < 100
    assert len(ledger.failures) < 100
    assert len(ledger.pairs["umq", "nq"].latest_seconds) < 1000


def test_the_pace_is_that_of_the_latest_seconds() -> None:
    ledger = DemoStats()
    pace = CallRate(ledger)
    assert pace.total_rate() == 0.0
    for second, calls in enumerate([0, 100, 110, 120, 130]):
        ledger.pairs["umq", "nq"] = CallPair(calls)
        pace.sample(float(second))
    assert pace.rate("umq") == 10.0
    assert pace.total_rate() == 10.0
    assert pace.history("umq") == [100.0, 10.0, 10.0, 10.0]


def full(numbers: int) -> DemoStats:
    """A ledger with as much in it as there may be."""
    ledger = DemoStats()
    for caller, callee in product(PROTOCOLS, CALLEES):
        pair = ledger.pairs.setdefault((caller, callee), CallPair(numbers, numbers))
        pair.latest_seconds.append(numbers / 1000)
        with ledger.count_call(caller, callee, "greenhouse.with_a_very_long_name_of_a_method"):
            raise NotExecuted(Reason.NO_SUCH_METHOD, "x" * 500)
    for number in range(50):
        ledger.count_event("umq", f"sensors.bed{number}.{'temperature' * 20}", {"value": "ü" * 300})
        ledger.add_message("something that is worth telling " * 20)
    return ledger


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("ledger", [DemoStats(), full(1), full(99_999)], ids=["empty", "small", "large"])
def test_what_is_drawn_fits(size: tuple[int, int], ledger: DemoStats) -> None:
    width, height = size
    programme = DemoProgress(
        86_400.0, tuple(DemoStep), dashboard="http://localhost:65535/", spark_status="waits for the journal"
    )
    pace = CallRate(ledger)
    pace.sample(0.0)
    pace.sample(1.0)
    console = Console(width=width, height=height, file=StringIO(), record=True)
    console.print(live_view.render_view(programme, ledger, pace, width, height), soft_wrap=True)
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    for callee in CALLEES:
        assert callee in lines[4], "the names of protocols are whole"
    if ledger.calls:
        assert all(live_view.format_count(ledger.pairs["umq", callee].calls) in lines[5] for callee in CALLEES)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_last_page_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)  # it is of no matter where there is no terminal
    (tmp_path / "journal").mkdir()
    ledger = full(99_999)
    ledger.reasons.update({"raised": 500, "timeout": 400, "cancelled": 300, "bad arguments": 200, "refused": 100})
    summary.print_summary(summary.DemoOutcome(RunFolder(tmp_path), ledger), 60.0, "fiveways")
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if "▼ calls" in line)
    assert all(len(line) <= 80 for line in lines[first : first + 13])
    assert all(f" {callee}" in lines[first] for callee in CALLEES)
    assert any(line.endswith("no such method") and len(line) > 80 for line in lines), "nothing is cut off"


def shown(terminal: Terminal) -> list[list[str]]:
    """Return each picture that was drawn, without colours: each one begins where the cursor goes home."""
    screen = terminal.shown.partition("\x1b[?1049h")[2].partition("\x1b[?1049l")[0]
    pictures = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", each) for each in screen.split("\x1b[H")]
    return [picture.splitlines() for picture in pictures if picture]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_view_on_a_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    arguments = ("demo", "--no-pipeline", "--seconds", "4", "--port", "0", "--directory", str(tmp_path / "demo"))
    with Terminal(*arguments, size=size) as terminal:
        assert terminal.end() == 0
    live = terminal.shown.partition("What was seen")[0]
    assert live.count("\x1b[?1049h") == live.count("\x1b[?1049l") == 1, "the screen is one of its own, and left"
    assert live.rfind("\x1b[?25h") > live.rfind("\x1b[?25l"), "the cursor is back"
    pictures = shown(terminal)
    assert len(pictures) > 4
    for lines in pictures:
        assert len(lines) <= size[1]
        assert max(map(len, lines)) <= size[0]
    last = "\n".join(pictures[-1])
    assert re.search(r"^umq( +[\d,]+){8}", last, re.MULTILINE), last
    assert "dashboard http://localhost:" in last


@pytest.mark.parametrize("how", ["", "TERM", "NO_COLOR", "--plain", "narrow", "low", "no terminal"])
def test_lines_where_a_screen_is_not_wanted(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("TERM", "dumb" if how == "TERM" else "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1" if how == "NO_COLOR" else "")
    width, height = 79 if how == "narrow" else 80, 23 if how == "low" else 24
    console = Console(file=StringIO(), force_terminal=how != "no terminal", width=width, height=height)
    view = views.create_view(DemoProgress(60.0, ()), DemoStats(), plain=how == "--plain", console=console)
    assert type(view) is (views.LineView if how else views.ScreenView)


def test_lines_on_a_terminal_that_can_do_nothing_else(tmp_path: Path) -> None:
    arguments = ["demo", "--no-pipeline", "--seconds", "1", "--port", "0", "--directory", str(tmp_path / "demo")]
    with Terminal(*arguments, term="dumb") as terminal:
        assert terminal.end() == 0
    assert "\x1b[?1049h" not in terminal.shown
    assert "starting the hub" in terminal.shown


def test_notes_are_told_at_the_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    programme = DemoProgress(60.0, tuple(DemoStep))

    async def short() -> None:
        async with views.create_view(programme, DemoStats(), plain=True):
            await asyncio.sleep(0)
            programme.notes.append("something is not as usual")

    asyncio.run(short())
    assert "something is not as usual" in capsys.readouterr().out
