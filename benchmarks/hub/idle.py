"""Memory per idle session, at the hub and at a bare picows server."""

import asyncio
import resource
from dataclasses import dataclass
from typing import Final

from benchmarks.hub.calls import connect
from benchmarks.hub.codecs import Codec
from benchmarks.hub.links import Link
from benchmarks.hub.routers import Router

_FIRST: Final = 200
"""Sessions opened before the first memory reading; they pay for modules and caches loaded on first use."""
_AT_ONCE: Final = 100
_PER_ADDRESS: Final = 10_000
"""Connections per local address, each of which needs its own port."""
_SPARE_FILES: Final = 200


@dataclass(frozen=True)
class IdleMemory:
    """Resident memory in bytes per session, and the number of sessions."""

    sessions: int
    per_session: float


async def measure(router: Router, codec: Codec, sessions: int) -> IdleMemory:
    """Open sessions up to the number or the system's limit, and measure the router's growth."""
    sessions = min(sessions, allow_many_files() - _SPARE_FILES - _FIRST)
    links: list[Link] = []
    try:
        await _open(router, codec, _FIRST, links)
        before = router.memory()
        await _open(router, codec, sessions, links)
        after = router.memory()
        for link in links:
            if link.failed.done():
                link.failed.result()
    finally:
        for link in links:
            link.close()
    return IdleMemory(sessions, (after - before) / sessions)


async def _open(router: Router, codec: Codec, count: int, links: list[Link]) -> None:
    for start in range(0, count, _AT_ONCE):
        local = f"127.0.1.{1 + len(links) // _PER_ADDRESS}"
        batch = range(start, min(start + _AT_ONCE, count))
        links += await asyncio.gather(*(connect(router, codec, local=local) for _ in batch))


def allow_many_files() -> int:
    """Raise the soft limit of open files to the hard limit; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
