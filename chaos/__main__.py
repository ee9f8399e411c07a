"""Kill the hub again and again under load, and count what became of every request, job and value.

Participants, all on this machine:

  requesters      NQ over HTTP, WebSocket and ZeroMQ, with the hub's own conversation
  raw-requesters  NQ over HTTP, written from the specification with sockets and JSON alone
  services        LRPM, UMQ and UMQ36 with the hub's own client; they leave and return at random
  raw-services    LRPM and UMQ over raw WebSockets; they leave and return at random
  queues          producers push jobs, workers do them, fail at them, or die with them
  retained        writers publish rising retained values, readers subscribe anew
  identities      owners of tokens call what guests, anonymous peers and old tokens must not
  reloads         SIGHUP with rotated tokens and other limits
  journal         the hub writes one in small segments, and in the end it is compared with the requests

In the end every request was answered with its method's own result, once; every acknowledged job is done; every new
subscriber got a value no older than the last acknowledged one; rights always held; the journal has all of it.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

import uvloop

from chaos.configuration import Configuration
from chaos.hubs import KillableHub
from chaos.identities import OwnerTokens
from chaos.journal_audit import audit
from chaos.participants import Participant, Report, merged
from chaos.raw_nq import RawRequester
from chaos.raw_services import RawService
from chaos.roster import JOURNAL, KINDS_OF_PARTICIPANTS, RunContext, cast
from chaos.services import Service

_EXAMPLES: Final = """examples:
  python -m chaos --kills 100 --in-flight 2000 --seed 1
  python -m chaos --kills 10 --only raw-requesters,raw-services,journal
  python -m chaos --kills 10 --without journal,reloads
