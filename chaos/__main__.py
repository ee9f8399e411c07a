"""Kill the hub repeatedly under load, and verify every request, job and retained value.

Participants, all on this machine:

  requesters      NQ over HTTP, WebSocket and ZeroMQ, with the hub's own conversation
  raw-requesters  NQ over HTTP, written from the specification with plain sockets and JSON
  services        LRPM, UMQ and UMQ36 with the hub's own client; they disconnect and reconnect at random
  raw-services    LRPM and UMQ over raw WebSockets; they disconnect and reconnect at random
  queues          producers push jobs; workers finish them, fail them, or disconnect while they run
  retained        publishers publish rising retained values, new subscribers read them
  identities      owners of tokens call a method that guests, anonymous peers and revoked tokens must not call
  reloads         SIGHUP with rotated tokens and changed limits
  journal         the hub writes a journal in small segments; at the end it is compared with the requests

A run is clean if every request was answered once, with the correct result of its method; every acknowledged job was
done; every new subscriber got a value no older than the last acknowledged one; permissions always held; and the journal
is complete.
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
from chaos.roster import JOURNAL, KINDS_OF_PARTICIPANTS, RunContext, make_participants
from chaos.services import Service

_EXAMPLES: Final = """examples:
  python -m chaos --kills 100 --in-flight 2000 --seed 1
  python -m chaos --kills 10 --only raw-requesters,raw-services,journal
  python -m chaos --kills 10 --without journal,reloads
"""
_FIRST_OWNER: Final = "owner0"
_LIVES: Final = 0.05, 1.6
"""Minimum and maximum of the seconds between a start of the hub and the next kill."""
_PARTING: Final = 10.0
"""Seconds in which participants may close their connections."""


@dataclass(frozen=True)
class Plan:
    """The size and duration of a run."""

    kills: int = 100
    in_flight: int = 2000
    seed: int = 1
    participants: Collection[str] = KINDS_OF_PARTICIPANTS
    pause: float = 0.0
    """Seconds for which the hub is stopped (SIGSTOP) after the last kill."""
    patience: float = 120.0
    """Timeout in seconds for completing all pending requests after the last kill."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    kills: int
    reports: list[Report]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether no report has a loss, a duplicate, a wrong result or a hub error."""
        return all(report.is_clean for report in self.reports)

    @property
    def faults(self) -> list[str]:
        """All faults, as text."""
        return [f"{report.kind}: {line}" for report in self.reports for line in (*report.wrong, *report.failures)]

    def __str__(self) -> str:
        lost, doubled = (sum(getattr(report, name) for report in self.reports) for name in ("lost", "doubled"))
        wrong, failures = (sum(len(getattr(report, name)) for report in self.reports) for name in ("wrong", "failures"))
        requests, answered, runs = (
            sum(report.figures[name] for report in self.reports) for name in ("requests", "answered", "runs")
        )
        return (
            f"{self.kills} kills, {requests} requests, {answered} answered, lost {lost}, doubled {doubled}, "
            f"wrong {wrong}, errors made by the hub {failures}; methods ran {runs} times; {self.seconds:.0f} s"
        )


async def run(plan: Plan, folder: Path) -> Outcome:
    """Execute the plan."""
    started = perf_counter()
    random = Random(plan.seed)
    configuration = Configuration(folder, Random(random.random()), journal=JOURNAL in plan.participants)
    tokens = OwnerTokens("0" * 8 + random.randbytes(20).hex())
    configuration.owners[_FIRST_OWNER] = tokens.valid[0]
    configuration.write()
    hub = KillableHub(folder / "store.db", "--config", str(configuration.path))
    try:
        await hub.start()
        participants = make_participants(
            RunContext(hub, random, configuration, tokens, plan.in_flight, plan.participants)
        )
        unfinished = await _act(plan, hub, random, configuration, participants)
        await hub.stop()
    finally:
        await hub.abandon()
    reports = [*(acknowledgement.report() for acknowledgement in participants), _hub_report(hub, unfinished)]
    if configuration.journal is not None:
        acknowledged = [
            acknowledgement
            for participant in participants
            if isinstance(participant, RawRequester)
            for acknowledgement in participant.acknowledged
        ]
        reports.append(await audit(configuration.journal, acknowledged, hub.lives))
    return Outcome(hub.kills, merged(reports), perf_counter() - started)


async def _act(
    plan: Plan, hub: KillableHub, random: Random, configuration: Configuration, participants: list[Participant]
) -> list[str]:
    """Run the participants and kill the hub meanwhile; return the participants that crashed or did not complete."""
    faults: list[str] = []
    running: list[asyncio.Task[None]] = []
    background = [participant for participant in participants if participant.is_background]
    foreground = [participant for participant in participants if not participant.is_background]
    try:
        running += [asyncio.create_task(_run(participant, faults)) for participant in background]
        for participant in background:
            if isinstance(participant, Service | RawService):
                await asyncio.wait_for(participant.has_registered.wait(), plan.patience)
        foreground_tasks = {asyncio.create_task(_run(participant, faults)): participant for participant in foreground}
        running += foreground_tasks
        for number in range(plan.kills):
            await asyncio.sleep(random.uniform(*_LIVES))
            await hub.kill()
            configuration.write()
            await hub.start()
            _show_progress(number + 1, plan.kills, participants, faults)
        if plan.pause:
            hub.pause()
            await asyncio.sleep(plan.pause)
            hub.resume()
        for participant in participants:
            participant.finish()
        _, unfinished = await asyncio.wait(foreground_tasks, timeout=plan.patience)
        faults += [f"did not complete: {foreground_tasks[task]}" for task in unfinished]
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_PARTING)
    return faults


async def _run(participant: Participant, faults: list[str]) -> None:
    """Run a participant; a crash is recorded as a fault, and the other participants continue."""
    try:
        await participant.run()
    except Exception as exc:  # noqa: BLE001  the run goes on
        faults.append(f"crashed: {participant}: {exc!r}")


def _hub_report(hub: KillableHub, unfinished: list[str]) -> Report:
    """Report the errors that the hub logged, and the participants that did not complete."""
    return Report("hub", wrong=unfinished, failures=hub.log.read_text().splitlines())


def _show_progress(number: int, kills: int, participants: list[Participant], faults: list[str]) -> None:
    reports = [report.report() for report in participants]
    figures = [f"{sum(report.figures[name] for report in reports)} {name}" for name in ("requests", "answered")]
    total = len(faults) + sum(len(report.wrong) + len(report.failures) for report in reports)
    text = f"kill {number} of {kills}: {', '.join(figures)}, {total} faults"
    print(f"\r{text:79}", end="", file=sys.stderr, flush=True)


def _kinds(text: str) -> frozenset[str]:
    """Parse a comma-separated list of participant kinds."""
    kinds = frozenset(text.split(","))
    if unknown := kinds.difference(KINDS_OF_PARTICIPANTS):
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: unknown; there are {', '.join(KINDS_OF_PARTICIPANTS)}"
        )
    return kinds


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan = Plan()
    parser.add_argument("--kills", type=int, default=plan.kills, help="number of kills (default: %(default)s)")
    parser.add_argument(
        "--in-flight",
        type=int,
        default=plan.in_flight,
        help="number of pending requests of all requesters (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=plan.seed, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument("--only", type=_kinds, metavar="KIND,...", help="run only these participants")
    parser.add_argument(
        "--without", type=_kinds, metavar="KIND,...", default=frozenset(), help="run all but these participants"
    )
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
