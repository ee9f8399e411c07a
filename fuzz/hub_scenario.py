"""One story of a hub: several clients of different protocols, restarts and kills, and at the end nothing is left."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec

from fiveways.model import messages as words
from fuzz import hub_grammar
from fuzz.fuzz_target import PropertyViolated
from fuzz.hub_clients import KINDS, Client
from fuzz.hub_simulation import OTHER_SETTINGS, PEER_TTL, REQUEST_TTL, SETTINGS, SimulatedHub
from fuzz.hub_state import check, check_durable, check_empty
from fuzz.virtual_time import VirtualLoop, replaced
from tests.support.store_helpers import Model

_WEIGHTS: Final = {
    "act": 50,
    "answer": 25,
    "garble": 5,
    "tick": 12,
    "wait": 3,
    "cut": 2,
    "leave": 1,
    "pause": 3,
    "resume": 3,
    "post": 4,
    "stop": 0.7,
    "kill": 0.7,
    "reload": 0.7,
    "flood": 5,
    "full": 0.7,
    "room": 1,
}
_PASSES: Final = 20_000
"""Loop iterations after which a hub that is never done with a frame is stuck."""
_LAST_PASSES: Final = 50
"""Loop iterations for the tasks of a hub that is killed."""
_SILENCE: Final = 3 * PEER_TTL


class HubScenarioStep(msgspec.Struct, frozen=True, array_like=True):
    """One thing that happens. Everything in it is chosen by its own seed, so that others can be left out."""

    kind: str
    client: int
    seed: int


class HubScenario(msgspec.Struct, frozen=True):
    """All that is needed to repeat it."""

    seed: int
    clients: list[str]
    damage: float
    """The part of the clients' frames that is damaged."""
    delay: float
    """Seconds for which changes wait before the store writes them."""
    has_broker: bool
    has_app: bool
    is_recorded: bool
    steps: list[HubScenarioStep]

    @classmethod
    def made(cls, seed: int, length: int = 0) -> Self:
        """Make a story up."""
        random = Random(seed)
        clients = random.sample(KINDS, 3) + random.choices(KINDS, k=random.choice((1, 2, 4))) + ["nq"]
        damage = random.choice((0.0, 0.0, 0.05, 0.3))
        weights = {**_WEIGHTS, "garble": _WEIGHTS["garble"] if damage else 0}
        kinds = random.choices(list(weights), list(weights.values()), k=length or random.choice((40, 120, 250)))
        steps = [HubScenarioStep(kind, random.randrange(len(clients)), random.getrandbits(32)) for kind in kinds]
        parts = "mqtt-rpc" in clients, random.random() < 0.5, random.random() < 0.5
        return cls(seed, clients, damage, random.choice((0.0, 0.01)), *parts, steps)


