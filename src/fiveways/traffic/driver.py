"""One run: everybody comes in, the plan is carried out, and everybody leaves."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from fiveways.client.connect import connect
from fiveways.client.mqtt.peer import MqttPeer, connect_mqtt
from fiveways.client.peer import Peer
from fiveways.client.subscriptions import Subscription
from fiveways.errors import CallError, ConnectionLost, FivewaysError
from fiveways.traffic import actions, broker_actions, misbehaviours, plan, services
from fiveways.traffic.counts import TrafficCounts
from fiveways.traffic.plan import Step
from fiveways.traffic.target import PROTOCOL_SCHEMES, Target

FINISH_TIMEOUT: Final = 12.0
"""Seconds after the last step for all that is open to end; then it is given up."""
_EVENT_TIMEOUT: Final = 3.0
"""Seconds for events that are on their way."""
_MAX_IN_FLIGHT: Final = 5000
"""Steps that are under way at once, at most."""
_MAX_MISBEHAVIOURS: Final = 12
"""Things of each bad kind that one run does, at most."""


@dataclass(frozen=True, slots=True)
class TrafficConfig:
    """What somebody wants to be driven."""

    target: Target
    seconds: float = 30.0
    rate: float = 200.0
    seed: int = 1
    peers: int = 2
    """Callers in each protocol."""
    mqtt: str = ""
    """The URL of the hub's broker, where it has one."""


