"""Attack a hub, and measure the cost for the hub and for a healthy peer.

Each attack has its own hub process with limited memory, and uses raw sockets. A healthy peer in a third process pings
the hub every 20 ms over UMQ, and connects repeatedly as a newcomer by WebSocket, POST and /livez. Each attack prints
one line: resident memory of the hub before the attack, at its peak, and after the attacker has disconnected; bytes per
action of the attacker; descriptors; CPU seconds of the hub; the healthy peer's ping before and during the attack; and
the number of refused newcomers. Everything is on this machine.

Examples:
    make attacks
    python -m chaos.attacks --only sessions --only posts --scale 0.1
    python -m chaos.attacks --source ../older/src        the same attacks on another checkout
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import uvloop

from chaos.attacks import sessions, stored_state, topics
from chaos.attacks.attack_run import TOKEN, Attack, AttackRun, HealthyPeer
from chaos.processes import ROOT, HubProcess, cpu_seconds, descriptors, resident

ATTACKS: Final = {**sessions.ATTACKS, **stored_state.ATTACKS, **topics.ATTACKS}
_GIB: Final = 1 << 30
_STRICT: Final = """[auth]
anonymous = "never"
[[auth.identity]]
name = "healthy"
token = "{token}"
"""


@dataclass(frozen=True)
class Plan:
    """The attacks to run, and their size."""

    source: Path = ROOT / "src"
    scale: float = 1.0
    memory: float = 6.0
    """Limit of the hub's address space in GiB."""
    calm: float = 2.0
    """Seconds of pings before the attack, and seconds for the hub to recover after it."""


@dataclass
class Outcome:
    """The result of one attack."""

    name: str
    actions: int = 0
    failed: int = 0
    seconds: float = 0.0
    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0
    per_action: float = 0.0
    descriptors: int = 0
    descriptors_after: int = 0
    cpu: float = 0.0
    calm: dict[str, Any] = field(default_factory=dict)
    during: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        calm, during = self.calm, self.during
        ping = (
            f"{calm.get('p50', 0):.1f}>{during.get('p50', 0):.1f}/{during.get('p95', 0):.0f}/{during.get('max', 0):.0f}"
        )
        numbers = (
            f"{self.name:11}{self.actions:8}{self.failed:8}{self.seconds:7.0f}{self.before:7.0f}{self.peak:7.0f}"
            f"{self.after:7.0f}{self.per_action:11.0f}{self.descriptors:7}{self.descriptors_after:7}{self.cpu:7.1f}"
        )
        lost = " lost" if during.get("lost") else ""
        return (
            f"{numbers} {ping:>20}{lost} {during.get('refused', 0)}/{during.get('tried', 0)}  {'; '.join(self.notes)}"
        )


_HEADING: Final = (
    f"{'attack':11}{'actions':>8}{'refused':>8}{'s':>7}{'MiB':>7}{'peak':>7}{'after':>7}{'B/action':>11}"
    f"{'fds':>7}{'after':>7}{'CPU s':>7} {'ping ms >p50/p95/max':>20} newcomers refused  notes"
)


async def attack(name: str, plan: Plan, folder: Path) -> Outcome:
    """Run one attack on a new hub."""
    chosen = ATTACKS[name]
    outcome = Outcome(name)
    hub = HubProcess(
        ("log.level=error", *chosen.settings),
        folder / "hub.log",
        source=plan.source,
        arguments=_arguments(chosen, folder),
    )
    await hub.start()
    memory_limit = int(plan.memory * _GIB)
    resource.prlimit(hub.pid, resource.RLIMIT_AS, (memory_limit, memory_limit))
    healthy = await HealthyPeer.start(hub.port, TOKEN if chosen.has_token else "")
    attack_run = AttackRun(hub, max(1, round(chosen.actions * plan.scale)))
    try:
        await asyncio.sleep(plan.calm)
        outcome.calm = await healthy.report()
        outcome.before = attack_run.rss = resident(hub.pid)
        cpu_before, began = cpu_seconds(hub.pid), monotonic()
        await _run_with_timeout(attack_run, chosen)
        outcome.seconds = monotonic() - began
        outcome.during = await healthy.report()
        outcome.actions, outcome.failed, outcome.notes = attack_run.done, attack_run.failed, attack_run.notes
        outcome.cpu, outcome.peak = cpu_seconds(hub.pid) - cpu_before, attack_run.peak()
        outcome.per_action = max(0.0, attack_run.held - attack_run.rss) * (1 << 20) / max(1, attack_run.done)
        outcome.descriptors = attack_run.descriptors
        _leave(attack_run)
        await asyncio.sleep(plan.calm)
        outcome.after, outcome.descriptors_after = resident(hub.pid), descriptors(hub.pid)
    except (OSError, ValueError, IndexError):  # the hub process has exited: /proc does not have it
        outcome.notes = [*attack_run.notes, "the hub is gone"]
    finally:
        _leave(attack_run)
        await healthy.stop()
        await hub.stop()
    outcome.notes += [f"log: {line[:90]}" for line in hub.errors()[:1]]
    return outcome


async def _run_with_timeout(attack_run: AttackRun, chosen: Attack) -> None:
    """Run the attack until its time limit."""
    try:
        async with asyncio.timeout(chosen.limit):
            await chosen.run(attack_run)
    except TimeoutError:
        attack_run.notes.append(f"stopped after {chosen.limit:.0f} s")
        attack_run.hold()
    except (OSError, asyncio.IncompleteReadError, ExceptionGroup) as exc:
        attack_run.notes.append(f"ended by {exc}")


def _leave(attack_run: AttackRun) -> None:
    for end in attack_run.ends:
        with suppress(OSError):
            end()
    attack_run.ends.clear()


def _arguments(chosen: Attack, folder: Path) -> tuple[str, ...]:
    if not chosen.has_token:
        return ()
    path = folder / "fiveways.toml"
    path.write_text(_STRICT.format(token=TOKEN), encoding="utf-8")
    return "--config", str(path)


async def run(names: Sequence[str], plan: Plan) -> list[Outcome]:
    """Run attacks one after the other."""
    outcomes = []
    print(_HEADING, flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(await attack(name, plan, Path(folder)))
        print(outcomes[-1], flush=True)
    return outcomes


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan = Plan()
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="run only this attack; may be repeated")
    parser.add_argument(
        "--scale", type=float, default=plan.scale, help="fraction of the full number of actions, such as 0.1"
    )
    parser.add_argument("--source", type=Path, default=plan.source, help="the src folder of the hub to attack")
    parser.add_argument("--memory", type=float, default=plan.memory, help="limit of the hub's address space in GiB")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file, one JSON object per line")
    options = parser.parse_args()
    names = options.only or list(ATTACKS)
    outcomes = uvloop.run(run(names, Plan(options.source.resolve(), options.scale, options.memory)))
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(each)) + "\n" for each in outcomes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
