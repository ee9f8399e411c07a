"""A hub and its clients with a bad network between them: packets are lost, delayed and reordered, and it is cut.

The hub runs in one network namespace, its clients in another. A TUN device in each is all there is between them, and
this process relays their packets, so that TCP retransmits for real. Requesters speak NQ over HTTP, WebSocket and
ZeroMQ; services speak LRPM, UMQ and UMQ36. When the network is good again, every request must have been answered with
its method's own result, once. It needs root, and leaves nothing behind.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Final

from chaos.hubs import KillableHub
from chaos.net.namespaces import Side, missing, network
from chaos.net.relay import Direction
from chaos.net.scenarios import FULL, GOOD, SCENARIOS

_EXAMPLES: Final = """examples:
  sudo python -m chaos.net
  sudo python -m chaos.net --scenario loss-20 --scenario partitions --seed 3
"""
_ROOT: Final = Path(__file__).parents[2]
_PATIENCE: Final = 180.0
"""Seconds for all that is open to be answered after the network is good again."""
_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Outcome:
    """The result of one scenario."""

    scenario: str
    requests: int
    answered: int
    lost: int
    doubled: int
    faults: list[str]
    passed: int
    dropped: int
    retransmitted: int
    healed: float
    """Seconds from the end of the last phase until all was answered."""

    @property
    def is_clean(self) -> bool:
        """Whether all was answered, once and rightly."""
        return self.requests == self.answered and not (self.lost or self.doubled or self.faults)

    def __str__(self) -> str:
        numbers = (self.requests, self.answered, self.lost, self.doubled, len(self.faults))
        packets = (self.passed, self.dropped, self.retransmitted)
        return (
            f"{self.scenario:12}" + "".join(f"{each:>10}" for each in (*numbers, *packets)) + f"{self.healed:>8.1f} s"
        )


_HEAD: Final = f"{'scenario':12}" + "".join(
    f"{each:>10}"
    for each in ("requests", "answered", "lost", "doubled", "wrong", "packets", "dropped", "resent", "healed in")
)


async def run(names: list[str], in_flight: int, seed: int) -> list[Outcome]:
    """Carry out some scenarios, one after the other, each with a hub and a network of its own."""
    outcomes = []
    print(_HEAD, flush=True)
    for name in names:
        with network() as (hub_side, client_side), tempfile.TemporaryDirectory() as folder:
            outcome = await _scenario(name, hub_side, client_side, Path(folder), in_flight, Random(seed))
        print(outcome, flush=True)
        for line in outcome.faults[:10]:
            print(" ", line)
        outcomes.append(outcome)
    return outcomes


async def _scenario(
    name: str, hub_side: Side, client_side: Side, folder: Path, in_flight: int, random: Random
) -> Outcome:
    to_hub = Direction(client_side.device, hub_side.device, Random(random.random()))
    to_clients = Direction(hub_side.device, client_side.device, Random(random.random()))
    flags = ("--set", "server.ping_interval=5", "--set", "server.ping_timeout=5")
    hub = KillableHub(folder / "store.db", *flags, host=hub_side.address, prefix=hub_side.prefix)
    clients: Process | None = None
    result: asyncio.Task[dict[str, Any]] | None = None
    try:
        to_hub.start()
        to_clients.start()
        await hub.start()
        clients = await _clients(hub, client_side, in_flight, random)
        await _told(clients)
        result = asyncio.create_task(_result(name, clients))
        for phase in SCENARIOS[name]:
            to_hub.conditions, to_clients.conditions = phase.to_hub, phase.to_clients
            started = perf_counter()
            if phase.kills_hub:
                await hub.kill()
                await hub.start()
            await asyncio.sleep(max(0.0, phase.seconds - (perf_counter() - started)))
            if result.done():
                result.result()
        to_hub.conditions = to_clients.conditions = GOOD
        healed = perf_counter()
        assert clients.stdin is not None
        clients.stdin.write(b"finish\n")
        told = await asyncio.wait_for(result, 1.5 * _PATIENCE)
        took = perf_counter() - healed
        await clients.wait()
        await hub.stop()
        resent = hub_side.retransmissions() + client_side.retransmissions()
    finally:
        if result is not None:
            result.cancel()
        if clients is not None and clients.returncode is None:
            clients.kill()
            await clients.wait()
        await hub.abandon()
        to_hub.stop()
        to_clients.stop()
    outcome = _outcome(name, told, hub.log.read_text().splitlines())
    passed, dropped = to_hub.passed + to_clients.passed, to_hub.dropped + to_clients.dropped
    return replace(outcome, passed=passed, dropped=dropped, retransmitted=resent, healed=took)


async def _clients(hub: KillableHub, side: Side, in_flight: int, random: Random) -> Process:
    arguments = {"--host": hub.host, "--port": hub.port, "--zmq-port": hub.zmq_port, "--in-flight": in_flight}
    arguments |= {"--seed": random.randrange(1 << 30), "--patience": _PATIENCE}
    given = [str(part) for pair in arguments.items() for part in pair]
    command = (*side.prefix, "env", f"PYTHONPATH={_ROOT / 'src'}:{_ROOT}", sys.executable, "-m", "chaos.net.clients")
    return await asyncio.create_subprocess_exec(
        *command, *given, stdin=PIPE, stdout=PIPE, limit=1 << 26, start_new_session=True
    )


async def _told(clients: Process) -> dict[str, Any]:
    """Return the next object that the clients print."""
    assert clients.stdout is not None
    line = await clients.stdout.readline()
    if not line:
        raise AssertionError("the clients ended by themselves")
    told: dict[str, Any] = json.loads(line)
    return told


async def _result(name: str, clients: Process) -> dict[str, Any]:
    """Show the progress; return the result of the clients."""
    started = perf_counter()
    while "reports" not in (told := await _told(clients)):
        text = f"{name}: {perf_counter() - started:.0f} s, {told['answered']} answered"
        print(f"\r{text:79}\r", end="", file=sys.stderr, flush=True)
    return told


def _outcome(name: str, result: dict[str, Any], logged: list[str]) -> Outcome:
    reports = result["reports"]
    faults = [f"{each['kind']}: {line}" for each in reports for line in (*each["wrong"], *each["failures"])]
    faults += [f"hub: {line}" for line in logged]
    requests, answered = (sum(each["figures"].get(key, 0) for each in reports) for key in ("requests", "answered"))
    lost, doubled = (sum(each[key] for each in reports) for key in ("lost", "doubled"))
    return Outcome(name, requests, answered, lost, doubled, faults, 0, 0, 0, 0.0)


def _until_told(names: list[str], in_flight: int, seed: int) -> list[Outcome]:
    """Run, and let each signal that ends it be an ordinary end, which removes everything."""

    async def guarded() -> list[Outcome]:
        task = asyncio.ensure_future(run(names, in_flight, seed))
        for number in _ENDINGS:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    return asyncio.run(guarded())


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.net",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=SCENARIOS,
        metavar="NAME",
        help=f"one of {', '.join(SCENARIOS)}; may be repeated",
    )
    parser.add_argument(
        "--in-flight", type=int, default=300, help="open requests of all requesters (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="chance begins here (default: %(default)s)")
    options = parser.parse_args()
    if why := missing():
        print(f"chaos.net cannot run here: {why}", file=sys.stderr)
        return 2
    try:
        outcomes = _until_told(options.scenario or list(FULL), options.in_flight, options.seed)
    except asyncio.CancelledError:
        print("ended by a signal; everything is removed", file=sys.stderr)
        return 130
    return 0 if all(each.is_clean for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
