"""Poll loops for conditions that have no event."""

import asyncio
import inspect
import time
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 120.0, step: float = 0.005) -> None:
    """Wait until a condition is true; AssertionError after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        _check(condition, deadline)
        await asyncio.sleep(step)


def until_sync(condition: Callable[[], object], *, seconds: float = 300.0, step: float = 0.02) -> None:
    """Wait until a condition is true, and block the thread; AssertionError after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        _check(condition, deadline)
        time.sleep(step)


def _check(condition: Callable[[], object], deadline: float) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"timeout of {inspect.getsource(condition).strip()}")
