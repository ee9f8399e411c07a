"""Parts of the demo: directories, ports, statistics and views."""

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


def test_each_run_has_a_new_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(RunFolder.create().path) for _ in range(3)] == ["fiveways-demo", "fiveways-demo-2", "fiveways-demo-3"]


def test_port_taken_during_start_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the hub nor asyncio logs a warning about the first attempt."""
    folder, choose = RunFolder(tmp_path), Ports.choose.__func__  # type: ignore[attr-defined]
    handler = logging.FileHandler(folder.log)

    def choose_taken_port(http_port: int | None, *, prefer_defaults: bool) -> Ports:
        chosen: Ports = choose(Ports, http_port, prefer_defaults=False)
        return replace(chosen, zmq=taken.getsockname()[1]) if prefer_defaults else chosen

    async def start() -> None:
        async with DemoHub(folder, 0):
            pass

    logging.getLogger("asyncio").addHandler(handler)
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            monkeypatch.setattr(Ports, "choose", choose_taken_port)
            asyncio.run(start())
    finally:
        logging.getLogger("asyncio").removeHandler(handler)
        handler.close()
    assert folder.log.read_text() == ""


def test_stop_of_ended_child_logs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def end() -> None:
        for _ in range(30):
            process = await processes.start([sys.executable, "-Ic", "pass"], tmp_path / "log")
            await process.stdout.read()  # type: ignore[union-attr]  # the process ends now
            await processes.stop(process, 60)

    asyncio.run(end())
    assert caplog.text == ""


def test_unwritable_directory_falls_back_to_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = RunFolder.create().path
    assert folder.is_dir()
    assert folder.parent == tmp_path


def test_given_directory_is_created_and_must_be_empty(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    assert RunFolder.create(directory).path == directory
    assert RunFolder.create(directory).path == directory
    (directory / "mine").touch()
    with pytest.raises(BadFolder, match="is not empty"):
        RunFolder.create(directory)
    with pytest.raises(BadFolder, match="cannot be used"):
        RunFolder.create(directory / "mine")


def test_ports_in_use_are_avoided_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setitem(demo_hub.DEFAULT_PORTS, "http", taken.getsockname()[1])
        monkeypatch.setitem(demo_hub.DEFAULT_PORTS, "mqtt", other.getsockname()[1])
        ports = Ports.choose(None, prefer_defaults=True)
        notes = ports.non_default()
    assert len({ports.http, ports.zmq, ports.mqtt, ports.label_service} | set(demo_hub.DEFAULT_PORTS.values())) >= 5
    assert f"WebSocket and HTTP is on port {ports.http}, not {demo_hub.DEFAULT_PORTS['http']}" in notes
    assert f"MQTT is on port {ports.mqtt}, not {demo_hub.DEFAULT_PORTS['mqtt']}" in notes


def test_schema_is_valid(tmp_path: Path) -> None:
    path = tmp_path / schema.FILE
    path.write_bytes(schema.descriptor_set())
    assert set(load_services([path])) == {f"shop.{name}" for name in schema.SERVICES}


def test_calls_are_counted_by_outcome() -> None:
    stats = DemoStats()
    with stats.count_call("umq", "nq", "orders.place") as outcome:
        pass
    assert outcome.has_result
    for exc in (CallFailed("no"), CallTimeout("late"), NotExecuted(Reason.NO_SUCH_METHOD)):
        with stats.count_call("umq", NO_CALLEE, "front.refund") as outcome:
            raise exc
        assert not outcome.has_result
    assert (stats.calls, stats.failed, stats.calls_of("umq")) == (4, 3, 4)
    assert stats.reasons == {"raised": 1, "timeout": 1, "no such method": 1}
    assert ("umq", "nq") not in stats.missing_pairs()
    assert ("nq", "umq") in stats.missing_pairs()
    assert stats.pairs["umq", "nq"].p50 is not None
    assert stats.pairs["umq", NO_CALLEE].p50 is None


def test_other_exceptions_are_not_counted() -> None:
    stats = DemoStats()
    with pytest.raises(ZeroDivisionError), stats.count_call("umq", "nq", "orders.place"):
        raise ZeroDivisionError
    assert not stats.reasons


def test_statistics_are_bounded() -> None:
    stats = DemoStats()
    for number in range(1000):
        stats.count_event("umq", f"topic{number}", number)
        stats.add_message(f"scene {number}")
        with stats.count_call("umq", "nq", "orders.place"):
            raise CallTimeout("late")
        with stats.count_call("umq", "nq", "orders.place"):
            pass
    assert len(stats.latest_events) < 100
    assert next(reversed(stats.latest_events)) == "topic999"
    assert len(stats.messages) < 100
    assert len(stats.failures) < 100
    assert len(stats.pairs["umq", "nq"].latest_seconds) < 1000


def test_call_rate_is_an_average_of_recent_seconds() -> None:
    stats = DemoStats()
    call_rate = CallRate(stats)
    assert call_rate.total_rate() == 0.0
    for second, calls in enumerate([0, 100, 110, 120, 130]):
        stats.pairs["umq", "nq"] = CallPair(calls)
        call_rate.sample(float(second))
    assert call_rate.rate("umq") == 10.0
    assert call_rate.total_rate() == 10.0
    assert call_rate.history("umq") == [100.0, 10.0, 10.0, 10.0]


def full_stats(numbers: int) -> DemoStats:
    """Return statistics with the maximum number of entries."""
    stats = DemoStats()
    for caller, callee in product(PROTOCOLS, CALLEES):
        pair = stats.pairs.setdefault((caller, callee), CallPair(numbers, numbers))
        pair.latest_seconds.append(numbers / 1000)
        with stats.count_call(caller, callee, "greenhouse.with_a_very_long_name_of_a_method"):
            raise NotExecuted(Reason.NO_SUCH_METHOD, "x" * 500)
    for number in range(50):
        stats.count_event("umq", f"sensors.bed{number}.{'temperature' * 20}", {"value": "ü" * 300})
        stats.add_message("something that is worth telling " * 20)
    return stats


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("stats", [DemoStats(), full_stats(1), full_stats(99_999)], ids=["empty", "small", "large"])
def test_live_view_fits_the_terminal(size: tuple[int, int], stats: DemoStats) -> None:
    width, height = size
    progress = DemoProgress(
        86_400.0, tuple(DemoStep), dashboard="http://localhost:65535/", spark_status="waits for the journal"
    )
    call_rate = CallRate(stats)
    call_rate.sample(0.0)
    call_rate.sample(1.0)
    console = Console(width=width, height=height, file=StringIO(), record=True)
    console.print(live_view.render_view(progress, stats, call_rate, width, height), soft_wrap=True)
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    for callee in CALLEES:
        assert callee in lines[4], "the names of protocols are whole"
    if stats.calls:
        assert all(live_view.format_count(stats.pairs["umq", callee].calls) in lines[5] for callee in CALLEES)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_summary_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)  # ignored without a terminal
    (tmp_path / "journal").mkdir()
    stats = full_stats(99_999)
    stats.reasons.update({"raised": 500, "timeout": 400, "cancelled": 300, "bad arguments": 200, "refused": 100})
    summary.print_summary(summary.DemoOutcome(RunFolder(tmp_path), stats), 60.0, "fiveways")
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if "▼ calls" in line)
    assert all(len(line) <= 80 for line in lines[first : first + 13])
    assert all(f" {callee}" in lines[first] for callee in CALLEES)
    assert any(line.endswith("no such method") and len(line) > 80 for line in lines), "nothing is cut off"


def pictures_of(terminal: Terminal) -> list[list[str]]:
    """Return each drawn picture without colours; a picture begins when the cursor moves home."""
    screen = terminal.shown.partition("\x1b[?1049h")[2].partition("\x1b[?1049l")[0]
    pictures = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame) for frame in screen.split("\x1b[H")]
    return [picture.splitlines() for picture in pictures if picture]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_live_view_on_a_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    arguments = ("demo", "--no-pipeline", "--seconds", "4", "--port", "0", "--directory", str(tmp_path / "demo"))
    with Terminal(*arguments, size=size) as terminal:
        assert terminal.end() == 0
    live = terminal.shown.partition("Statistics")[0]
    assert live.count("\x1b[?1049h") == live.count("\x1b[?1049l") == 1, "the screen is one of its own, and left"
    assert live.rfind("\x1b[?25h") > live.rfind("\x1b[?25l"), "the cursor is back"
    pictures = pictures_of(terminal)
    assert len(pictures) > 4
    for lines in pictures:
        assert len(lines) <= size[1]
        assert max(map(len, lines)) <= size[0]
    last = "\n".join(pictures[-1])
    assert re.search(r"^umq( +[\d,]+){8}", last, re.MULTILINE), last
    assert "dashboard http://localhost:" in last


@pytest.mark.parametrize("condition", ["", "TERM", "NO_COLOR", "--plain", "narrow", "low", "no terminal"])
def test_line_view_is_used_without_a_capable_terminal(monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    monkeypatch.setenv("TERM", "dumb" if condition == "TERM" else "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1" if condition == "NO_COLOR" else "")
    width, height = 79 if condition == "narrow" else 80, 23 if condition == "low" else 24
    console = Console(file=StringIO(), force_terminal=condition != "no terminal", width=width, height=height)
    view = views.create_view(DemoProgress(60.0, ()), DemoStats(), plain=condition == "--plain", console=console)
    assert type(view) is (views.LineView if condition else views.ScreenView)


def test_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    arguments = ["demo", "--no-pipeline", "--seconds", "1", "--port", "0", "--directory", str(tmp_path / "demo")]
    with Terminal(*arguments, term="dumb") as terminal:
        assert terminal.end() == 0
    assert "\x1b[?1049h" not in terminal.shown
    assert "starting the hub" in terminal.shown


def test_late_notes_are_printed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = DemoProgress(60.0, tuple(DemoStep))

    async def short() -> None:
        async with views.create_view(progress, DemoStats(), plain=True):
            await asyncio.sleep(0)
            progress.notes.append("something is not as usual")

    asyncio.run(short())
    assert "something is not as usual" in capsys.readouterr().out
