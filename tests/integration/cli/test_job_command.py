"""The command of `fiveways pull --exec`, cancelled at every iteration of its start."""

import subprocess
import sys

from tests.support.hubs import PATIENCE, environment
from tests.support.paths import ROOT

CANCELLED_EARLY = """
import asyncio
from fiveways.cli.job_command import run_command

async def cancel_after(iterations):
    task = asyncio.create_task(run_command("sleep 1000 & wait", 1))
    for _ in range(iterations):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("the command ended by itself")

async def main():
    for iterations in range(1, 30):
        await cancel_after(iterations)

asyncio.run(main())
print("ended")
"""


def test_command_cancelled_while_it_starts_leaves_no_process() -> None:
    process = subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", CANCELLED_EARLY],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # stdout reaches its end only after the program and all children of the shell have ended.
        assert process.communicate(timeout=PATIENCE) == ("ended\n", "")
    finally:
        process.kill()
