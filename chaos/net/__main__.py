"""Run a hub and its clients with a bad network between them: packet loss, delay, reordering and partitions.

The hub runs in one network namespace, its clients in another. They are connected only by a TUN device in each, and this
process relays the packets, so TCP really retransmits. Requesters speak NQ over HTTP, WebSocket and ZeroMQ; services
speak LRPM, UMQ and UMQ36. After the network is good again, every request must be answered once, with the correct result
of its method. The command needs root, and removes everything that it creates.
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
"""Timeout in seconds for answering all pending requests after the network is good again."""
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
    """Seconds from the end of the last phase until all requests were answered."""

    @property
    def is_clean(self) -> bool:
        """Whether every request was answered once, with the correct result."""
        return self.requests == self.answered and not (self.lost or self.doubled or self.faults)

    def __str__(self) -> str:
        numbers = (self.requests, self.answered, self.lost, self.doubled, len(self.faults))
        packets = (self.passed, self.dropped, self.retransmitted)
        return (
            f"{self.scenario:12}"
            + "".join(f"{number:>10}" for number in (*numbers, *packets))
            + f"{self.healed:>8.1f} s"
        )


_HEAD: Final = f"{'scenario':12}" + "".join(
    f"{name:>10}"
    for name in ("requests", "answered", "lost", "doubled", "wrong", "packets", "dropped", "resent", "healed in")
)


async def run(names: list[str], in_flight: int, seed: int) -> list[Outcome]:
    """Run scenarios one after the other, each with its own hub and network."""
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
        await _next_message(clients)
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
        client_result = await asyncio.wait_for(result, 1.5 * _PATIENCE)
        heal_seconds = perf_counter() - healed
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
    outcome = _outcome(name, client_result, hub.log.read_text().splitlines())
    passed, dropped = to_hub.passed + to_clients.passed, to_hub.dropped + to_clients.dropped
    return replace(outcome, passed=passed, dropped=dropped, retransmitted=resent, healed=heal_seconds)


async def _clients(hub: KillableHub, side: Side, in_flight: int, random: Random) -> Process:
    arguments = {"--host": hub.host, "--port": hub.port, "--zmq-port": hub.zmq_port, "--in-flight": in_flight}
    arguments |= {"--seed": random.randrange(1 << 30), "--patience": _PATIENCE}
    flags = [str(part) for pair in arguments.items() for part in pair]
    command = (*side.prefix, "env", f"PYTHONPATH={_ROOT / 'src'}:{_ROOT}", sys.executable, "-m", "chaos.net.clients")
    return await asyncio.create_subprocess_exec(
        *command, *flags, stdin=PIPE, stdout=PIPE, limit=1 << 26, start_new_session=True
    )


async def _next_message(clients: Process) -> dict[str, Any]:
    """Return the next JSON object that the clients print."""
    assert clients.stdout is not None
    line = await clients.stdout.readline()
    if not line:
        raise AssertionError("the clients exited by themselves")
    message: dict[str, Any] = json.loads(line)
    return message


async def _result(name: str, clients: Process) -> dict[str, Any]:
    """Show the progress; return the result of the clients."""
    started = perf_counter()
    while "reports" not in (message := await _next_message(clients)):
        text = f"{name}: {perf_counter() - started:.0f} s, {message['answered']} answered"
        print(f"\r{text:79}\r", end="", file=sys.stderr, flush=True)
    return message


def _outcome(name: str, result: dict[str, Any], logged: list[str]) -> Outcome:
    reports = result["reports"]
    faults = [f"{report['kind']}: {line}" for report in reports for line in (*report["wrong"], *report["failures"])]
    faults += [f"hub: {line}" for line in logged]
    requests, answered = (sum(report["figures"].get(key, 0) for report in reports) for key in ("requests", "answered"))
    lost, doubled = (sum(report[key] for report in reports) for key in ("lost", "doubled"))
    return Outcome(name, requests, answered, lost, doubled, faults, 0, 0, 0, 0.0)


def _run_until_signal(names: list[str], in_flight: int, seed: int) -> list[Outcome]:
    """Run the scenarios; cancel them on a signal, which removes the namespaces and processes."""

    async def guarded() -> list[Outcome]:
        task = asyncio.ensure_future(run(names, in_flight, seed))
        for number in _ENDINGS:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    return asyncio.run(guarded())


def main() -> int:
    """Run the command."""
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
        "--in-flight", type=int, default=300, help="number of pending requests of all requesters (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers (default: %(default)s)")
    options = parser.parse_args()
    if reason := missing():
        print(f"chaos.net cannot run here: {reason}", file=sys.stderr)
        return 2
    try:
        outcomes = _run_until_signal(options.scenario or list(FULL), options.in_flight, options.seed)
    except asyncio.CancelledError:
        print("interrupted by a signal; namespaces and processes were removed", file=sys.stderr)
        return 130
    return 0 if all(each.is_clean for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
