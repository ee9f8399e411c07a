"""Standard input, line by line, while the connection lives on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

_READ_BYTES: Final = 1 << 16
"""Bytes that are read at once."""


async def stdin_lines() -> AsyncIterator[tuple[int, bytes]]:
    """Give each line that is not empty as soon as it is there, with its number."""
    source = sys.stdin.fileno()
    number, rest = 0, b""
    while chunk := await _read(source):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield number, line.strip()
    if rest.strip():
        yield number + 1, rest.strip()


async def _read(source: int) -> bytes:
    """Read what there is. No thread waits for it: one that does cannot be stopped by Ctrl-C."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    try:
        loop.add_reader(source, there.set)
    except PermissionError:
        return os.read(source, _READ_BYTES)  # a file, which never lets anybody wait
    try:
        await there.wait()
    finally:
        loop.remove_reader(source)
    return os.read(source, _READ_BYTES)
