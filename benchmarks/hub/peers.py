"""A service and its caller as processes, with the Fiveways client and with nats-py.

    python -m benchmarks.hub.peers fiveways serve lrpm+ws://127.0.0.1:7500
    python -m benchmarks.hub.peers fiveways call lrpm+ws://127.0.0.1:7500 --in-flight 64 --seconds 2

The service prints "ready" and serves until it is terminated. The caller prints its result as JSON.
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
"""Makes one call and returns whether the response is correct."""


class CallerResult(msgspec.Struct, frozen=True):
    """The result of a caller: calls after the warm-up, their duration, and latencies in microseconds."""

    calls: int
    seconds: float
    all_calls: int
    """Calls including the warm-up."""
    cpu: float
    """CPU seconds of all calls."""
    p50: float
    p99: float


async def serve_fiveways(url: str) -> None:
    """Serve with the Fiveways client."""

    async def echo(n: str) -> dict[str, str]:
        return {"n": n}

    async with fiveways.connect(url) as peer:
        await peer.register(METHOD, echo)
        await _forever()


async def call_fiveways(url: str, in_flight: int, seconds: float) -> CallerResult:
    """Call with the Fiveways client."""
    async with fiveways.connect(url) as peer:

        async def call(number: int) -> bool:
            body = {"n": f"{number}{TEXT}"}
            return bool(await peer.call(METHOD, body) == body)

        return await load(call, in_flight, seconds)


async def serve_nats(url: str) -> None:
    """Serve with nats-py; bodies are JSON as well."""

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

    result = await load(call, in_flight, seconds)
    await client.close()
    return result


async def _forever() -> None:
    print("ready", flush=True)
    await asyncio.Event().wait()


async def load(call: Call, in_flight: int, seconds: float) -> CallerResult:
    """Keep a number of calls pending for a number of seconds, after a warm-up."""
    cpu = process_time()
    warm_up, _ = await _run(call, in_flight, min(WARM_UP, seconds))
    latencies, duration = await _run(call, in_flight, seconds)
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * part)] * 1e6 for part in (0.5, 0.99))
    return CallerResult(len(latencies), duration, len(warm_up) + len(latencies), process_time() - cpu, p50, p99)


async def _run(call: Call, in_flight: int, seconds: float) -> tuple[list[float], float]:
    latencies: list[float] = []
    started = perf_counter()

    async def call_repeatedly(number: int) -> None:
        while (sent_at := perf_counter()) < started + seconds:
            if not await call(number):
                raise AssertionError("wrong response")
            latencies.append(perf_counter() - sent_at)
            number += in_flight

    async with asyncio.TaskGroup() as tasks:
        for number in range(in_flight):
            tasks.create_task(call_repeatedly(1_000_000 + number))
    return latencies, perf_counter() - started


def main() -> None:
    """Run the command."""
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
        result = uvloop.run(call(options.url, options.in_flight, options.seconds))
        print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
