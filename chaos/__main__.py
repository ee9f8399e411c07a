"""Kill the hub again and again under load, and count what became of every request.

    python -m chaos --kills 100 --in-flight 2000 --seed 1

Requesters speak NQ over HTTP, WebSocket and ZeroMQ; services speak LRPM, UMQ and UMQ36, and leave and return at
random. In the end every request must have been answered with its method's own result, once. All of it is on this
machine alone.
"""

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter

import uvloop

from chaos.hubs import DyingHub
from chaos.requesters import Dealer, Listener, Poller, Requester, Tally
from chaos.services import Service


@dataclass(frozen=True)
class Plan:
    """How much, and how long."""

    kills: int = 100
    in_flight: int = 2000
    requesters: int = 9
    services: int = 4
    pause: float = 0.0
    """Seconds for which the hub stands still after the last kill."""
    seed: int = 1
    patience: float = 120.0
    """Seconds for all that is open to be answered after the last kill."""


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    kills: int
    requests: int
    answered: int
    lost: int
    doubled: int
    wrong: list[str]
    failures: list[str]
    runs: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, invented, or failed by the hub."""
        return not (self.lost or self.doubled or self.wrong or self.failures)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.requests} requests, {self.answered} answered, lost {self.lost}, "
            f"callbacks doubled {self.doubled}, wrong {len(self.wrong)}, errors made by the hub {len(self.failures)}; "
            f"methods ran {self.runs} times; {self.seconds:.0f} s"
        )


async def run(plan: Plan, folder: Path) -> Outcome:
    """Carry out the plan."""
    started = perf_counter()
    random = Random(plan.seed)
    hub = DyingHub(folder / "store.db")
    await hub.start()
    tally = Tally()
    share = plan.in_flight // plan.requesters
    ports = hub.port, hub.zmq_port
    kinds: list[type[Requester]] = [Poller, Listener, Dealer]
    requesters = [
        kinds[number % len(kinds)](f"r{number}", ports, share, Random(random.random()), tally)
        for number in range(plan.requesters)
    ]
    services = [Service(number, hub.port, Random(random.random())) for number in range(plan.services)]
    async with asyncio.TaskGroup() as tasks:
        serving = [tasks.create_task(service.run()) for service in services]
        await services[0].is_known.wait()
        asking = [tasks.create_task(requester.run()) for requester in requesters]
        for number in range(plan.kills):
            await asyncio.sleep(random.uniform(0.05, 0.8))
            await hub.kill()
            await hub.start()
            _tell(f"kill {number + 1}: {tally.asked} asked, {tally.answered} answered, {len(tally.failures)} failed")
        if plan.pause:
            hub.pause()
            await asyncio.sleep(plan.pause)
            hub.resume()
        for service in services:
            service.stays.set()
        for requester in requesters:
            requester.is_finishing = True
        await asyncio.wait(asking, timeout=plan.patience)
        for service in services:
            service.end()
        for task in (*asking, *serving):
            task.cancel()
    await hub.stop()
    return Outcome(
        hub.kills,
        tally.asked,
        tally.answered,
        sum(len(requester.open) for requester in requesters),
        tally.doubled(),
        tally.wrong,
        tally.failures,
        sum(service.runs for service in services),
        perf_counter() - started,
    )


def _tell(text: str) -> None:
    print(f"\r{text:79}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan = Plan()
    parser.add_argument("--kills", type=int, default=plan.kills)
    parser.add_argument("--in-flight", type=int, default=plan.in_flight)
    parser.add_argument("--seed", type=int, default=plan.seed)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = uvloop.run(run(Plan(options.kills, options.in_flight, seed=options.seed), Path(folder)))
    print(file=sys.stderr)
    print(outcome)
    for line in [*outcome.wrong, *outcome.failures][:20]:
        print(" ", line)
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
