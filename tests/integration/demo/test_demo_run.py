"""Complete runs of the demo."""

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
def ended(tmp_path_factory: pytest.TempPathFactory) -> demo_process.DemoResult:
    """One run without Spark."""
    return demo_process.run_demo("--seconds", "6", "--no-pipeline", folder=tmp_path_factory.mktemp("demo") / "the shop")


def test_run_succeeds_and_leaves_no_processes(ended: demo_process.DemoResult) -> None:
    assert (ended.code, ended.err) == (0, "")
    assert demo_process.alive(ended.mark) == []
    assert "Failed:" not in ended.out


def test_successful_run_logs_nothing(ended: demo_process.DemoResult) -> None:
    assert (ended.folder / "demo.log").read_text(encoding="utf-8") == ""


def test_every_pair_of_protocols_has_calls(ended: demo_process.DemoResult) -> None:
    never = {pair for pair, calls in ended.matrix.items() if not calls}
    assert never == {("mqtt-rpc", "mqtt-rpc")}  # peers behind one broker call each other without the hub
    assert len(ended.matrix) == len(PROTOCOLS) * len(CALLEES)


def test_statistics_match_the_journal(ended: demo_process.DemoResult) -> None:
    seen = {pair: calls for pair, calls in ended.matrix.items() if calls}
    assert demo_process.journaled_calls(ended.folder / "journal") == seen


def test_some_calls_fail_on_purpose(ended: demo_process.DemoResult) -> None:
    failed = ended.number_before("of them failed")
    reasons = ("raised", "cancelled", "timeout", "bad arguments", "no such method")
    assert failed == sum(map(ended.number_before, reasons))


def test_topics_callbacks_and_work_queue_are_used(ended: demo_process.DemoResult) -> None:
    assert ended.number_before("events") > ended.number_before("publications, delivered as") > 0
    assert ended.number_before("callbacks were called") > 0
    assert ended.number_before("orders went through a work queue") > 0


def test_suggested_commands_work(ended: demo_process.DemoResult) -> None:
    trace, tail, again = demo_process.commands(ended.out)
    for command, part in ((trace, "greenhouse."), (tail, " failure ")):
        code, out, err = hubs.run(*shlex.split(command.partition("fiveways ")[2]))
        assert (code, err) == (0, "")
        assert part in out
    assert again.endswith("fiveways demo --keep")


def test_configuration_file_is_valid(ended: demo_process.DemoResult) -> None:
    code, _, err = hubs.run("config", "check", str(ended.folder / "fiveways.toml"))
    assert (code, err) == (0, "")


def test_kept_demo_serves_calls_until_ctrl_c(tmp_path: Path) -> None:
    with demo_process.running_demo("--seconds", "2", "--no-pipeline", "--keep", folder=tmp_path / "kept") as (
        process,
        mark,
    ):
        output = demo_process.read_until(process, "Ctrl-C ends it")
        call, subscribe, trace = demo_process.commands(output)
        dashboard = re.search(r"^  dashboard +(http://localhost:\d+/)$", output, re.MULTILINE)
        assert dashboard, output
        request = Request(dashboard[1], headers={"Accept": "text/html"})  # noqa: S310  our own hub
        with urlopen(request, timeout=demo_process.PATIENCE) as page:  # noqa: S310
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
    ("text", "number"),
    [
        ("starting the hub", signal.SIGINT),
        ("dashboard: ", signal.SIGINT),
        ("traffic", signal.SIGINT),
        ("traffic", signal.SIGTERM),
    ],
)
def test_signal_ends_the_demo_at_any_step(tmp_path: Path, text: str, number: signal.Signals) -> None:
    folder = tmp_path / "demo"
    with demo_process.running_demo("--no-pipeline", folder=folder) as (process, mark):
        demo_process.read_until(process, text)
        process.send_signal(number)
        _, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, err) == (
            128 + number,
            f"fiveways demo: stopped; the files so far are in {folder}\n",
        )
        assert demo_process.all_gone(mark)


def test_second_ctrl_c_ends_the_demo_at_once(tmp_path: Path) -> None:
    with demo_process.running_demo("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.read_until(process, "traffic")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 130
        assert demo_process.all_gone(mark)


def test_killed_demo_leaves_no_processes(tmp_path: Path) -> None:
    with demo_process.running_demo("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.read_until(process, "traffic")
        assert (
            len(demo_process.alive(mark)) >= 5
        )  # the demo, the hub, its writer process and broker, the ZeroMQ program
        process.kill()
        assert demo_process.all_gone(mark), demo_process.alive(mark)


def test_lost_hub_ends_the_demo_with_one_sentence(tmp_path: Path) -> None:
    with demo_process.running_demo("--no-pipeline", folder=tmp_path / "demo") as (process, mark):
        demo_process.read_until(process, "traffic")
        demo_process.kill(mark, "fiveways serve")
        _, err = process.communicate(timeout=demo_process.PATIENCE)
        assert process.returncode == 1
        assert err.startswith("fiveways demo: the hub ended unexpectedly")
        assert len(err.splitlines()) == 1
        assert demo_process.all_gone(mark)


def test_demo_without_java_skips_the_report(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    ended = demo_process.run_demo("--seconds", "2", folder=tmp_path / "demo", JAVA_HOME=str(tmp_path / "nothing"))
    assert (ended.code, ended.err) == (0, "")
    assert "No tables and no report: Spark needs Java 17 or later" in ended.out
    assert not (ended.folder / "report.html").exists()
    assert len(demo_process.commands(ended.out)) == 3


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ended = demo_process.run_demo(folder=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert (
        ended.err
        == f"fiveways demo: --directory {tmp_path} is not empty; choose another directory, or omit the option\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = demo_process.run_demo("--port", str(port), folder=tmp_path / "demo")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"fiveways demo: port {port} is in use; choose another with --port, or 0 for any free port\n"
    assert not ended.folder.exists()


def test_concurrent_demos_use_different_ports(tmp_path: Path) -> None:
    """Two runs at once use different ports."""
    runs = [
        hubs.start("demo", "--plain", "--no-pipeline", "--seconds", "3", "--directory", str(tmp_path / name))
        for name in ("one", "two")
    ]
    for process in runs:
        out, err = process.communicate(timeout=demo_process.PATIENCE)
        assert (process.returncode, err) == (0, "")
        assert "Failed:" not in out
    settings = [(tmp_path / name / "fiveways.toml").read_text(encoding="utf-8") for name in ("one", "two")]
    assert settings[0].partition("[store]")[0] != settings[1].partition("[store]")[0]


def test_help_has_examples() -> None:
    code, out, _ = hubs.run("demo", "--help")
    assert code == 0
    assert "fiveways demo --keep" in out
    assert "--no-pipeline" in out
