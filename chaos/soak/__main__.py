"""Run a hub under mixed traffic, and check that memory, descriptors and threads do not grow.

The hub has an application, a store, a journal with retention, ZeroMQ, a broker, metrics and a reload each minute. Peers
of all protocols connect and disconnect. Their traffic has calls, streams, callbacks, attachments, cancelled calls,
publications on changing topics, retained values, durable requests over HTTP, WebSocket and ZeroMQ, and jobs. A
dashboard, scrapes of /metrics and misbehaving peers run beside it. Everything is on this machine.

The warm-up takes a fifth of the time, at least five minutes, at most half of the run. After it, the slope of resident
memory (the median of the slopes between all samples) must be below 0.1 MiB per minute for the hub and for its writer
process, and descriptors and threads must stay constant. A run of less than an hour may grow by 0.1 MiB per minute x 60
/ MINUTES. At the end all peers disconnect, and the hub's gauges must return to their values before the traffic.

Examples:
    make soak MINUTES=60
    python -m chaos.soak --minutes 5
    python -m chaos.soak --minutes 0.3 --every 1 --no-broker
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic
from typing import Final

import uvloop

from chaos.hubs import HubAddress
from chaos.processes import HubProcess, descriptors, journal_writer, resident, threads
from chaos.services import Service
from chaos.soak.actors import ACTORS, TOKEN, SoakRun, act, http_request
from chaos.soak.rules import Rule, Sample, at_rest, judge, warm_up

_SETTINGS: Final = (
    "log.level=warning",
    "zmq.listen=true",
    "limits.max_tries=2",
    "limits.retry_delay=0.2",
    "auth.name_grace=1",
    "journal.segment_bytes=1048576",
    "journal.segment_age=10",
    "journal.keep_bytes=8388608",
)
_CONFIGURATION: Final = """[calls]
timeout = {timeout}
[[auth.identity]]
name = "soak"
token = "{token}"
"""
_GAUGES: Final = {
    "connections": 1.0,
    "connected_sessions": 0.0,
    "offers": 0.0,
    "subscriptions": 0.0,
    "callbacks": 0.0,
    "open_calls": 0.0,
    "owed": 0.0,
    "outbox_bytes": 0.0,
    "unfinished_bytes": 0.0,
    "store_waiting": 0.0,
}
_SESSIONS: Final = {"sessions": 0.0, "resumable_sessions": 0.0}
_SHOWN: Final = {*_GAUGES, *_SESSIONS, "retained", "queue_items"}
_SWEEP: Final = 60.0
_LAST: Final = 8.0
"""Seconds for the last rounds of the actors and for requests that are pending then."""
_RELOAD: Final = 60.0
_SCRAPE: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Plan:
    """The duration and size of a soak."""

    minutes: float = 60.0
    every: float = 5.0
    """Seconds between two samples."""
    pace: float = 1.0
    """A factor for the pauses of all peers."""
    seed: int = 1
    has_broker: bool = True
    remember: float = 20.0
    """`nq.duplicate_window` and `nq.peer_ttl` in seconds: short, so the caches are full after warm-up."""
    rest: float = 90.0
    """Timeout in seconds for the state of disconnected peers to expire.

    The hub expires NQ sessions once a minute; a shorter rest does not check them.
    """

    @property
    def gauges(self) -> dict[str, float]:
        """Gauges that must return to rest, with the allowed growth of each."""
        return _GAUGES | (_SESSIONS if self.rest > _SWEEP else {})


@dataclass(frozen=True)
class Outcome:
    """The result of a soak."""

    rules: list[Rule]
    soak_run: SoakRun
    samples: list[Sample]

    @property
    def holds(self) -> bool:
        """Whether all rules hold."""
        return all(rule.holds for rule in self.rules)


async def run(plan: Plan, folder: Path) -> Outcome:
    """Execute the plan."""
    settings = [*_SETTINGS, "zmq.port=0", f"store.path={folder}/store.db", f"journal.path={folder}/journal"]
    settings += [f"nq.duplicate_window={plan.remember}", f"nq.peer_ttl={plan.remember}"]
    settings += ["mqtt.enabled=true", "mqtt.port=0"] if plan.has_broker else []
    configuration = folder / "fiveways.toml"
    _configure(configuration, 30)
    arguments = ("--app", "fiveways.demo.app:app", "--config", str(configuration))
    hub = HubProcess(settings, folder / "hub.log", arguments=arguments)
    await hub.start()
    broker = hub.ports["mqtt-rpc+mqtt"] if plan.has_broker else 0
    soak_run = SoakRun(hub.port, hub.ports["nq+zmq"], broker, Random(plan.seed), plan.pace)
    try:
        before = await _sample(hub, 0.0)
        samples = await _soak(plan, hub, soak_run, configuration)
        is_alive = hub.is_alive
        after = await _rest(plan, hub, before) if is_alive else before
    finally:
        status = await hub.stop()
    errors = hub.errors()
    rules = [*judge(samples, plan.minutes), *at_rest(before, after, plan.gauges)]
    rules.append(Rule("the hub runs to the end", holds=is_alive))
    rules.append(Rule(f"errors in the hub's log: {len(errors)} {' '.join(errors[:2])}".rstrip(), holds=not errors))
    return Outcome([*rules, Rule(f"exit status of the hub: {status}", holds=status == 0)], soak_run, samples)


async def _soak(plan: Plan, hub: HubProcess, soak_run: SoakRun, configuration: Path) -> list[Sample]:
    """Run all actors until the time is up; return the samples."""
    is_over = asyncio.Event()
    address = HubAddress("127.0.0.1", soak_run.port, soak_run.zmq_port)
    services = [Service(address, Random(plan.seed + number), number) for number in range(2)]
    actor_tasks = [asyncio.create_task(act(actor, soak_run, is_over)) for actor in ACTORS]
    service_tasks = [asyncio.create_task(service.run()) for service in services]
    started_at = reloaded_at = printed_at = monotonic()
    samples: list[Sample] = []
    print(_HEADING, flush=True)
    while hub.is_alive and (now := monotonic()) - started_at < plan.minutes * 60:
        await asyncio.sleep(plan.every)
        with suppress(TimeoutError, OSError):
            samples.append(await _sample(hub, (monotonic() - started_at) / 60))
        if now - reloaded_at >= _RELOAD:
            _configure(configuration, 30 + len(samples) % 2)
            hub.reload()
            reloaded_at = now
        if now - printed_at >= 60:
            print(_line(samples, printed_at, started_at, plan.minutes), flush=True)
            printed_at = now
        for task in (*actor_tasks, *service_tasks):
            if task.done():
                task.result()
    if samples:
        print(_line(samples, printed_at, started_at, plan.minutes), flush=True)
    is_over.set()
    await _finish_tasks(actor_tasks, _LAST)
    with suppress(TimeoutError, OSError):  # also requests of peers that were disconnected get answered
        async with asyncio.timeout(_LAST):
            while (await _sample(hub, 0.0)).sizes["owed"]:  # noqa: ASYNC110  the hub has no event for it
                await asyncio.sleep(0.2)
    await _finish_tasks(service_tasks, 0)
    return samples


async def _finish_tasks(tasks: list[asyncio.Task[None]], patience: float) -> None:
    """Wait for the last rounds, then cancel the remaining tasks."""
    await asyncio.wait(tasks, timeout=patience)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _rest(plan: Plan, hub: HubProcess, before: Sample) -> Sample:
    """Wait until the gauges are back at their values before the traffic; return the last sample."""
    latest: deque[Sample] = deque(maxlen=1)
    with suppress(TimeoutError):
        async with asyncio.timeout(plan.rest):
            while True:
                latest.append(await _sample(hub, 0.0))
                if all(rule.holds for rule in at_rest(before, latest[0], plan.gauges)):
                    break
                await asyncio.sleep(1)
    return latest[0]


async def _sample(hub: HubProcess, minute: float) -> Sample:
    _, page = await http_request(hub.port, _SCRAPE)
    sizes: dict[str, float] = {}
    for line in page.decode().splitlines():
        name, _, number = line.rpartition(" ")
        name = name.partition("{")[0].removeprefix("fiveways_")
        if name in _SHOWN:
            sizes[name] = sizes.get(name, 0) + float(number)
    writer = journal_writer(hub.pid)
    held = resident(writer) if writer else 0.0
    return Sample(minute, resident(hub.pid), held, descriptors(hub.pid), threads(hub.pid), sizes)


def _configure(path: Path, timeout: int) -> None:
    """Write the configuration, which the hub reads at its start and at each reload."""
    path.write_text(_CONFIGURATION.format(timeout=timeout, token=TOKEN), encoding="utf-8")


_COLUMNS: Final = ("sessions", "resumable_sessions", "subscriptions", "open_calls", "owed", "retained", "queue_items")
_HEADING: Final = "".join(
    f"{name:>12}" for name in ("minute", "hub MiB", "writer MiB", "descriptors", "threads", *(n[:11] for n in _COLUMNS))
)


def _line(samples: list[Sample], since: float, began: float, minutes: float) -> str:
    """Return the medians of the samples since the last line."""
    recent = [sample for sample in samples if sample.minute * 60 >= since - began] or samples[-1:]
    numbers = [median(sample.rss for sample in recent), median(sample.writer for sample in recent)]
    numbers += [median(sample.descriptors for sample in recent), median(sample.threads for sample in recent)]
    numbers += [median(sample.sizes.get(name, 0) for sample in recent) for name in _COLUMNS]
    note = "  warm-up" if recent[-1].minute < warm_up(minutes) else ""
    return f"{recent[-1].minute:12.1f}" + "".join(f"{number:12.1f}" for number in numbers) + note


def main() -> int:
    """Run the command, and print the verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    plan = Plan()
    parser.add_argument("--minutes", type=float, default=plan.minutes, help="duration of the traffic in minutes")
    parser.add_argument("--every", type=float, default=plan.every, help="seconds between two samples")
    parser.add_argument("--pace", type=float, default=plan.pace, help="factor of all pauses; 2 means half the traffic")
    parser.add_argument("--seed", type=int, default=plan.seed, help="seed of the random numbers")
    parser.add_argument("--no-broker", action="store_true", help="run without MQTT")
    parser.add_argument("--samples", type=Path, help="write all samples to this file, one JSON object per line")
    options = parser.parse_args()
    plan = Plan(options.minutes, options.every, options.pace, options.seed, not options.no_broker)
    with tempfile.TemporaryDirectory() as folder:
        outcome = uvloop.run(run(plan, Path(folder)))
    if options.samples:
        fields = ("minute", "rss", "writer", "descriptors", "threads", "sizes")
        rows = [json.dumps({name: getattr(sample, name) for name in fields}) for sample in outcome.samples]
        options.samples.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print("\ndone:  ", ", ".join(f"{name} {number}" for name, number in sorted(outcome.soak_run.done.items())))
    print(
        "failed:", ", ".join(f"{name} {number}" for name, number in sorted(outcome.soak_run.failed.items()) if number)
    )
    for rule in outcome.rules:
        print(rule)
    print("the soak passes" if outcome.holds else "the soak FAILS")
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
