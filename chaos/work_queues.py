"""Work queues: producers push numbered jobs, workers pull them, and some workers disconnect while they hold a job.

Each number is pushed once. A push counts when its response has arrived; one whose connection was lost may or may not be
in the queue. At the end every counted job must be done, and after the last kill no job may be done twice.
"""

import asyncio
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

from chaos.hubs import HubAddress
from chaos.participants import Participant, Report
from chaos.raw_nq import RawConnection
from chaos.raw_peers import RawLrpm, RawPeer, Refused, Reply, Value

QUEUE: Final = "chaos.jobs"
MAX_TRIES: Final = 3
"""The hub's `limits.max_tries`; low, so that failing jobs soon reach the dead-letter queue."""
_PULLS: Final = 4
_AT_ONCE: Final = 8
"""Concurrent pushes of one producer."""
_POLLS: Final = 5
"""Polls of an NQ producer for the responses to its pushes."""
_POISON: Final = 20
"""Jobs whose number is a multiple of this fail until the run ends, and so reach the dead-letter queue."""
_PAUSE: Final = 0.05


@dataclass
class JobStates:
    """The state of each job, by its number."""

    numbers: "count[int]" = field(default_factory=lambda: count(1))
    pushed: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    given: Counter[int] = field(default_factory=Counter)
    done: Counter[int] = field(default_factory=Counter)
    done_at_last: Counter[int] = field(default_factory=Counter)
    """Jobs done through the last hub process, which was not killed."""
    dead: int = 0


class Producer(Participant):
    """Pushes jobs; a subclass implements `_push_many`."""

    def __init__(self, hub: HubAddress, random: Random, states: JobStates) -> None:
        super().__init__(hub, random)
        self.states = states
        self._report = Report("queues")

    def report(self) -> Report:
        """Return the result; `JobStates` has the counts."""
        return self._report

    async def run(self) -> None:
        """Push until the run ends."""
        while not self.is_finishing:
            try:
                await self._push_many()
            except Refused as exc:
                if not exc.is_absence:
                    self._report.failures.append(f"push: {exc}")
            except ConnectionError:
                pass
            await asyncio.sleep(_PAUSE)

    @abstractmethod
    async def _push_many(self) -> None:
        """Connect, and push until the connection is lost."""

    def _next(self) -> int:
        number = next(self.states.numbers)
        self.states.pushed.add(number)
        return number

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0.0, 0.06))


class LrpmProducer(Producer):
    """Pushes by LRPM calls."""

    async def _push_many(self) -> None:
        async with await RawLrpm.connect(self.hub.host, self.hub.port) as peer:
            while not self.is_finishing:
                pushes = [self._push(peer, self._next()) for _ in range(_AT_ONCE)]
                for error in await asyncio.gather(*pushes, return_exceptions=True):
                    if error is not None:
                        raise error
                await self._pause()

    async def _push(self, peer: RawPeer, number: int) -> None:
        await peer.call("hub.push", {"queue": QUEUE, "data": {"job": number}})
        self.states.acknowledged.add(number)


class NqProducer(Producer):
    """Pushes by NQ requests over HTTP, without retransmission: a number is pushed once."""

    async def _push_many(self) -> None:
        connection = RawConnection(self.hub)
        try:
            await connection.post([])  # a hub that is down must not consume numbers
            while not self.is_finishing:
                pending = {f"push-{number}": number for number in (self._next() for _ in range(_AT_ONCE))}
                messages: list[dict[str, Any]] = [
                    {"t": "hub-push", "r": request, "d": {"queue": QUEUE, "data": {"job": number}}}
                    for request, number in pending.items()
                ]
                for _ in range(_POLLS):
                    if not pending:
                        break
                    answers = await connection.post(messages, 2.0)
                    messages = [{"i": answer["a"]} for answer in answers if self._is_answer(answer, pending)]
                await connection.post(messages)
                await self._pause()
        finally:
            connection.close()

    def _is_answer(self, message: dict[str, Any], pending: dict[str, int]) -> bool:
        """Handle the response to a push; return False for an acceptance."""
        if "d" not in message and "e" not in message:
            return False
        number = pending.pop(str(message.get("i")), None)
        if "e" in message:
            self._report.failures.append(f"push: {message['e']}")
        elif number is not None:
            self.states.acknowledged.add(number)
        return number is not None


