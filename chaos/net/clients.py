"""The clients of one scenario, in the other namespace: requesters and services, until they are told to finish.

    python -m chaos.net.clients --host HOST --port PORT --zmq-port PORT --in-flight N --seed N

A line on stdin ends the work: nothing new is asked, all that is open must be answered, and the result goes to stdout as
one JSON object. A line goes there each second before, with the number of answers.
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
    """Ask and serve."""
    serving: list[Service | RawService] = [*services(hub, random), *raw_services(hub, random)]
    asking = [*requesters(hub, random, in_flight), *raw_requesters(hub, random, in_flight)]
    people = [*serving, *asking]
    background = [asyncio.create_task(each.run()) for each in serving]
    for each in serving:
        await asyncio.wait_for(each.is_known.wait(), patience)
    working = [asyncio.create_task(each.run()) for each in asking]
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not told.done():
        _tell({"answered": sum(each.report().figures["answered"] for each in asking)})
        await asyncio.wait([told], timeout=1.0)
    for one in people:
        one.finish()
    _, unfinished = await asyncio.wait(working, timeout=patience)
    reports = merged(each.report() for each in people)
    for task in (*background, *working):
        task.cancel()
    await asyncio.gather(*background, *working, return_exceptions=True)
    _tell({"unfinished": len(unfinished), "reports": [vars(each) for each in reports]})


def _tell(what: dict[str, object]) -> None:
    print(json.dumps(what), flush=True)


def main() -> int:
    """Read the command line."""
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
