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
from fiveways.traffic import acts, broker, misfits, plan, services
from fiveways.traffic.plan import Step
from fiveways.traffic.tally import Tally
from fiveways.traffic.target import SPEAKERS, Target

GRACE: Final = 12.0
"""Seconds after the last step for all that is open to end; then it is given up."""
_DRAIN: Final = 3.0
"""Seconds for events that are on their way."""
_OPEN: Final = 5000
"""Steps that are under way at once, at most."""
_MISFITS: Final = 12
"""Things of each bad kind that one run does, at most."""


@dataclass(frozen=True, slots=True)
class Wish:
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
class Report:
    """What was done."""

    wish: Wish
    tally: Tally
    took: float
    before: dict[str, Any] = field(default_factory=dict)
    """The hub's own numbers, where it tells them."""
    after: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, object]:
        """Return it for programs."""
        wish = self.wish
        rose = {
            name: number - self.before.get(name, 0)
            for name, number in self.after.items()
            if isinstance(number, int) and isinstance(self.before.get(name), int)
        }
        run = {"hub": wish.target.place, "seed": wish.seed, "rate": wish.rate, "seconds": round(self.took, 3)}
        return {**run, **self.tally.told(), "stats": rose}


class Driver:
    """Everybody of one run."""

    def __init__(self, wish: Wish, tally: Tally) -> None:
        self.wish = wish
        self.tally = tally
        self.callers: list[tuple[str, Peer | MqttPeer]] = []
        self.peers: list[Peer] = []
        """Those callers that can be called back."""
        self.services: list[str] = []
        self._listeners: list[asyncio.Task[None]] = []

    async def gather(self, stack: AsyncExitStack) -> None:
        """Let everybody come in; a protocol that is not served is left out. ConnectionLost if none is."""
        refusals: list[ConnectionLost] = []
        for speaker in SPEAKERS:
            try:
                await self._enter(stack, speaker)
            except ConnectionLost as exc:
                refusals.append(exc)
                self.tally.notes.append(f"{speaker} is left out: {exc}")
        if not self.callers:
            raise refusals[0]
        if self.wish.mqtt:
            for _ in range(self.wish.peers):
                self.callers.append(("mqtt-rpc", await stack.enter_async_context(connect_mqtt(self.wish.mqtt))))

    async def _enter(self, stack: AsyncExitStack, speaker: str) -> None:
        target, service = self.wish.target, services.SERVICES[speaker]

        def coming() -> Any:  # noqa: ANN401  what `connect` returns
            return connect(target.url(speaker), token=target.token, timeout=acts.PATIENCE)

        worker = await stack.enter_async_context(coming())
        try:
            await worker.serve(services.made(service, self.tally.ran))
            self.services.append(service)
        except CallError as exc:
            self.tally.notes.append(f"nobody offers {service} in {speaker}: {exc}")
        for _ in range(self.wish.peers):
            caller = await stack.enter_async_context(coming())
            self.callers.append((speaker, caller))
            self.peers.append(caller)
        try:
            events = await stack.enter_async_context(worker.subscribe(acts.TOPICS, max_waiting=100_000))
            self._listeners.append(asyncio.create_task(self._listen(speaker, events)))
        except CallError as exc:
            self.tally.notes.append(f"nobody listens in {speaker}: {exc}")

    async def _listen(self, speaker: str, events: Subscription) -> None:
        async for event in events:
            self.tally.events[speaker] += 1
            self.tally.missed[speaker] += event.missed

    async def carry_out(self, steps: list[Step], enough: asyncio.Event, told: Callable[[float], None]) -> None:
        """Do all steps at their time, and wait for their ends; stop early if somebody has `enough`."""
        began = time.monotonic()
        open_tasks: set[asyncio.Task[None]] = set()
        for step in steps:
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), max(0.0, step.at - (time.monotonic() - began)))
            while len(open_tasks) >= _OPEN and not enough.is_set():
                await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
            if enough.is_set():
                break
            task = asyncio.create_task(self._done(step))
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)
            told(step.at)
        await _finished(open_tasks)

    async def _done(self, step: Step) -> None:
        speaker, caller = self.callers[step.caller]
        try:
            if isinstance(caller, Peer):
                await acts.act(step, caller, self.peers)
            elif step.kind in broker.KINDS:
                await broker.act(step, caller)
            else:
                return
        except FivewaysError as exc:
            self.tally.failed(speaker, step.kind, exc)
        except asyncio.CancelledError:
            self.tally.add(speaker, step.kind, "unfinished")
            raise
        else:
            self.tally.add(speaker, step.kind, "result")

    async def misbehave(self, enough: asyncio.Event) -> None:
        """Do what nobody should, spread over the time of the run."""
        wish, tally = self.wish, self.tally
        rounds = max(1, min(_MISFITS, round(wish.rate * wish.seconds / 20)))
        speakers = list(SPEAKERS)
        running: set[asyncio.Task[None]] = set()
        for number in range(rounds):
            bad: list[Coroutine[None, None, None]] = [misfits.malformed(wish.target, tally, number)]
            if number < len(speakers):
                bad.append(misfits.stranger(wish.target, tally, speakers[number]))
            if self.services:
                service = self.services[number % len(self.services)]
                bad.append(misfits.repeater(wish.target, tally, service, number))
            running |= {asyncio.create_task(each) for each in bad}
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), wish.seconds / rounds)
            if enough.is_set():
                break
        await _finished(running)

    async def last_flood(self) -> None:
        """Publish once more to the one who did not read."""
        speaker, peer = self._speakers()[0], self.peers[0]
        try:
            await peer.publish(acts.FLOOD, {"last": True}, timeout=acts.PATIENCE)
        except FivewaysError as exc:
            self.tally.failed(speaker, "flood", exc)
        else:
            self.tally.add(speaker, "flood", "result")

    async def drain(self) -> None:
        """Wait until those who listen have what was published, or a while has passed."""
        published = self.tally.published
        until = time.monotonic() + _DRAIN
        while time.monotonic() < until and any(  # noqa: ASYNC110  nobody tells of it
            self.tally.events[speaker] + self.tally.missed[speaker] < published for speaker in set(self._speakers())
        ):
            await asyncio.sleep(0.05)
        for listener in self._listeners:
            listener.cancel()

    def _speakers(self) -> list[str]:
        return [speaker for speaker, caller in self.callers if isinstance(caller, Peer)]

    async def stats(self) -> dict[str, Any]:
        """Return the hub's own numbers; nothing if it does not tell them to us."""
        with suppress(CallError):
            found = await self.peers[0].call("hub.stats", timeout=acts.PATIENCE)
            return found if isinstance(found, dict) else {}
        return {}

    async def clean(self) -> None:
        """Leave no retained value behind."""
        for service in self.services:
            with suppress(CallError):
                await self.peers[0].close_topic(f"traffic.{service}.news")


async def _finished(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for tasks, and give up those that take too long."""
    if not tasks:
        return
    _, rest = await asyncio.wait(tasks, timeout=GRACE)
    for task in rest:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def drive(
    wish: Wish, enough: asyncio.Event | None = None, told: Callable[[float], None] = lambda _: None
) -> Report:
    """Drive a hub as the wish says, and return what became of it; whoever sets `enough` ends it early.

    Raises:
        ConnectionLost: the hub cannot be reached.
    """
    enough = enough or asyncio.Event()
    tally = Tally()
    driver = Driver(wish, tally)
    async with AsyncExitStack() as stack:
        await driver.gather(stack)
        steps = plan.make(wish.seed, wish.rate, wish.seconds, len(driver.callers), driver.services or ["hub"])
        before = await driver.stats()
        began = time.monotonic()
        async with misfits.sleeper(wish.target, tally, driver.last_flood), asyncio.TaskGroup() as group:
            bad = group.create_task(driver.misbehave(enough))
            await driver.carry_out(steps, enough, told)
            await bad
        took = time.monotonic() - began
        await driver.drain()
        after = await driver.stats()
        await driver.clean()
    return Report(wish, tally, took, before, after)