@dataclass(slots=True)
class TrafficReport:
    """What was done."""

    config: TrafficConfig
    counts: TrafficCounts
    seconds: float
    stats_before: dict[str, Any] = field(default_factory=dict)
    """The hub's own numbers, where it tells them."""
    stats_after: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return it for programs."""
        wish = self.config
        rose = {
            name: number - self.stats_before.get(name, 0)
            for name, number in self.stats_after.items()
            if isinstance(number, int) and isinstance(self.stats_before.get(name), int)
        }
        run = {"hub": wish.target.netloc, "seed": wish.seed, "rate": wish.rate, "seconds": round(self.seconds, 3)}
        return {**run, **self.counts.as_dict(), "stats": rose}


class TrafficDriver:
    """Everybody of one run."""

    def __init__(self, wish: TrafficConfig, tally: TrafficCounts) -> None:
        self.config = wish
        self.counts = tally
        self.callers: list[tuple[str, Peer | MqttPeer]] = []
        self.peers: list[Peer] = []
        """Those callers that can be called back."""
        self.services: list[str] = []
        self._listeners: list[asyncio.Task[None]] = []

    async def connect_all(self, stack: AsyncExitStack) -> None:
        """Let everybody come in; a protocol that is not served is left out. ConnectionLost if none is."""
        refusals: list[ConnectionLost] = []
        for speaker in PROTOCOL_SCHEMES:
            try:
                await self._connect_protocol(stack, speaker)
            except ConnectionLost as exc:
                refusals.append(exc)
                self.counts.notes.append(f"{speaker} is left out: {exc}")
        if not self.callers:
            raise refusals[0]
        if self.config.mqtt:
            for _ in range(self.config.peers):
                self.callers.append(("mqtt-rpc", await stack.enter_async_context(connect_mqtt(self.config.mqtt))))

    async def _connect_protocol(self, stack: AsyncExitStack, speaker: str) -> None:
        target, service = self.config.target, services.SERVICES[speaker]

        def coming() -> Any:  # noqa: ANN401  what `connect` returns
            return connect(target.url(speaker), token=target.token, timeout=actions.CALL_TIMEOUT)

        worker = await stack.enter_async_context(coming())
        try:
            await worker.serve(services.create_app(service, self.counts.method_runs))
            self.services.append(service)
        except CallError as exc:
            self.counts.notes.append(f"nobody offers {service} in {speaker}: {exc}")
        for _ in range(self.config.peers):
            caller = await stack.enter_async_context(coming())
            self.callers.append((speaker, caller))
            self.peers.append(caller)
        try:
            events = await stack.enter_async_context(worker.subscribe(actions.NEWS_PATTERN, max_waiting=100_000))
            self._listeners.append(asyncio.create_task(self._count_events(speaker, events)))
        except CallError as exc:
            self.counts.notes.append(f"nobody listens in {speaker}: {exc}")

    async def _count_events(self, speaker: str, events: Subscription) -> None:
        async for event in events:
            self.counts.events[speaker] += 1
            self.counts.missed[speaker] += event.missed

    async def run_steps(self, steps: list[Step], enough: asyncio.Event, told: Callable[[float], None]) -> None:
        """Do all steps at their time, and wait for their ends; stop early if somebody has `enough`."""
        began = time.monotonic()
        open_tasks: set[asyncio.Task[None]] = set()
        for step in steps:
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), max(0.0, step.at - (time.monotonic() - began)))
            while len(open_tasks) >= _MAX_IN_FLIGHT and not enough.is_set():
                await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
            if enough.is_set():
                break
            task = asyncio.create_task(self._run_step(step))
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)
            told(step.at)
        await _finish_tasks(open_tasks)

    async def _run_step(self, step: Step) -> None:
        speaker, caller = self.callers[step.caller]
        try:
            if isinstance(caller, Peer):
                await actions.run_step(step, caller, self.peers)
            elif step.kind in broker_actions.SUPPORTED_KINDS:
                await broker_actions.run_step(step, caller)
            else:
                return
        except FivewaysError as exc:
            self.counts.count_error(speaker, step.kind, exc)
        except asyncio.CancelledError:
            self.counts.count(speaker, step.kind, "unfinished")
            raise
        else:
            self.counts.count(speaker, step.kind, "result")

    async def run_misbehaviours(self, enough: asyncio.Event) -> None:
        """Do what nobody should, spread over the time of the run."""
        wish, tally = self.config, self.counts
        rounds = max(1, min(_MAX_MISBEHAVIOURS, round(wish.rate * wish.seconds / 20)))
        speakers = list(PROTOCOL_SCHEMES)
        running: set[asyncio.Task[None]] = set()
        for number in range(rounds):
            bad: list[Coroutine[None, None, None]] = [misbehaviours.send_malformed(wish.target, tally, number)]
            if number < len(speakers):
                bad.append(misbehaviours.connect_with_wrong_token(wish.target, tally, speakers[number]))
            if self.services:
                service = self.services[number % len(self.services)]
                bad.append(misbehaviours.repeat_request(wish.target, tally, service, number))
            running |= {asyncio.create_task(each) for each in bad}
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), wish.seconds / rounds)
            if enough.is_set():
                break
        await _finish_tasks(running)

    async def publish_last_large(self) -> None:
        """Publish once more to the one who did not read."""
        speaker, peer = self._caller_protocols()[0], self.peers[0]
        try:
            await peer.publish(actions.FLOOD_TOPIC, {"last": True}, timeout=actions.CALL_TIMEOUT)
        except FivewaysError as exc:
            self.counts.count_error(speaker, "flood", exc)
        else:
            self.counts.count(speaker, "flood", "result")

    async def wait_for_events(self) -> None:
        """Wait until those who listen have what was published, or a while has passed."""
        published = self.counts.confirmed_publications
        until = time.monotonic() + _EVENT_TIMEOUT
        while time.monotonic() < until and any(  # noqa: ASYNC110  nobody tells of it
            self.counts.events[speaker] + self.counts.missed[speaker] < published
            for speaker in set(self._caller_protocols())
        ):
            await asyncio.sleep(0.05)
        for listener in self._listeners:
            listener.cancel()

    def _caller_protocols(self) -> list[str]:
        return [speaker for speaker, caller in self.callers if isinstance(caller, Peer)]

    async def hub_stats(self) -> dict[str, Any]:
        """Return the hub's own numbers; nothing if it does not tell them to us."""
        with suppress(CallError):
            found = await self.peers[0].call("hub.stats", timeout=actions.CALL_TIMEOUT)
            return found if isinstance(found, dict) else {}
        return {}

    async def clear_retained(self) -> None:
        """Leave no retained value behind."""
        for service in self.services:
            with suppress(CallError):
                await self.peers[0].close_topic(f"traffic.{service}.news")


async def _finish_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for tasks, and give up those that take too long."""
    if not tasks:
        return
    _, rest = await asyncio.wait(tasks, timeout=FINISH_TIMEOUT)
    for task in rest:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_traffic(
    wish: TrafficConfig, enough: asyncio.Event | None = None, told: Callable[[float], None] = lambda _: None
) -> TrafficReport:
    """Drive a hub as the wish says, and return what became of it; whoever sets `enough` ends it early.

    Raises:
        ConnectionLost: the hub cannot be reached.
    """
    enough = enough or asyncio.Event()
    tally = TrafficCounts()
    driver = TrafficDriver(wish, tally)
    async with AsyncExitStack() as stack:
        await driver.connect_all(stack)
        steps = plan.make_plan(wish.seed, wish.rate, wish.seconds, len(driver.callers), driver.services or ["hub"])
        before = await driver.hub_stats()
        began = time.monotonic()
        async with (
            misbehaviours.slow_consumer(wish.target, tally, driver.publish_last_large),
            asyncio.TaskGroup() as group,
        ):
            bad = group.create_task(driver.run_misbehaviours(enough))
            await driver.run_steps(steps, enough, told)
            await bad
        took = time.monotonic() - began
        await driver.wait_for_events()
        after = await driver.hub_stats()
        await driver.clear_retained()
    return TrafficReport(wish, tally, took, before, after)
