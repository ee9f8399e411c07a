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
    """A client library, and its router."""

    name: str
    router: Router
    library: str
    url: str
    """A URL with the placeholder `{port}`."""


async def measure(client: Client, in_flight: int, seconds: float) -> Sample:
    """Measure once, with fresh processes."""
    url = client.url.format(port=client.router.port)
    async with _process(client.library, "serve", url) as service:
        assert service.stdout is not None
        if await asyncio.wait_for(service.stdout.readline(), _PATIENCE) != b"ready\n":
            raise UnexpectedFrame(f"the service of {client.name} does not start: {await _last_line(service)}")
        service_cpu = cpu_of(service.pid)
        watch = Stopwatch(client.router.cpu)
        load = ("--in-flight", str(in_flight), "--seconds", str(seconds))
        async with _process(client.library, "call", url, *load) as caller:
            assert caller.stdout is not None
            output = await asyncio.wait_for(caller.stdout.read(), seconds + _PATIENCE)
            if not output:
                raise UnexpectedFrame(f"the caller of {client.name} failed: {await _last_line(caller)}")
        service_cpu = cpu_of(service.pid) - service_cpu
    # The CPU time of processes is known after they exited.
    cpu, others = watch.stop()
    result = msgspec.json.decode(output, type=CallerResult)
    ends = (service_cpu + result.cpu) / result.all_calls * 1e6
    return Sample(result.calls / result.seconds, cpu / result.all_calls * 1e6, result.p50, result.p99, ends, others)


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


async def _last_line(process: Process) -> str:
    assert process.stderr is not None
    lines = (await asyncio.wait_for(process.stderr.read(), _PATIENCE)).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