class Worker(Participant):
    """Pulls jobs; finishes most of them, fails some, and disconnects during others."""

    is_background = True

    def __init__(self, hub: HubAddress, random: Random, kind: type[RawPeer], states: JobStates) -> None:
        super().__init__(hub, random)
        self._kind = kind
        self._states = states
        self._pulls = count(1)
        self._report = Report("queues")

    def report(self) -> Report:
        """Return the result."""
        return self._report

    async def run(self) -> None:
        """Work, disconnect, reconnect."""
        while True:
            try:
                async with await self._kind.connect(self.hub.host, self.hub.port) as peer:
                    for _ in range(_PULLS):
                        await self._pull(peer)
                    await peer.gone()
            except Refused as exc:
                if not exc.is_absence:
                    self._report.failures.append(f"pull: {exc}")
            except ConnectionError:
                pass
            await asyncio.sleep(self.random.uniform(0.0, 0.1))

    async def _pull(self, peer: RawPeer) -> None:
        name = f"w{next(self._pulls)}"
        life = len(self.hub.lives)
        peer.call_handlers[f"callback.{name}"] = lambda body, reply: self._work(peer, name, life, body, reply)
        await peer.call("hub.pull", {"queue": QUEUE, "callback": name})

    def _work(self, peer: RawPeer, name: str, life: int, body: Value, reply: Reply) -> None:
        del peer.call_handlers[f"callback.{name}"]
        number = body.get("job") if isinstance(body, dict) else None
        if not isinstance(number, int) or number not in self._states.pushed:
            self._report.wrong.append(f"a job that was never pushed: {body!r}")
            reply(True, None)
            return
        self._states.given[number] += 1
        draw = 1.0 if self.is_finishing else self.random.random()
        if draw < 0.04:
            self._report.figures["deaths"] += 1
            peer.socket.abort()
        elif draw < 0.08 or (not self.is_finishing and number % _POISON == 0):
            reply(False, "no luck")
            self._pull_again(peer)
        elif draw < 0.15:
            asyncio.get_running_loop().call_later(draw, self._done, peer, number, life, reply)
        else:
            self._done(peer, number, life, reply)

    def _done(self, peer: RawPeer, number: int, life: int, reply: Reply) -> None:
        if peer.is_gone:
            return
        reply(True, None)
        self._states.done[number] += 1
        if life == len(self.hub.lives) and self.is_finishing:
            self._states.done_at_last[number] += 1
        self._pull_again(peer)

    def _pull_again(self, peer: RawPeer) -> None:
        task = asyncio.create_task(self._pull(peer))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class QueueDrainer(Participant):
    """Waits at the end until the queue is empty, and redrives dead jobs."""

    def __init__(self, hub: HubAddress, random: Random, states: JobStates) -> None:
        super().__init__(hub, random)
        self._states = states
        self._report = Report("queues")

    def report(self) -> Report:
        """Return the counts of all jobs."""
        states, report = self._states, self._report
        report.figures["pushed"] = len(states.acknowledged)
        report.figures["unsure"] = len(states.pushed - states.acknowledged)
        report.figures["given"] = states.given.total()
        report.figures["dead"] = states.dead
        report.lost = len(states.acknowledged - states.done.keys())
        report.doubled = sum(times - 1 for times in states.done_at_last.values())
        return report

    async def run(self) -> None:
        """Watch the queue after all jobs are pushed."""
        await self.finishing.wait()
        while True:
            try:
                async with await RawLrpm.connect(self.hub.host, self.hub.port) as peer:
                    while await self._has_jobs(peer):  # noqa: ASYNC110  the hub sends no event when a queue gets empty
                        await asyncio.sleep(0.1)
                    return
            except ConnectionError:
                await asyncio.sleep(_PAUSE)

    async def _has_jobs(self, peer: RawPeer) -> bool:
        queues = await peer.call("hub.queues")
        state = queues.get(QUEUE) if isinstance(queues, dict) else None
        if not state:
            return False
        if state["dead"]:
            await peer.call("hub.redrive", {"queue": QUEUE})
            self._states.dead += state["dead"]
            return True
        return bool(state["waiting"] or state["given"])
