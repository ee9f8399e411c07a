"""Calls over MQTT, beside a bare echo on one shared topic through the same broker.

    python -m benchmarks.mqtt [--quick] [--rounds 7] [--seconds 1.5]

64 calls are pending. Caller and service are two processes. The bare echo uses the same link, the same QoS (1) and
messages of the same size (128 bytes), without protobuf, ids and tasks. Both use one topic, so each end also receives
its own messages. Both are measured in turn through each broker; each round starts with the other one. Tables have
medians; ratios are taken within a round, and spread is the interquartile range. CPU-s/M is the caller's CPU time per
million calls.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import process_time
from typing import Final

import uvloop

from benchmarks.hub.results import Sample, Table
from benchmarks.hub.routers import ROOT, environment
from benchmarks.mqtt import echo, rpc
from tests.support.broker_processes import BROKERS, running

IN_FLIGHT: Final = 64
SIZE: Final = 128
TARGET: Final = 0.6
"""Fraction of the rate of the bare echo."""
_KINDS: Final = {"bare echo": echo, "calls": rpc}
Measure = Callable[[str, int, float, int], Awaitable[float]]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status does not depend on the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short measurements, a few seconds in all")
    parser.add_argument("--rounds", type=int, help="number of rounds (default: 7, with --quick 2)")
    parser.add_argument("--seconds", type=float, help="duration of a measurement (default: 1.5, with --quick 0.5)")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        kind, url = options.serve
        uvloop.run(_KINDS[kind].serve(url))
    rounds, seconds = (2, 0.5) if options.quick else (7, 1.5)
    for name in BROKERS:
        table = measure_broker(name, options.rounds or rounds, options.seconds or seconds)
        ratio = median(table.ratios("calls", "bare echo", lambda sample: sample.rate))
        print(table)
        print(f"  target: at least {TARGET:.2f} of the bare echo: {'met' if ratio >= TARGET else 'NOT MET'}\n")
    return 0


def measure_broker(name: str, rounds: int, seconds: float) -> Table:
    """Measure both through one broker."""
    table = Table(f"{name}, {IN_FLIGHT} in flight, QoS 1", "calls/s", "bare echo")
    with running(name) as broker, _serving("bare echo", broker.url), _serving("calls", broker.url):
        contestants = list(_KINDS.items())
        for turn in range(rounds):
            for kind, module in contestants[:: -1 if turn % 2 else 1]:
                cpu = process_time()
                rate = uvloop.run(_timed(module.measure, broker.url, seconds))
                cpu = process_time() - cpu
                table.add(kind, turn, Sample(rate, cpu / max(1.0, rate * seconds) * 1e6))
    return table


async def _timed(measure: Measure, url: str, seconds: float) -> float:
    async with asyncio.timeout(10 * seconds + 30):
        return await measure(url, IN_FLIGHT, seconds, SIZE)


@contextmanager
def _serving(kind: str, url: str) -> Iterator[None]:
    """Run the service in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.mqtt", "--serve", kind, url]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)  # noqa: S603  our own
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the service of {kind} did not start")
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
