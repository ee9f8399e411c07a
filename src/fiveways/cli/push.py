"""`fiveways push`: put jobs into a work queue."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import UsageError, print_stderr
from fiveways.cli.json_io import parse_json, parse_json_argument, print_value

_READ_BYTES: Final = 1 << 16
"""Bytes per read of standard input."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Options of `fiveways push`."""

    queue: str
    body: str | None = None
    lines: bool = False
    timeout: float = 30.0


def push(connection: ConnectionOptions, options: PushOptions) -> None:
    """Push one job and print the length of the queue, or push one job per line and print their number."""
    if not options.lines:
        print_value(asyncio.run(_push(connection, options, parse_json_argument(options.body))))
        return
    if options.body is not None:
        raise UsageError("--lines reads jobs from standard input; leave out the JSON argument")
    confirmed = PushCount()
    try:
        asyncio.run(_push_lines(connection, options, confirmed))
    except BaseException:
        if confirmed.jobs:
            print_stderr(f"fiveways push: the hub has confirmed {confirmed}")
        raise
    print_value(confirmed.jobs)


@dataclass(slots=True)
class PushCount:
    """The number of jobs that the hub has confirmed."""

    jobs: int = 0
    last_line: int = 0
    """The line of the last confirmed job."""

    def __str__(self) -> str:
        return f"{self.jobs} {'job' if self.jobs == 1 else 'jobs'}, up to line {self.last_line}"


async def _push(connection: ConnectionOptions, options: PushOptions, data: object) -> int:
    async with connection.connect_within(options.timeout) as peer:
        return await peer.push(options.queue, data)


async def _push_lines(connection: ConnectionOptions, options: PushOptions, confirmed: PushCount) -> None:
    """Push one job per line of standard input, and wait for each confirmation."""
    async with connection.connect_peer(options.timeout) as peer:
        async for number, line in _stdin_lines():
            await peer.push(options.queue, parse_json(line, f"line {number}"))
            confirmed.jobs, confirmed.last_line = confirmed.jobs + 1, number


async def _stdin_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is not empty, as soon as it is complete."""
    descriptor = sys.stdin.fileno()
    number, rest = 0, b""
    while chunk := await _read(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line.strip()
    if rest.strip():
        yield number + 1, rest.strip()


async def _read(descriptor: int) -> bytes:
    """Read the available bytes. There is no reader thread, because Ctrl-C cannot stop one."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return os.read(descriptor, _READ_BYTES)  # a regular file, which is always readable
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _READ_BYTES)
