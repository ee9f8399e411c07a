"""The pool of daemon threads."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from fiveways.app.thread_runner import DaemonThreadPool

SLEEPER = """
import asyncio, time
from fiveways.app.thread_runner import ThreadRunner

async def main():
    threads = ThreadRunner()
    threads.start(lambda: time.sleep(3600), print)
    await asyncio.sleep(0.1)
    threads.close()

asyncio.run(main())
"""


def test_running_thread_does_not_delay_the_end_of_the_process() -> None:
    subprocess.run([sys.executable, "-c", SLEEPER], check=True, timeout=300)  # noqa: S603  # a constant script


def test_idle_threads_are_reused() -> None:
    pool = DaemonThreadPool(2, "t")
    go = threading.Event()
    jobs = [pool.submit(go.wait, 20) for _ in range(5)]
    assert len(pool._threads) == 2
    go.set()
    assert [job.result(20) for job in jobs] == [True] * 5
    pool.shutdown()

    pool = DaemonThreadPool(2, "t")
    assert pool.submit(max, [1, 2], default=0).result(20) == 2
    while pool._idle < 1:
        pass
    assert pool.submit(threading.current_thread).result(20).daemon
    assert len(pool._threads) == 1
    pool.shutdown()


def test_exception_is_set_on_the_future_and_the_thread_survives() -> None:
    pool = DaemonThreadPool(1, "t")
    with pytest.raises(SystemExit):
        pool.submit(sys.exit).result(20)
    assert pool.submit(int).result(20) == 0
    pool.shutdown()


def test_shutdown_cancels_or_finishes_queued_work() -> None:
    for cancels in (True, False):
        pool = DaemonThreadPool(1, "t")
        begun, go = threading.Event(), threading.Event()

        def work(begun: threading.Event = begun, go: threading.Event = go) -> bool:
            begun.set()
            return go.wait(20)

        running = pool.submit(work)
        assert begun.wait(20)
        waiting, unwanted = pool.submit(int), pool.submit(int)
        assert unwanted.cancel()
        pool.shutdown(wait=False, cancel_futures=cancels)
        with pytest.raises(RuntimeError):
            pool.submit(int)
        go.set()
        pool.shutdown()
        assert running.result(20)
        if cancels:
            with pytest.raises(CancelledError):
                waiting.result(20)
        else:
            assert waiting.result(20) == 0
