"""Runners of tests that are coroutines."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import ParamSpec

import pytest
import uvloop

P = ParamSpec("P")
NewLoop = Callable[[], asyncio.AbstractEventLoop]

LOOPS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TEST_TIMEOUT = 360.0
"""Timeout of a test in seconds."""


def async_test(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a coroutine as a test, with a timeout."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(_with_timeout(test(*args, **kwargs)))

    return run


def on_both_loops(test: Callable[P, Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a coroutine as a test with a timeout, once on asyncio's loop and once on uvloop."""

    @functools.wraps(test)
    def run(new_loop: NewLoop, *args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_with_timeout(test(*args, **kwargs)))

    signature = inspect.signature(test)
    new_loop = inspect.Parameter("new_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[new_loop, *signature.parameters.values()])  # type: ignore[attr-defined]
    mark = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())
    return mark(run)


async def loop_iterations(count: int = 5) -> None:
    """Run some event loop iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _with_timeout(steps: Coroutine[object, object, None]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT):
        await steps
