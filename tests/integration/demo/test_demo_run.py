"""The demo from its beginning to its end, as a user sees it."""

import re
import shlex
import signal
import socket
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from fiveways.demo.stats import CALLEES, PROTOCOLS
from tests.support import demo_process, hubs


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> demo_process.Ended:
    """One run without Spark."""
    return demo_process.performed(
        "--seconds", "6", "--no-pipeline", folder=tmp_path_factory.mktemp("demo") / "the shop"
    )


def test_it_ends_well_and_leaves_nobody_behind(ended: demo_process.Ended) -> None:
    assert (ended.code, ended.err) == (0, "")
    assert demo_process.alive(ended.mark) == []
    assert "This went wrong" not in ended.out


def test_nothing_is_logged_when_nothing_goes_wrong(ended: demo_process.Ended) -> None:
    assert (ended.folder / "demo.log").read_text(encoding="utf-8") == ""


def test_everybody_has_called_everybody(ended: demo_process.Ended) -> None:
    never = {pair for pair, calls in ended.matrix.items() if not calls}
    assert never == {("mqtt-rpc", "mqtt-rpc")}  # behind one broker they meet without the hub
    assert len(ended.matrix) == len(PROTOCOLS) * len(CALLEES)


def test_what_was_seen_is_what_was_written_down(ended: demo_process.Ended) -> None:
    seen = {pair: calls for pair, calls in ended.matrix.items() if calls}
    assert demo_process.journaled(ended.folder / "journal") == seen


def test_some_calls_failed_as_they_should(ended: demo_process.Ended) -> None:
    failed = ended.number_before("of them failed")
    reasons = ("raised", "cancelled", "timeout", "bad arguments", "no such method")
    assert failed == sum(map(ended.number_before, reasons))


def test_topics_callbacks_and_the_queue_were_used(ended: demo_process.Ended) -> None:
    assert ended.number_before("events") > ended.number_before("publications became") > 0
    assert ended.number_before("callbacks were called") > 0
    assert ended.number_before("orders went through a queue") > 0


def test_the_commands_at_the_end_work(ended: demo_process.Ended) -> None:
    trace, tail, again = demo_process.commands(ended.out)
    for command, part in ((trace, "greenhouse."), (tail, " failure ")):
        code, out, err = hubs.run(*shlex.split(command.partition("fiveways ")[2]))
        assert (code, err) == (0, "")
        assert part in out
    assert again.endswith("fiveways demo --keep")


def test_the_settings_that_are_left_are_good(ended: demo_process.Ended) -> None:
    code, _, err = hubs.run("config", "check", str(ended.folder / "fiveways.toml"))
    assert (code, err) == (0, "")


def test_kept_it_can_be_called_until_ctrl_c(tmp_path: Path) -> None:
    with demo_process.under_way("--seconds", "2", "--no-pipeline", "--keep", folder=tmp_path / "kept") as (
        process,
        mark,
    ):
        said = demo_process.until(process, "Ctrl-C closes it")
        call, subscribe, trace = demo_process.commands(said)
        dashboard = re.search(r"^  dashboard +(http://localhost:\d+/)$", said, re.MULTILINE)
        assert dashboard, said
        asked = Request(dashboard[1], headers={"Accept": "text/html"})  # noqa: S310  our own hub
        with urlopen(asked, timeout=demo_process.PATIENCE) as page:  # noqa: S310
            assert page.headers["Content-Type"].startswith("text/html")
        for command, part in ((call, "moisture"), (f"{subscribe} --count 2", "sensors.bed"), (trace, "greenhouse.")):
            code, out, err = hubs.run(*shlex.split(command.partition("fiveways ")[2]))
            assert (code, err) == (0, ""), command
            assert part in out
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, out, err) == (0, "", "")
        assert demo_process.all_gone(mark)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("starting the hub", signal.SIGINT),
        ("the dashboard is at", signal.SIGINT),
        ("traffic", signal.SIGINT),
        ("traffic", signal.SIGTERM),
    ],
)
def test_it_can_be_ended_at_any_moment(tmp_path: Path, words: str, number: signal.Signals) -> None:
    folder = tmp_path / "demo"
    with demo_process.under_way("--no-pipeline", folder=folder) as (process, mark):
        demo_process.until(process, words)
        process.send_signal(number)
        _, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, err) == (128 + number, f"fiveways demo: stopped; what there is lies in {folder}\n")
        assert demo_process.all_gone(mark)


def test_who_says_ctrl_c_twice_does_not_wait(tmp_path: Path) -> None:
    with demo_process.under_way("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.until(process, "traffic")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 130
        assert demo_process.all_gone(mark)


def test_killed_it_takes_all_others_along(tmp_path: Path) -> None:
    with demo_process.under_way("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.until(process, "traffic")
        assert len(demo_process.alive(mark)) >= 5  # itself, the hub, its journal and broker, the ZeroMQ program
        process.kill()
        assert demo_process.all_gone(mark), demo_process.alive(mark)


def test_a_hub_that_dies_ends_the_demo_with_a_sentence(tmp_path: Path) -> None:
    with demo_process.under_way("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.until(process, "traffic")
        demo_process.kill(mark, "fiveways serve")
        _, err = process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 1
        assert err.startswith("fiveways demo: the hub has ended before its time")
        assert len(err.splitlines()) == 1
        assert demo_process.all_gone(mark)


def test_without_java_all_but_the_report_is_there(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    ended = demo_process.performed("--seconds", "2", folder=tmp_path / "demo", JAVA_HOME=str(tmp_path / "nothing"))
    assert (ended.code, ended.err) == (0, "")
    assert "There are no tables and no report: Spark needs Java 17 or later" in ended.out
    assert not (ended.folder / "report.html").exists()
    assert len(demo_process.commands(ended.out)) == 3


def test_a_folder_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ended = demo_process.performed(folder=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"fiveways demo: --directory {tmp_path} is not empty: name another folder, or none\n"
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_port_that_is_wanted_and_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = demo_process.performed("--port", str(port), folder=tmp_path / "demo")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"fiveways demo: port {port} is in use; choose another with --port, or 0 for any free port\n"
    assert not ended.folder.exists()


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    """Both want the usual ports, and each gets what it says."""
    runs = [
        hubs.start("demo", "--plain", "--no-pipeline", "--seconds", "3", "--directory", str(tmp_path / name))
        for name in ("one", "two")
    ]
    for process in runs:
        out, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, err) == (0, "")
        assert "This went wrong" not in out
    settings = [(tmp_path / name / "fiveways.toml").read_text(encoding="utf-8") for name in ("one", "two")]
    assert settings[0].partition("[store]")[0] != settings[1].partition("[store]")[0]


def test_the_help_has_examples() -> None:
    code, out, _ = hubs.run("demo", "--help")
    assert code == 0
    assert "fiveways demo --keep" in out
    assert "--no-pipeline" in out
