"""Python programs at both ends: runs a service and a caller of `peers.py` against a router."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from benchmarks.hub.codecs import UnexpectedFrame
from benchmarks.hub.peers import CallerResult
from benchmarks.hub.results import Sample, Stopwatch
from benchmarks.hub.routers import ROOT, Router, cpu_of, environment

_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Client:
    """A client library, and the router that it speaks to."""

    name: str
    router: Router
    library: str
    url: str
    """With `{port}` in it."""


async def measure(who: Client, in_flight: int, seconds: float) -> Sample:
    """One measurement with fresh processes."""
    url = who.url.format(port=who.router.port)
    async with _process(who.library, "serve", url) as service:
        assert service.stdout is not None
        if await asyncio.wait_for(service.stdout.readline(), _PATIENCE) != b"ready\n":
            raise UnexpectedFrame(f"the service of {who.name} does not start: {await _last_words(service)}")
        served = cpu_of(service.pid)
        watch = Stopwatch(who.router.cpu)
        load = ("--in-flight", str(in_flight), "--seconds", str(seconds))
        async with _process(who.library, "call", url, *load) as caller:
            assert caller.stdout is not None
            said = await asyncio.wait_for(caller.stdout.read(), seconds + _PATIENCE)
            if not said:
                raise UnexpectedFrame(f"the caller of {who.name} failed: {await _last_words(caller)}")
        served = cpu_of(service.pid) - served
    # The time of processes is known when they have ended.
    cpu, others = watch.stop()
    done = msgspec.json.decode(said, type=CallerResult)
    ends = (served + done.cpu) / done.all_calls * 1e6
    return Sample(done.calls / done.seconds, cpu / done.all_calls * 1e6, done.p50, done.p99, ends, others)


@asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[Process]:
    command = (sys.executable, "-m", "benchmarks.hub.peers", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _last_words(process: Process) -> str:
    assert process.stderr is not None
    lines = (await asyncio.wait_for(process.stderr.read(), _PATIENCE)).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
