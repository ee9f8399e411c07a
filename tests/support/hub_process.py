"""A hub process for asynchronous tests."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PATIENCE = 120.0


@asynccontextmanager
async def served(*arguments: str) -> AsyncIterator[tuple[Process, int]]:
    """Start a hub as a user does; yield the process and its port, and terminate it at the end."""
    command = (sys.executable, "-m", "fiveways", "serve", "--port", "0", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield process, await asyncio.wait_for(_port(process), PATIENCE)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE)


async def _port(process: Process) -> int:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if match := re.search(rb"lrpm\+ws://[^:]+:(\d+)", line):
            return int(match[1])
    assert process.stderr is not None
    raise AssertionError((await process.stderr.read()).decode())
