"""The first connection of a program that may start before its hub or broker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fiveways.errors import ConnectionLost, Refused

T = TypeVar("T")


async def connect_first(
    opened: Awaitable[T], reopened: Callable[[], Awaitable[T]], wait: float, log: logging.Logger
) -> T:
    """Open a connection; if nothing answers, try again for `wait` seconds.

    Args:
        opened: the first try.
        reopened: tries until it works, with backoff.
        wait: 0 for one try.
        log: gets one line when the first try fails.

    Raises:
        Refused: the credentials are wrong; trying again would not help.
        ConnectionLost: the hub or broker cannot be reached.
    """
    give_up_at = asyncio.get_running_loop().time() + wait
    try:
        return await opened
    except Refused:
        raise
    except ConnectionLost as exc:
        if wait <= 0:
            raise
        log.warning("%s; trying again for up to %g seconds", exc, wait)
        error = exc
    try:
        async with asyncio.timeout_at(give_up_at):
            return await reopened()
    except TimeoutError:
        raise ConnectionLost(f"{error} (tried for {wait:g} seconds)") from None