class _ErrorCollector(logging.Handler):
    """Collects what was logged as an error, and what the loop caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[Exception] = []
        self.is_full = False
        """The store had no room, which is worth an error."""
        self.is_muted = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take an error."""
        if not (self.is_full and record.name == "fiveways.persister"):
            self._add(record.exc_info[1] if record.exc_info else None, record.getMessage())

    def caught(self, _loop: object, context: dict[str, Any]) -> None:
        """Take what no part of the hub has handled."""
        self._add(context.get("exception"), str(context.get("message")))

    def _add(self, error: object, text: str) -> None:
        if not self.is_muted:
            self.found.append(error if isinstance(error, Exception) else PropertyViolated(text))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the log; nothing of it is printed."""
        log = logging.getLogger("fiveways")
        before = log.propagate
        log.addHandler(self)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(self)
            log.propagate = before


class HubScenarioRunner:
    """Plays one story."""

    def __init__(self, story: HubScenario, folder: Path) -> None:
        """Make it; the store is put into the folder."""
        self.inputs = 0
        """Frames that were given to hubs."""
        self.done: Counter[str] = Counter()
        """Which steps were done, and how many words of which kind came out of it."""
        self._story, self._path = story, folder / f"{story.seed}.db"
        self._loop = VirtualLoop()
        self._finds = _ErrorCollector()
        self._model = Model()
        self._tokens: list[str] = []
        self._peers: list[str] = ["nobody"]
        self._clients = [self._client(number, kind) for number, kind in enumerate(story.clients)]
        self._posts: set[asyncio.Task[None]] = set()

    def _client(self, number: int, kind: str) -> Client:
        return Client(number, kind, self._tokens, self._peers, self._count)

    def _count(self) -> None:
        self.inputs += 1

    def play(self) -> None:
        """Play it; whatever is raised is a find."""
        loop = self._loop
        loop.set_exception_handler(self._finds.caught)
        with replaced(Random(self._story.seed)), self._finds.listening():
            try:
                loop.run_until_complete(self._run())
            finally:
                loop.forget_all()
                loop.close()
                for path in self._path.parent.glob(f"{self._path.name}*"):
                    path.unlink()

    async def _run(self) -> None:
        await self._begin()
        for step in self._story.steps:
            await self._step(step)
            await self._settle()
        await self._end()

    # A hub's life.

    async def _begin(self) -> None:
        self._life = life = SimulatedHub(
            self._path, self._said_at_broker, has_broker=self._story.has_broker, has_app=self._story.has_app
        )
        if self._story.is_recorded:
            life.record()
        loaded, expected = await life.start(self._model, self._story.delay)
        for name in ("peers", "requests", "answers", "jobs", "dead_jobs", "retained"):
            check(f"loaded {name}", getattr(loaded, name), getattr(expected, name))
        check("loaded tombs", set(loaded.tombstones), set(expected.tombstones))
        await self._settle()
        await self._flush()

    async def _flush(self) -> None:
        """Wait until the store has written everything, and compare it with the hub."""
        self._life.store.fill(is_full=False)
        for _ in range(20):
            if not (self._life.store.waiting or self._life.exchange.persister.backlog_size):
                break
            await asyncio.sleep(1.0 if self._life.exchange.persister.backlog_size else self._story.delay)
            await self._settle()
        check_durable(self._life, self._model, self._loop.time())

    async def _stop(self) -> None:
        await self._flush()
        for client in self._clients:
            client.pause(is_paused=False)
        await self._life.server.stop()
        await self._vanish()

    async def _vanish(self) -> None:
        """End all that went on in the process of the hub; what its tasks do at their end reaches nobody."""
        self._life.store.kill()
        self._finds.is_muted = True
        for client in self._clients:
            client.cut()
        for task in asyncio.all_tasks(self._loop):
            if task is not asyncio.current_task():
                task.cancel()
        for _ in range(_LAST_PASSES):
            await asyncio.sleep(0)
        self._loop.forget_all()
        self._life.dissolve()
        self._finds.is_muted = False

    async def _settle(self) -> None:
        """Let everybody do what they can do at once."""
        for _ in range(_PASSES):
            if not self._loop.is_busy:
                break
            await asyncio.sleep(0)
        else:
            raise PropertyViolated("the hub is never done")
        if self._finds.found:
            raise self._finds.found[0]

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._settle()
        for client in self._clients:
            client.wake()
        await self._settle()

    def _said_at_broker(self, topic: str, payload: bytes) -> None:
        for client in self._clients:
            if client.kind == "mqtt-rpc":
                self._loop.call_soon(client.said_at_broker, topic, payload)

    # Steps.

    async def _step(self, step: HubScenarioStep) -> None:
        client, chance = self._clients[step.client], Random(step.seed)
        self.done[step.kind] += 1
        match step.kind:
            case "act":
                await self._connected(client)
                client.act(chance, self._story.damage)
            case "answer":
                client.answer(chance, self._story.damage)
            case "garble":
                await self._connected(client)
                client.garble(chance)
            case "tick":
                await self._wait(chance.choice((0.001, 0.02, 0.3)))
            case "wait":
                await self._wait(chance.choice((1.0, 5.0, 21.0, 70.0)))
            case "cut":
                client.cut()
            case "leave":
                client.leave()
            case "pause" | "resume":
                client.pause(is_paused=step.kind == "pause")
            case "post":
                self._post(client, chance)
            case "stop":
                await self._stop()
                await self._begin()
            case "kill":
                await self._vanish()
                await self._begin()
            case "flood":
                await self._connected(client)
                client.flood(chance)
            case "full" | "room":
                self._finds.is_full |= step.kind == "full"
                self._life.store.fill(is_full=step.kind == "full")
            case "reload":
                self._life.reload(chance.choice((SETTINGS, OTHER_SETTINGS)))
            case _:
                raise PropertyViolated(f"there is no step {step.kind}")

    async def _connected(self, client: Client) -> None:
        if client.link is None:
            client.connect(self._life)
            await self._settle()

    def _post(self, client: Client, chance: Random) -> None:
        if client.kind == "nq":
            client.cut()
            task = self._loop.create_task(client.post(self._life, chance.choice((0.0, 0.0, 2.0))))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    # The end.

    async def _end(self) -> None:
        self._life.reload(SETTINGS)
        self._life.store.fill(is_full=False)
        await self._answer_all()
        for client in self._clients:
            client.leave()
        await self._wait(1.0)
        await self._wait(_SILENCE)
        await self._check_empty()
        await self._stop()
        await self._begin()
        await self._check_empty()
        await self._stop()

    async def _check_empty(self) -> None:
        await self._life.empty()
        await self._wait(100.0)
        await self._flush()
        check_empty(self._life, self._model, self._loop.time())

    async def _answer_all(self) -> None:
        """Let workers answer all that is open: each request that the hub has accepted must be answered."""
        helper = self._client(len(self._clients), "umq")
        self._clients.append(helper)
        for client in self._clients:
            client.damage = 0.0
            client.pause(is_paused=False)
        until = self._loop.time() + REQUEST_TTL + 100.0
        while self._loop.time() < until:
            for client in self._clients:
                await self._connected(client)
            for method in hub_grammar.METHODS:
                helper.ask(words.Register(f"h{method}", method, share="round_robin"))
            for client in self._clients:
                client.serve()
            await self._wait(7.0)
        for client in self._clients:
            if client.kind == "nq" and client.is_trusting:
                check(f"accepted and not answered, of client {client.number}", client.accepted, set())
