"""Tests of coroutines on each event loop that the hub supports."""

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
LONGEST = 300.0
"""Timeout of a test in seconds."""


def on_both_loops(test: Callable[P, Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a coroutine as a test, once on asyncio's loop and once on uvloop."""

    @functools.wraps(test)
    def run(new_loop: NewLoop, *args: P.args, **kwargs: P.kwargs) -> None:
        async def timed() -> None:
            async with asyncio.timeout(LONGEST):
                await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(timed())

    signature = inspect.signature(test)
    new_loop = inspect.Parameter("new_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[new_loop, *signature.parameters.values()])  # type: ignore[attr-defined]
    mark = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())
    return mark(run)
