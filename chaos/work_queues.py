"""Work queues: producers push numbered jobs, workers pull them, and some workers die with a job in hand.

Each number is pushed once. A push counts when its answer has come; one whose connection broke may or may not be in the
queue. In the end each job that counts must have been done, and after the last kill no job is done twice.
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
"""The hub's `limits.max_tries`: few, so that jobs that fail are soon dead."""
_PULLS: Final = 4
_AT_ONCE: Final = 8
"""Pushes of one producer that are on their way together."""
_POLLS: Final = 5
"""How often a producer of NQ waits for their answers."""
_POISON: Final = 20
"""Each job whose number is a multiple of it fails until the run is over, and so comes to the dead-letter queue."""
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
    """Those that were done by way of the last process of the hub, which was not killed."""
    dead: int = 0


class Producer(Participant):
    """Pushes jobs; a subclass says how."""

    def __init__(self, hub: HubAddress, random: Random, ledger: JobStates) -> None:
        super().__init__(hub, random)
        self.ledger = ledger
        self._report = Report("queues")

    def report(self) -> Report:
        """Return the result: the ledger has it."""
        return self._report

    async def run(self) -> None:
        """Push until the end."""
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
        number = next(self.ledger.numbers)
        self.ledger.pushed.add(number)
        return number

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0.0, 0.06))


class LrpmProducer(Producer):
    """Pushes by calls of LRPM."""

    async def _push_many(self) -> None:
        async with await RawLrpm.connect(self.hub.host, self.hub.port) as peer:
            while not self.is_finishing:
                pushes = [self._push(peer, self._next()) for _ in range(_AT_ONCE)]
                for each in await asyncio.gather(*pushes, return_exceptions=True):
                    if each is not None:
                        raise each
                await self._pause()

    async def _push(self, peer: RawPeer, number: int) -> None:
        await peer.call("hub.push", {"queue": QUEUE, "data": {"job": number}})
        self.ledger.acknowledged.add(number)


class NqProducer(Producer):
    """Pushes by requests of NQ over HTTP, none of them repeated: a number is pushed once."""

    async def _push_many(self) -> None:
        connection = RawConnection(self.hub)
        try:
            await connection.post([])  # a hub that is away costs no number
            while not self.is_finishing:
                waiting = {f"push-{number}": number for number in (self._next() for _ in range(_AT_ONCE))}
                messages: list[dict[str, Any]] = [
                    {"t": "hub-push", "r": request, "d": {"queue": QUEUE, "data": {"job": number}}}
                    for request, number in waiting.items()
                ]
                for _ in range(_POLLS):
                    if not waiting:
                        break
                    said = await connection.post(messages, 2.0)
                    messages = [{"i": each["a"]} for each in said if self._is_answer(each, waiting)]
                await connection.post(messages)
                await self._pause()
        finally:
            connection.close()

    def _is_answer(self, message: dict[str, Any], waiting: dict[str, int]) -> bool:
        """Take the answer to a push; an acceptance is none."""
        if "d" not in message and "e" not in message:
            return False
        number = waiting.pop(str(message.get("i")), None)
        if "e" in message:
            self._report.failures.append(f"push: {message['e']}")
        elif number is not None:
            self.ledger.acknowledged.add(number)
        return number is not None


class Worker(Participant):
    """Pulls jobs; does most of them, fails at some, and dies with others."""

    is_background = True

    def __init__(self, hub: HubAddress, random: Random, kind: type[RawPeer], ledger: JobStates) -> None:
        super().__init__(hub, random)
        self._kind = kind
        self._ledger = ledger
        self._pulls = count(1)
        self._report = Report("queues")

    def report(self) -> Report:
        """Return the result."""
        return self._report

    async def run(self) -> None:
        """Work, die, return."""
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
        peer.serves[f"callback.{name}"] = lambda body, reply: self._work(peer, name, life, body, reply)
        await peer.call("hub.pull", {"queue": QUEUE, "callback": name})

    def _work(self, peer: RawPeer, name: str, life: int, body: Value, reply: Reply) -> None:
        del peer.serves[f"callback.{name}"]
        number = body.get("job") if isinstance(body, dict) else None
        if not isinstance(number, int) or number not in self._ledger.pushed:
            self._report.wrong.append(f"a job that was never pushed: {body!r}")
            reply(True, None)
            return
        self._ledger.given[number] += 1
        chance = 1.0 if self.is_finishing else self.random.random()
        if chance < 0.04:
            self._report.figures["deaths"] += 1
            peer.socket.abort()
        elif chance < 0.08 or (not self.is_finishing and number % _POISON == 0):
            reply(False, "no luck")
            self._again(peer)
        elif chance < 0.15:
            asyncio.get_running_loop().call_later(chance, self._done, peer, number, life, reply)
        else:
            self._done(peer, number, life, reply)

    def _done(self, peer: RawPeer, number: int, life: int, reply: Reply) -> None:
        if peer.is_gone:
            return
        reply(True, None)
        self._ledger.done[number] += 1
        if life == len(self.hub.lives) and self.is_finishing:
            self._ledger.done_at_last[number] += 1
        self._again(peer)

    def _again(self, peer: RawPeer) -> None:
        task = asyncio.create_task(self._pull(peer))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class QueueDrainer(Participant):
    """Waits in the end until the queue is empty, and lets dead jobs be tried once more."""

    def __init__(self, hub: HubAddress, random: Random, ledger: JobStates) -> None:
        super().__init__(hub, random)
        self._ledger = ledger
        self._report = Report("queues")

    def report(self) -> Report:
        """Return what became of all jobs."""
        ledger, report = self._ledger, self._report
        report.figures["pushed"] = len(ledger.acknowledged)
        report.figures["unsure"] = len(ledger.pushed - ledger.acknowledged)
        report.figures["given"] = ledger.given.total()
        report.figures["dead"] = ledger.dead
        report.lost = len(ledger.acknowledged - ledger.done.keys())
        report.doubled = sum(times - 1 for times in ledger.done_at_last.values())
        return report

    async def run(self) -> None:
        """Watch the queue, once all jobs are pushed."""
        await self.finishing.wait()
        while True:
            try:
                async with await RawLrpm.connect(self.hub.host, self.hub.port) as peer:
                    while await self._left(peer):  # noqa: ASYNC110  the hub tells nobody that a queue is empty
                        await asyncio.sleep(0.1)
                    return
            except ConnectionError:
                await asyncio.sleep(_PAUSE)

    async def _left(self, peer: RawPeer) -> bool:
        queues = await peer.call("hub.queues")
        state = queues.get(QUEUE) if isinstance(queues, dict) else None
        if not state:
            return False
        if state["dead"]:
            await peer.call("hub.redrive", {"queue": QUEUE})
            self._ledger.dead += state["dead"]
            return True
        return bool(state["waiting"] or state["given"])
