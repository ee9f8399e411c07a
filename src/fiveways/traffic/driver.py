"""Execution of a traffic plan: connect all peers, run the steps, disconnect."""

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
"""Seconds for open operations to end after the last step."""
_EVENT_TIMEOUT: Final = 3.0
"""Seconds to wait for outstanding events."""
_MAX_IN_FLIGHT: Final = 5000
"""Maximum concurrent steps."""
_MAX_MISBEHAVIOURS: Final = 12
"""Maximum misbehaviours of each kind in a run."""


@dataclass(frozen=True, slots=True)
class TrafficConfig:
    """Configuration of a run."""

    target: Target
    seconds: float = 30.0
    rate: float = 200.0
    seed: int = 1
    peers: int = 2
    """Callers per protocol."""
    mqtt: str = ""
    """The URL of the hub's MQTT broker, if it has one."""


@dataclass(slots=True)
class TrafficReport:
    """Result of a run."""

    config: TrafficConfig
    counts: TrafficCounts
    seconds: float
    stats_before: dict[str, Any] = field(default_factory=dict)
    """Statistics of the hub, if it returns them."""
    stats_after: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return the report for programs."""
        config = self.config
        increments = {
            name: number - self.stats_before.get(name, 0)
            for name, number in self.stats_after.items()
            if isinstance(number, int) and isinstance(self.stats_before.get(name), int)
        }
        run = {"hub": config.target.netloc, "seed": config.seed, "rate": config.rate, "seconds": round(self.seconds, 3)}
        return {**run, **self.counts.as_dict(), "stats": increments}


class TrafficDriver:
    """All peers of a run."""

    def __init__(self, config: TrafficConfig, counts: TrafficCounts) -> None:
        self.config = config
        self.counts = counts
        self.callers: list[tuple[str, Peer | MqttPeer]] = []
        self.peers: list[Peer] = []
        """Callers that support callbacks."""
        self.services: list[str] = []
        self._listeners: list[asyncio.Task[None]] = []

    async def connect_all(self, stack: AsyncExitStack) -> None:
        """Connect all peers; skip protocols that the hub does not serve. ConnectionLost if it serves none."""
        refusals: list[ConnectionLost] = []
        for protocol in PROTOCOL_SCHEMES:
            try:
                await self._connect_protocol(stack, protocol)
            except ConnectionLost as exc:
                refusals.append(exc)
                self.counts.notes.append(f"{protocol} is skipped: {exc}")
        if not self.callers:
            raise refusals[0]
        if self.config.mqtt:
            for _ in range(self.config.peers):
                self.callers.append(("mqtt-rpc", await stack.enter_async_context(connect_mqtt(self.config.mqtt))))

    async def _connect_protocol(self, stack: AsyncExitStack, protocol: str) -> None:
        target, service = self.config.target, services.SERVICES[protocol]

        def connect_peer() -> Any:  # noqa: ANN401  the result of `connect`
            return connect(target.url(protocol), token=target.token, timeout=actions.CALL_TIMEOUT)

        worker = await stack.enter_async_context(connect_peer())
        try:
            await worker.serve(services.create_app(service, self.counts.method_runs))
            self.services.append(service)
        except CallError as exc:
            self.counts.notes.append(f"cannot register {service} in {protocol}: {exc}")
        for _ in range(self.config.peers):
            caller = await stack.enter_async_context(connect_peer())
            self.callers.append((protocol, caller))
            self.peers.append(caller)
        try:
            events = await stack.enter_async_context(worker.subscribe(actions.NEWS_PATTERN, max_waiting=100_000))
            self._listeners.append(asyncio.create_task(self._count_events(protocol, events)))
        except CallError as exc:
            self.counts.notes.append(f"cannot subscribe in {protocol}: {exc}")

    async def _count_events(self, protocol: str, events: Subscription) -> None:
        async for event in events:
            self.counts.events[protocol] += 1
            self.counts.missed[protocol] += event.missed

    async def run_steps(
        self, steps: list[Step], stop_event: asyncio.Event, on_progress: Callable[[float], None]
    ) -> None:
        """Run all steps at their times, and wait for their outcomes; end early when `stop_event` is set."""
        started_at = time.monotonic()
        open_tasks: set[asyncio.Task[None]] = set()
        for step in steps:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), max(0.0, step.at - (time.monotonic() - started_at)))
            while len(open_tasks) >= _MAX_IN_FLIGHT and not stop_event.is_set():
                await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
            if stop_event.is_set():
                break
            task = asyncio.create_task(self._run_step(step))
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)
            on_progress(step.at)
        await _finish_tasks(open_tasks)

    async def _run_step(self, step: Step) -> None:
        protocol, caller = self.callers[step.caller]
        try:
            if isinstance(caller, Peer):
                await actions.run_step(step, caller, self.peers)
            elif step.kind in broker_actions.SUPPORTED_KINDS:
                await broker_actions.run_step(step, caller)
            else:
                return
        except FivewaysError as exc:
            self.counts.count_error(protocol, step.kind, exc)
        except asyncio.CancelledError:
            self.counts.count(protocol, step.kind, "unfinished")
            raise
        else:
            self.counts.count(protocol, step.kind, "result")

    async def run_misbehaviours(self, stop_event: asyncio.Event) -> None:
        """Run misbehaviours, distributed over the duration of the run."""
        config, counts = self.config, self.counts
        rounds = max(1, min(_MAX_MISBEHAVIOURS, round(config.rate * config.seconds / 20)))
        protocols = list(PROTOCOL_SCHEMES)
        running: set[asyncio.Task[None]] = set()
        for number in range(rounds):
            coroutines: list[Coroutine[None, None, None]] = [
                misbehaviours.send_malformed(config.target, counts, number)
            ]
            if number < len(protocols):
                coroutines.append(misbehaviours.connect_with_wrong_token(config.target, counts, protocols[number]))
            if self.services:
                service = self.services[number % len(self.services)]
                coroutines.append(misbehaviours.repeat_request(config.target, counts, service, number))
            running |= {asyncio.create_task(coroutine) for coroutine in coroutines}
            with suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), config.seconds / rounds)
            if stop_event.is_set():
                break
        await _finish_tasks(running)

    async def publish_last_large(self) -> None:
        """Publish one more event, which tells the slow consumer the number of missed events."""
        protocol, peer = self._caller_protocols()[0], self.peers[0]
        try:
            await peer.publish(actions.FLOOD_TOPIC, {"last": True}, timeout=actions.CALL_TIMEOUT)
        except FivewaysError as exc:
            self.counts.count_error(protocol, "flood", exc)
        else:
            self.counts.count(protocol, "flood", "result")

    async def wait_for_events(self) -> None:
        """Wait until the subscribers have received all publications, or for a timeout."""
        published = self.counts.confirmed_publications
        deadline = time.monotonic() + _EVENT_TIMEOUT
        while time.monotonic() < deadline and any(  # noqa: ASYNC110  no notification available
            self.counts.events[protocol] + self.counts.missed[protocol] < published
            for protocol in set(self._caller_protocols())
        ):
            await asyncio.sleep(0.05)
        for listener in self._listeners:
            listener.cancel()

    def _caller_protocols(self) -> list[str]:
        return [protocol for protocol, caller in self.callers if isinstance(caller, Peer)]

    async def hub_stats(self) -> dict[str, Any]:
        """Return the statistics of the hub; empty if they are not available."""
        with suppress(CallError):
            stats = await self.peers[0].call("hub.stats", timeout=actions.CALL_TIMEOUT)
            return stats if isinstance(stats, dict) else {}
        return {}

    async def clear_retained(self) -> None:
        """Delete the retained values of the run."""
        for service in self.services:
            with suppress(CallError):
                await self.peers[0].close_topic(f"traffic.{service}.news")


async def _finish_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for tasks, and cancel those that exceed the timeout."""
    if not tasks:
        return
    _, rest = await asyncio.wait(tasks, timeout=FINISH_TIMEOUT)
    for task in rest:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_traffic(
    config: TrafficConfig,
    stop_event: asyncio.Event | None = None,
    on_progress: Callable[[float], None] = lambda _: None,
) -> TrafficReport:
    """Generate traffic, and return the report; setting `stop_event` ends the run early.

    Raises:
        ConnectionLost: the hub is not reachable.
    """
    stop_event = stop_event or asyncio.Event()
    counts = TrafficCounts()
    driver = TrafficDriver(config, counts)
    async with AsyncExitStack() as stack:
        await driver.connect_all(stack)
        steps = plan.make_plan(
            config.seed, config.rate, config.seconds, len(driver.callers), driver.services or ["hub"]
        )
        before = await driver.hub_stats()
        started_at = time.monotonic()
        async with (
            misbehaviours.slow_consumer(config.target, counts, driver.publish_last_large),
            asyncio.TaskGroup() as group,
        ):
            misbehaviour_task = group.create_task(driver.run_misbehaviours(stop_event))
            await driver.run_steps(steps, stop_event, on_progress)
            await misbehaviour_task
        duration = time.monotonic() - started_at
        await driver.wait_for_events()
        after = await driver.hub_stats()
        await driver.clear_retained()
    return TrafficReport(config, counts, duration, before, after)
