"""Commands that start Spark remove their files and processes in every case, and interrupts print nothing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fiveways.pipeline import cleanup
from tests.support import captures

TIMEOUT = 600.0

pytestmark = pytest.mark.usefixtures("java")


@dataclass
class Started:
    """A command in an empty directory with its own temporary directory."""

    process: subprocess.Popen[str]
    temporary: Path
    folder: Path

    def until(self, pattern: str) -> None:
        """Wait until a file in the temporary directory matches the pattern."""
        end = time.monotonic() + TIMEOUT
        while not any(self.temporary.glob(pattern)):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to the process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def ended(self) -> tuple[int, str, str]:
        """Return exit code and output; check that no files are left."""
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert list(self.temporary.iterdir()) == []
        assert list(self.folder.iterdir()) == []
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def run(*command: str) -> Started:
        folder, temporary = tmp_path / "folder", tmp_path / "temporary"
        for directory in (folder, temporary):
            directory.mkdir(exist_ok=True)
        process = subprocess.Popen(  # noqa: S603  own program
            [sys.executable, "-m", "fiveways", *command, *captures.quick_java_options()],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Started(process, temporary, folder))
        return started[-1]

    yield run
    for command in started:
        if command.process.poll() is None:
            command.signal(signal.SIGKILL)
            command.process.communicate()


def test_query_leaves_no_files(start: Callable[..., Started], simple_run: captures.SimpleRun) -> None:
    code, out, err = start("sql", "select count(*) as n from calls", "--out", str(simple_run.out)).ended()
    assert (code, out, err) == (0, '{"n": 31}\n', "")


def test_query_interrupted_during_java_start_ends_without_output(
    start: Callable[..., Started], simple_run: captures.SimpleRun
) -> None:
    query = start("sql", "select 1 from calls", "--out", str(simple_run.out))
    query.until(f"{cleanup.PREFIX}*/spark.log")
    query.signal(signal.SIGINT)
    assert query.ended() == (130, "", "")


def test_interrupt_during_the_fork_of_java_ends_the_command(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from fiveways.pipeline import spark_session\n"
        "os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))\n"
        "with spark_session.open_spark(spark_session.SparkSettings('local[1]')): print('Spark runs')\n"
    )
    command, here = [sys.executable, "-c", code], {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, env=here, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603
    assert (ended.returncode, ended.stdout) == (-signal.SIGINT, ""), ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_ends_without_output(
    start: Callable[..., Started], simple_run: captures.SimpleRun, tmp_path: Path, number: int, code: int
) -> None:
    run = start("pipeline", "run", "--journal", str(simple_run.journal), "--out", str(tmp_path / "out"))
    run.until(f"{cleanup.PREFIX}*/blockmgr-*")
    # A terminal sends Ctrl-C to the process group; SIGTERM goes to the command only.
    if number == signal.SIGINT:
        run.signal(number)
    else:
        run.process.send_signal(number)
    assert run.ended() == (code, "", "")
    assert not (tmp_path / "out").exists()


def test_next_process_removes_files_of_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with _killed(tmp_path) as left:
        (left / "liblz4.so").touch()
        kept = tmp_path / f"{cleanup.PREFIX}kept.log"
        kept.touch()
        with cleanup.temporary_directory() as mine, cleanup.temporary_directory() as other:
            assert not left.exists()
            assert mine.is_dir()
            assert other.is_dir()
        assert list(tmp_path.iterdir()) == [kept]


@contextmanager
def _killed(tmp_path: Path) -> Iterator[Path]:
    """Yield the private directory of a process that was killed."""
    code = (
        "from fiveways.pipeline import cleanup; import time\n"
        "with cleanup.temporary_directory() as folder: print(folder, flush=True); time.sleep(1e6)"
    )
    command, here = [sys.executable, "-c", code], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=here, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  own
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with cleanup.temporary_directory():
            assert left.is_dir()  # the process lives
        process.kill()
        process.wait()
        yield left
