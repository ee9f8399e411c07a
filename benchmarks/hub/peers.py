"""A service and its caller, each a process, in our own client and in nats-py: what a Python program gets in the end.

    python -m benchmarks.hub.peers fiveways serve lrpm+ws://127.0.0.1:7500
    python -m benchmarks.hub.peers fiveways call lrpm+ws://127.0.0.1:7500 --in-flight 64 --seconds 2

The service says "ready" and serves until it is ended. The caller prints what it did, as JSON.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time

import msgspec
import nats
import uvloop
from nats.aio.msg import Msg

import fiveways

METHOD = "bench.echo"
TEXT = "x" * 84
WARM_UP = 0.3

Call = Callable[[int], Awaitable[bool]]
"""Makes one call and says whether the answer is right."""


class CallerResult(msgspec.Struct, frozen=True):
    """What a caller did: calls that count, in so many seconds, and their waits in microseconds."""

    calls: int
    seconds: float
    all_calls: int
    """With those of the warm-up,"""
    cpu: float
    """and the processor time that all of them took."""
    p50: float
    p99: float


async def serve_fiveways(url: str) -> None:
    """Serve with our client."""

    async def echo(n: str) -> dict[str, str]:
        return {"n": n}

    async with fiveways.connect(url) as peer:
        await peer.register(METHOD, echo)
        await _forever()


async def call_fiveways(url: str, in_flight: int, seconds: float) -> CallerResult:
    """Call with our client."""
    async with fiveways.connect(url) as peer:

        async def call(number: int) -> bool:
            body = {"n": f"{number}{TEXT}"}
            return bool(await peer.call(METHOD, body) == body)

        return await load(call, in_flight, seconds)


async def serve_nats(url: str) -> None:
    """Serve with nats-py; bodies are JSON here too."""

    async def echo(message: Msg) -> None:
        await message.respond(msgspec.json.encode(msgspec.json.decode(message.data)))

    client = await nats.connect(url)
    await client.subscribe(METHOD, cb=echo)
    await client.flush()
    await _forever()


async def call_nats(url: str, in_flight: int, seconds: float) -> CallerResult:
    """Call with nats-py."""
    client = await nats.connect(url)

    async def call(number: int) -> bool:
        body = {"n": f"{number}{TEXT}"}
        answer = await client.request(METHOD, msgspec.json.encode(body), timeout=30)
        return bool(msgspec.json.decode(answer.data) == body)

    done = await load(call, in_flight, seconds)
    await client.close()
    return done


async def _forever() -> None:
    print("ready", flush=True)
    await asyncio.Event().wait()


async def load(call: Call, in_flight: int, seconds: float) -> CallerResult:
    """Keep so many calls in flight for so long, after a short while that does not count."""
    cpu = process_time()
    warm, _ = await _run(call, in_flight, min(WARM_UP, seconds))
    waits, took = await _run(call, in_flight, seconds)
    waits.sort()
    p50, p99 = (waits[int(len(waits) * part)] * 1e6 for part in (0.5, 0.99))
    return CallerResult(len(waits), took, len(warm) + len(waits), process_time() - cpu, p50, p99)


async def _run(call: Call, in_flight: int, seconds: float) -> tuple[list[float], float]:
    waits: list[float] = []
    started = perf_counter()

    async def one_after_the_other(number: int) -> None:
        while (asked := perf_counter()) < started + seconds:
            if not await call(number):
                raise AssertionError("a wrong answer")
            waits.append(perf_counter() - asked)
            number += in_flight

    async with asyncio.TaskGroup() as tasks:
        for number in range(in_flight):
            tasks.create_task(one_after_the_other(1_000_000 + number))
    return waits, perf_counter() - started


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=["fiveways", "nats"])
    parser.add_argument("part", choices=["serve", "call"])
    parser.add_argument("url")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    if options.part == "serve":
        uvloop.run({"fiveways": serve_fiveways, "nats": serve_nats}[options.client](options.url))
    else:
        call = {"fiveways": call_fiveways, "nats": call_nats}[options.client]
        done = uvloop.run(call(options.url, options.in_flight, options.seconds))
        print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main()