"""
_FIRST_OWNER: Final = "owner0"
_LIVES: Final = 0.05, 1.6
"""Seconds from a start of the hub to the next kill, at least and at most."""
_PARTING: Final = 10.0
"""Seconds for participants to close their connections."""


@dataclass(frozen=True)
class Plan:
    """How much, and how long."""

    kills: int = 100
    in_flight: int = 2000
    seed: int = 1
    participants: Collection[str] = KINDS_OF_PARTICIPANTS
    pause: float = 0.0
    """Seconds for which the hub stands still after the last kill."""
    patience: float = 120.0
    """Seconds for all that is open to be completed after the last kill."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    kills: int
    reports: list[Report]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, invented, or failed by the hub, in any report."""
        return all(each.is_clean for each in self.reports)

    @property
    def faults(self) -> list[str]:
        """All that was wrong, in words."""
        return [f"{each.kind}: {line}" for each in self.reports for line in (*each.wrong, *each.failures)]

    def __str__(self) -> str:
        lost, doubled = (sum(getattr(each, name) for each in self.reports) for name in ("lost", "doubled"))
        wrong, failures = (sum(len(getattr(each, name)) for each in self.reports) for name in ("wrong", "failures"))
        requests, answered, runs = (
            sum(each.figures[name] for each in self.reports) for name in ("requests", "answered", "runs")
        )
        return (
            f"{self.kills} kills, {requests} requests, {answered} answered, lost {lost}, doubled {doubled}, "
            f"wrong {wrong}, errors made by the hub {failures}; methods ran {runs} times; {self.seconds:.0f} s"
        )


async def run(plan: Plan, folder: Path) -> Outcome:
    """Carry out the plan."""
    started = perf_counter()
    random = Random(plan.seed)
    configuration = Configuration(folder, Random(random.random()), journal=JOURNAL in plan.participants)
    tokens = OwnerTokens("0" * 8 + random.randbytes(20).hex())
    configuration.owners[_FIRST_OWNER] = tokens.valid[0]
    configuration.write()
    hub = KillableHub(folder / "store.db", "--config", str(configuration.path))
    try:
        await hub.start()
        people = cast(RunContext(hub, random, configuration, tokens, plan.in_flight, plan.participants))
        unfinished = await _act(plan, hub, random, configuration, people)
        await hub.stop()
    finally:
        await hub.abandon()
    reports = [*(each.report() for each in people), _hub_report(hub, unfinished)]
    if configuration.journal is not None:
        heard = [each for one in people if isinstance(one, RawRequester) for each in one.acknowledged]
        reports.append(await audit(configuration.journal, heard, hub.lives))
    return Outcome(hub.kills, merged(reports), perf_counter() - started)


async def _act(
    plan: Plan, hub: KillableHub, random: Random, configuration: Configuration, people: list[Participant]
) -> list[str]:
    """Run the participants, and kill the hub meanwhile; return which of them crashed or did not complete."""
    faults: list[str] = []
    running: list[asyncio.Task[None]] = []
    needed = [each for each in people if each.is_background]
    others = [each for each in people if not each.is_background]
    try:
        running += [asyncio.create_task(_run(each, faults)) for each in needed]
        for each in needed:
            if isinstance(each, Service | RawService):
                await asyncio.wait_for(each.is_known.wait(), plan.patience)
        working = {asyncio.create_task(_run(each, faults)): each for each in others}
        running += working
        for number in range(plan.kills):
            await asyncio.sleep(random.uniform(*_LIVES))
            await hub.kill()
            configuration.write()
            await hub.start()
            _tell(number + 1, plan.kills, people, faults)
        if plan.pause:
            hub.pause()
            await asyncio.sleep(plan.pause)
            hub.resume()
        for each in people:
            each.finish()
        _, unfinished = await asyncio.wait(working, timeout=plan.patience)
        faults += [f"did not complete: {working[task]}" for task in unfinished]
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_PARTING)
    return faults


async def _run(participant: Participant, faults: list[str]) -> None:
    """Run a participant; a crash is a fault, and the others go on."""
    try:
        await participant.run()
    except Exception as exc:  # noqa: BLE001  the run goes on
        faults.append(f"crashed: {participant}: {exc!r}")


def _hub_report(hub: KillableHub, unfinished: list[str]) -> Report:
    """Return the errors that the hub logged, and the participants that waited in vain."""
    return Report("hub", wrong=unfinished, failures=hub.log.read_text().splitlines())


def _tell(number: int, kills: int, people: list[Participant], faults: list[str]) -> None:
    reports = [each.report() for each in people]
    figures = [f"{sum(each.figures[name] for each in reports)} {name}" for name in ("requests", "answered")]
    total = len(faults) + sum(len(each.wrong) + len(each.failures) for each in reports)
    text = f"kill {number} of {kills}: {', '.join(figures)}, {total} faults"
    print(f"\r{text:79}", end="", file=sys.stderr, flush=True)


def _kinds(text: str) -> frozenset[str]:
    """Read a list of kinds, written with commas."""
    kinds = frozenset(text.split(","))
    if unknown := kinds.difference(KINDS_OF_PARTICIPANTS):
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: unknown; there are {', '.join(KINDS_OF_PARTICIPANTS)}"
        )
    return kinds


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan = Plan()
    parser.add_argument("--kills", type=int, default=plan.kills, help="how often (default: %(default)s)")
    parser.add_argument(
        "--in-flight", type=int, default=plan.in_flight, help="open requests of all requesters (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=plan.seed, help="chance begins here (default: %(default)s)")
    parser.add_argument("--only", type=_kinds, metavar="KIND,...", help="run these participants alone")
    parser.add_argument("--without", type=_kinds, metavar="KIND,...", default=frozenset(), help="leave these out")
    options = parser.parse_args()
    chosen = (options.only or frozenset(KINDS_OF_PARTICIPANTS)) - options.without
    for needs, offers in (
        ("requesters", ("services", "raw-services")),
        ("raw-requesters", ("services", "raw-services")),
    ):
        if needs in chosen and not chosen.intersection(offers):
            parser.error(f"{needs} need one of {', '.join(offers)}")
    if not chosen - {"services", "raw-services", JOURNAL}:
        parser.error("services and the journal have nothing to do alone")
    with tempfile.TemporaryDirectory() as folder:
        outcome = uvloop.run(run(Plan(options.kills, options.in_flight, options.seed, chosen), Path(folder)))
    print(file=sys.stderr)
    for report in outcome.reports:
        print(" ", report)
    print(outcome)
    for line in outcome.faults[:20]:
        print(" ", line)
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
