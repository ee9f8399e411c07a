"""Work queues on the command line, against a hub in a separate process."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_output import CommandRunner
from tests.support.hubs import PATIENCE, Hub, completions, feed, serving, start
from tests.support.terminals import Terminal

PROTOCOLS = ["umq", "umq36", "lrpm", "lrpm?encoding=cbor", "nq+ws", "nq+http"]
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
TRIES = 2


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving("--set", f"limits.max_tries={TRIES}", "--set", "limits.retry_delay=0") as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return re.sub(r"\W+", "_", request.node.name)


def counts(hub: Hub, said: CommandRunner, queue: str) -> tuple[int, int, int]:
    """Return the numbers of waiting, given and dead jobs."""
    numbers = json.loads(said("queues", hub.url("lrpm"), queue))
    return numbers["waiting"], numbers["given"], numbers["dead"]


def pushed(hub: Hub, queue: str, text: str) -> "tuple[int, str, str]":
    """Push lines in a separate process."""
    process = start("push", hub.url("nq+http"), queue, "--lines")
    out, err = process.communicate(text, timeout=PATIENCE)
    return process.returncode, out, err


def pull(said: CommandRunner, url: str, queue: str, *options: str, code: int = 0) -> str:
    """Pull with a timeout."""
    return said("pull", url, queue, "--timeout", str(PATIENCE), *options, code=code)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@every_protocol
def test_jobs_are_pushed_and_pulled(hub: Hub, said: CommandRunner, queue: str, protocol: str) -> None:
    url = hub.url(protocol)
    assert said("push", url, queue, '{"photo": "a.png"}') == "1\n"
    assert said("push", url, queue) == "2\n"
    assert said("push", url, queue, '"ž"') == "3\n"
    assert pull(said, url, queue) == '{"photo":"a.png"}\n'
    assert pull(said, url, queue, "--count", "2", "--raw") == "null\nž\n"
    assert counts(hub, said, queue) == (0, 0, 0)


def test_each_line_is_a_job(hub: Hub, said: CommandRunner, queue: str) -> None:
    assert pushed(hub, queue, '1\n\n  "two"\n[3]') == (0, "3\n", "")
    assert said("pull", hub.url("lrpm"), queue, "--follow", "--timeout", "3") == '1\n"two"\n[3]\n'


def test_line_is_pushed_before_the_next_one_arrives(hub: Hub, said: CommandRunner, queue: str) -> None:
    process = start("push", hub.url("lrpm"), queue, "--lines")
    assert process.stdin is not None
    for line in ("1\n", "2\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert pull(said, hub.url("umq"), queue) == line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    # The second job may be pulled before its push is confirmed; the first push is confirmed before the second.
    ends = ("1 job, up to line 1", "2 jobs, up to line 2")
    assert err in [f"fiveways push: the hub has confirmed {end}\n" for end in ends]


def test_invalid_line_ends_push_and_prints_confirmed_jobs(hub: Hub, said: CommandRunner, queue: str) -> None:
    code, out, err = pushed(hub, queue, "1\n\n{\n4\n")
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first == "fiveways push: the hub has confirmed 1 job, up to line 1"
    assert second.startswith("fiveways push: line 3 is not JSON: ")
    assert counts(hub, said, queue) == (1, 0, 0)


def test_file_is_pushed_line_by_line(hub: Hub, queue: str, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("1\n2\n")
    with (tmp_path / "work").open() as file:
        process = feed(file, "push", hub.url("lrpm"), queue, "--lines")
        assert process.communicate(timeout=PATIENCE) == ("2\n", "")


@every_protocol
def test_command_handles_the_job(hub: Hub, said: CommandRunner, queue: str, protocol: str) -> None:
    url = hub.url(protocol)
    said("push", url, queue, '{"n": 1}')
    said("push", url, queue, "2")
    # A command may succeed without reading its job.
    assert pull(said, url, queue, "--exec", "tr n m; echo seen >&2") == '{"m":1}\n'
    assert said.err == "seen\n"
    assert pull(said, url, queue, "--exec", "true") == ""
    assert counts(hub, said, queue) == (0, 0, 0)


@every_protocol
def test_job_of_failed_command_returns_to_the_queue(hub: Hub, said: CommandRunner, queue: str, protocol: str) -> None:
    url = hub.url(protocol)
    said("push", url, queue, "1")
    pull(said, url, queue, "--exec", "exit 3", code=1)
    assert said.err == "fiveways pull: the command ended with exit code 3; the job was returned to the queue\n"
    assert counts(hub, said, queue) == (1, 0, 0)
    pull(said, url, queue, "--exec", "kill -9 $$", code=1)
    assert said.err == "fiveways pull: the command was killed by signal 9; the job was returned to the queue\n"
    assert counts(hub, said, queue) == (0, 0, 1)


def test_returned_jobs_are_counted(hub: Hub, said: CommandRunner, queue: str) -> None:
    url = hub.url("lrpm")
    pushed(hub, queue, "1\n2\n")
    pull(said, url, queue, "--count", "3", "--exec", "grep 2", code=1)
    back = "fiveways pull: the command ended with exit code 1; the job was returned to the queue\n"
    assert said.err == f"{back}{back}fiveways pull: 2 of 3 jobs were returned to {queue}\n"
    assert counts(hub, said, queue) == (0, 0, 1)


def test_missing_command_ends_pull_before_jobs_are_dead(hub: Hub, said: CommandRunner, queue: str) -> None:
    pushed(hub, queue, "1\n2\n")
    said("pull", hub.url("lrpm"), queue, "--follow", "--timeout", "3", "--exec", "/no/such/command", code=1)
    message = "the shell cannot run the command (exit code 127); the job was returned to the queue"
    assert said.err.endswith(f"fiveways pull: {message}\n")
    assert counts(hub, said, queue) == (2, 0, 0)


@every_protocol
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_worker_returns_its_job(
    hub: Hub, said: CommandRunner, queue: str, protocol: str, number: signal.Signals
) -> None:
    said("push", hub.url("lrpm"), queue, "1")
    process = start(
        "pull", hub.url(protocol), queue, "--timeout", str(PATIENCE), "--exec", "echo begun; sleep 1000; echo done"
    )
    assert line_of(process) == "begun\n"
    assert counts(hub, said, queue) == (0, 1, 0)
    process.send_signal(number)
    # communicate() also waits for children of the shell, which inherited stdout.
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0
    assert pull(said, hub.url("lrpm"), queue) == "1\n"


def test_job_returns_to_the_queue_if_stdout_is_closed(hub: Hub, said: CommandRunner, queue: str) -> None:
    process = start("pull", hub.url("lrpm"), queue, "--timeout", str(PATIENCE), "--follow")
    said("push", hub.url("lrpm"), queue, "1")
    assert line_of(process) == "1\n"
    assert process.stdout is not None
    process.stdout.close()
    said("push", hub.url("lrpm"), queue, "2")
    assert process.wait(timeout=PATIENCE) == 0
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert pull(said, hub.url("lrpm"), queue) == "2\n"


@every_protocol
def test_pull_timeout_returns_124(hub: Hub, said: CommandRunner, queue: str, protocol: str) -> None:
    url = hub.url(protocol)
    assert said("pull", url, queue, "--timeout", "0.5", code=124) == ""
    assert said.err == f"fiveways pull: no job arrived in '{queue}' within 0.5 seconds\n"


def test_fewer_jobs_than_count_returns_124(hub: Hub, said: CommandRunner, queue: str) -> None:
    said("push", hub.url("lrpm"), queue, "1")
    assert said("pull", hub.url("lrpm"), queue, "--timeout", "3", "--count", "2", code=124) == "1\n"
    assert said.err == f"fiveways pull: 1 of 2 jobs arrived; no job arrived in '{queue}' within 3 seconds\n"


@every_protocol
def test_dead_jobs_are_redriven(hub: Hub, said: CommandRunner, queue: str, protocol: str) -> None:
    url = hub.url(protocol)
    said("push", url, queue, "1")
    pull(said, url, queue, "--count", str(TRIES), "--exec", "false", code=1)
    numbers = {"waiting": 0, "given": 0, "dead": 1}
    assert json.loads(said("queues", url, queue)) == numbers
    assert json.loads(said("queues", url))[queue] == numbers
    assert said("queues", url, queue, "--redrive") == "1\n"
    assert said("queues", url, queue, "--redrive") == "0\n"
    assert pull(said, url, queue) == "1\n"


def test_dead_jobs_are_listed_shown_redriven_and_dropped_one_by_one(hub: Hub, said: CommandRunner, queue: str) -> None:
    url = hub.url("lrpm")
    pushed(hub, queue, '{"n": 1}\n{"n": 2}\n')
    pull(said, url, queue, "--count", str(2 * TRIES), "--exec", "exit 3", code=1)
    first, second = (json.loads(line) for line in said("queues", url, queue, "--dead").splitlines())
    assert first["tries"] == TRIES
    assert first["error"] == "raised: JobFailed: the command ended with exit code 3; the job was returned to the queue"
    assert json.loads(said("queues", url, queue, "--job", str(first["job"]))) == {**first, "data": {"n": 1}}
    assert said("queues", url, queue, "--job", str(first["job"]), "--drop") == ""
    assert said("queues", url, queue, "--job", str(second["job"]), "--redrive") == "1\n"
    assert counts(hub, said, queue) == (1, 0, 0)
    said("queues", url, queue, "--job", str(first["job"]), code=1)
    assert said.err == f"fiveways queues: bad arguments: there is no dead job {first['job']} in {queue}\n"
    assert said("queues", url, queue, "--dead") == ""
    pull(said, url, queue, "--count", str(TRIES), "--exec", "exit 3", code=1)
    with Terminal("queues", url, queue, "--dead") as terminal:
        assert terminal.end() == 0
    assert "the command ended with exit code 3" in terminal.shown


def test_empty_queue_prints_a_note(hub: Hub, said: CommandRunner, queue: str) -> None:
    assert counts(hub, said, queue) == (0, 0, 0)
    assert said.err == f"fiveways queues: {queue} is empty\n"


def test_terminal_shows_a_table(hub: Hub, said: CommandRunner, queue: str) -> None:
    url = hub.url("lrpm")
    said("push", url, queue, "1")
    with Terminal("queues", url, queue) as terminal:
        assert terminal.end() == 0
    title, row = terminal.shown.splitlines()[:2]
    assert all(column in title for column in ("queue", "waiting", "given out", "dead"))
    assert queue in row
    assert "--redrive" not in terminal.shown
    pull(said, url, queue, "--count", str(TRIES), "--exec", "false", code=1)
    with Terminal("queues", url) as terminal:
        assert terminal.end() == 0
    assert "--redrive returns them to their queue" in terminal.shown
    with Terminal("queues", url, queue, "--raw") as terminal:
        assert terminal.end() == 0
    assert json.loads(terminal.shown) == {"waiting": 0, "given": 0, "dead": 1}


@pytest.mark.parametrize("verb", ["push", "pull", "queues"])
def test_shell_completes_queues(hub: Hub, said: CommandRunner, queue: str, verb: str) -> None:
    said("push", hub.url("lrpm"), queue, "1")
    assert completions(verb, hub.url("lrpm"), queue[:-1]) == [queue]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["push", "lrpm+ws://localhost:1", "q", "{"], "'{' is not JSON"),
        (["push", "lrpm+ws://localhost:1", "q", "1", "--lines"], "--lines reads jobs from standard input"),
        (
            ["pull", "lrpm+ws://localhost:1", "q", "--follow", "--count", "1"],
            "--count cannot be combined with --follow",
        ),
        (["pull", "lrpm+ws://localhost:1", "q", "--exec", "cat", "--raw"], "--raw cannot be combined with --exec"),
        (["queues", "lrpm+ws://localhost:1", "--redrive"], "--redrive needs the name of a queue"),
        (["queues", "lrpm+ws://localhost:1", "q", "--drop"], "--drop needs --job NUMBER"),
        (["queues", "lrpm+ws://localhost:1", "q", "--drop", "--redrive", "--job", "1"], "exclude each other"),
        (["queues", "ftp://localhost"], "use one of umq+ws://"),
    ],
)
def test_usage_error_returns_2_without_connecting(said: CommandRunner, arguments: list[str], sentence: str) -> None:
    assert said(*arguments, code=2) == ""
    assert sentence in said.err
    assert said.err.count("\n") == 1
