"""The clients of one scenario, in the second namespace: requesters and services.

    python -m chaos.net.clients --host HOST --port PORT --zmq-port PORT --in-flight N --seed N

Each second the command prints a JSON line with the number of answers. A line on stdin ends the work: no new requests
are sent, all pending ones must be answered, and the result is printed as one JSON object.
"""

import argparse
import asyncio
import json
import sys
from random import Random

import uvloop

from chaos.hubs import HubAddress
from chaos.participants import merged
from chaos.raw_services import RawService
from chaos.roster import raw_requesters, raw_services, requesters, services
from chaos.services import Service


async def run(hub: HubAddress, in_flight: int, random: Random, patience: float) -> None:
    """Run requesters and services until a line arrives on stdin."""
    callees: list[Service | RawService] = [*services(hub, random), *raw_services(hub, random)]
    callers = [*requesters(hub, random, in_flight), *raw_requesters(hub, random, in_flight)]
    participants = [*callees, *callers]
    background = [asyncio.create_task(callee.run()) for callee in callees]
    for callee in callees:
        await asyncio.wait_for(callee.has_registered.wait(), patience)
    working = [asyncio.create_task(caller.run()) for caller in callers]
    finish_line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not finish_line.done():
        _print_json({"answered": sum(caller.report().figures["answered"] for caller in callers)})
        await asyncio.wait([finish_line], timeout=1.0)
    for participant in participants:
        participant.finish()
    _, unfinished = await asyncio.wait(working, timeout=patience)
    reports = merged(participant.report() for participant in participants)
    for task in (*background, *working):
        task.cancel()
    await asyncio.gather(*background, *working, return_exceptions=True)
    _print_json({"unfinished": len(unfinished), "reports": [vars(report) for report in reports]})


def _print_json(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--zmq-port", type=int, required=True)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120.0)
    options = parser.parse_args()
    hub = HubAddress(options.host, options.port, options.zmq_port)
    uvloop.run(run(hub, options.in_flight, Random(options.seed), options.patience))
    return 0


if __name__ == "__main__":
    sys.exit(main())
