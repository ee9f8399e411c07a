"""A scenario of the hub fuzzer: clients of several protocols, restarts and kills, and a final check for leftovers."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec

from fiveways.model import messages as msgs
from fuzz import hub_grammar
from fuzz.fuzz_target import PropertyViolated
from fuzz.hub_clients import KINDS, Client
from fuzz.hub_simulation import OTHER_SETTINGS, PEER_TTL, REQUEST_TTL, SETTINGS, SimulatedHub
from fuzz.hub_state import check, check_durable, check_empty
from fuzz.virtual_time import VirtualLoop, simulated_environment
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
_MAX_ITERATIONS: Final = 20_000
"""Event loop iterations after which a hub that still has work counts as stuck."""
_LAST_ITERATIONS: Final = 50
"""Event loop iterations for the tasks of a killed hub."""
_EXPIRY: Final = 3 * PEER_TTL


class HubScenarioStep(msgspec.Struct, frozen=True, array_like=True):
    """One step. Its own seed makes all its choices, so other steps can be removed."""

    kind: str
    client: int
    seed: int


class HubScenario(msgspec.Struct, frozen=True):
    """All that is needed to repeat a scenario."""

    seed: int
    clients: list[str]
    damage: float
    """Fraction of the clients' frames that are damaged."""
    delay: float
    """Seconds for which changes are queued before the store writes them."""
    has_broker: bool
    has_app: bool
    is_recorded: bool
    steps: list[HubScenarioStep]

    @classmethod
    def random(cls, seed: int, length: int = 0) -> Self:
        """Return a random scenario."""
        random = Random(seed)
        clients = random.sample(KINDS, 3) + random.choices(KINDS, k=random.choice((1, 2, 4))) + ["nq"]
        damage = random.choice((0.0, 0.0, 0.05, 0.3))
        weights = {**_WEIGHTS, "garble": _WEIGHTS["garble"] if damage else 0}
        kinds = random.choices(list(weights), list(weights.values()), k=length or random.choice((40, 120, 250)))
        steps = [HubScenarioStep(kind, random.randrange(len(clients)), random.getrandbits(32)) for kind in kinds]
        parts = "mqtt-rpc" in clients, random.random() < 0.5, random.random() < 0.5
        return cls(seed, clients, damage, random.choice((0.0, 0.01)), *parts, steps)


class _ErrorCollector(logging.Handler):
    """Collects errors of the log and exceptions that the event loop caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[Exception] = []
        self.is_full = False
        """The disk of the store is full: errors of the persister are expected."""
        self.is_muted = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take an error from the log."""
        if not (self.is_full and record.name == "fiveways.persister"):
            self._add(record.exc_info[1] if record.exc_info else None, record.getMessage())

    def caught(self, _loop: object, context: dict[str, Any]) -> None:
        """Take an exception that no task handled."""
        self._add(context.get("exception"), str(context.get("message")))

    def _add(self, error: object, text: str) -> None:
        if not self.is_muted:
            self.errors.append(error if isinstance(error, Exception) else PropertyViolated(text))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect errors from the log; print nothing."""
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
    """Runs one scenario; its store is in `folder`."""

    def __init__(self, scenario: HubScenario, folder: Path) -> None:
        self.inputs = 0
        """Frames that hubs received."""
        self.done: Counter[str] = Counter()
        """Steps that were executed, by kind."""
        self._scenario, self._path = scenario, folder / f"{scenario.seed}.db"
        self._loop = VirtualLoop()
        self._errors = _ErrorCollector()
        self._model = Model()
        self._tokens: list[str] = []
        self._peers: list[str] = ["nobody"]
        self._clients = [self._client(number, kind) for number, kind in enumerate(scenario.clients)]
        self._posts: set[asyncio.Task[None]] = set()

    def _client(self, number: int, kind: str) -> Client:
        return Client(number, kind, self._tokens, self._peers, self._count)

    def _count(self) -> None:
        self.inputs += 1

    def run(self) -> None:
        """Run the scenario; every exception is a finding."""
        loop = self._loop
        loop.set_exception_handler(self._errors.caught)
        with simulated_environment(Random(self._scenario.seed)), self._errors.listening():
            try:
                loop.run_until_complete(self._run())
            finally:
                loop.forget_all()
                loop.close()
                for path in self._path.parent.glob(f"{self._path.name}*"):
                    path.unlink()

    async def _run(self) -> None:
        await self._begin()
        for step in self._scenario.steps:
            await self._step(step)
            await self._settle()
        await self._end()

    # A hub's life.

    async def _begin(self) -> None:
        self._hub = hub = SimulatedHub(
            self._path, self._publish_at_broker, has_broker=self._scenario.has_broker, has_app=self._scenario.has_app
        )
        if self._scenario.is_recorded:
            hub.record()
        loaded, expected = await hub.start(self._model, self._scenario.delay)
        for name in ("peers", "requests", "answers", "jobs", "dead_jobs", "retained"):
            check(f"loaded {name}", getattr(loaded, name), getattr(expected, name))
        check("loaded tombstones", set(loaded.tombstones), set(expected.tombstones))
        await self._settle()
        await self._flush()

    async def _flush(self) -> None:
        """Wait until the store has written everything, then compare it with the hub."""
        self._hub.store.fill(is_full=False)
        for _ in range(20):
            if not (self._hub.store.waiting or self._hub.exchange.persister.backlog_size):
                break
            await asyncio.sleep(1.0 if self._hub.exchange.persister.backlog_size else self._scenario.delay)
            await self._settle()
        check_durable(self._hub, self._model, self._loop.time())

    async def _stop(self) -> None:
        await self._flush()
        for client in self._clients:
            client.pause(is_paused=False)
        await self._hub.server.stop()
        await self._kill()

    async def _kill(self) -> None:
        """End everything in the hub process; output of its tasks during cancellation is dropped."""
        self._hub.store.kill()
        self._errors.is_muted = True
        for client in self._clients:
            client.cut()
        for task in asyncio.all_tasks(self._loop):
            if task is not asyncio.current_task():
                task.cancel()
        for _ in range(_LAST_ITERATIONS):
            await asyncio.sleep(0)
        self._loop.forget_all()
        self._hub.dissolve()
        self._errors.is_muted = False

    async def _settle(self) -> None:
        """Run the event loop until nothing is ready."""
        for _ in range(_MAX_ITERATIONS):
            if not self._loop.is_busy:
                break
            await asyncio.sleep(0)
        else:
            raise PropertyViolated("the hub does not become idle")
        if self._errors.errors:
            raise self._errors.errors[0]

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._settle()
        for client in self._clients:
            client.wake()
        await self._settle()

    def _publish_at_broker(self, topic: str, payload: bytes) -> None:
        for client in self._clients:
            if client.kind == "mqtt-rpc":
                self._loop.call_soon(client.receive_publication, topic, payload)

    # Steps.

    async def _step(self, step: HubScenarioStep) -> None:
        client, random = self._clients[step.client], Random(step.seed)
        self.done[step.kind] += 1
        match step.kind:
            case "act":
                await self._connect(client)
                client.act(random, self._scenario.damage)
            case "answer":
                client.answer(random, self._scenario.damage)
            case "garble":
                await self._connect(client)
                client.garble(random)
            case "tick":
                await self._wait(random.choice((0.001, 0.02, 0.3)))
            case "wait":
                await self._wait(random.choice((1.0, 5.0, 21.0, 70.0)))
            case "cut":
                client.cut()
            case "leave":
                client.leave()
            case "pause" | "resume":
                client.pause(is_paused=step.kind == "pause")
            case "post":
                self._post(client, random)
            case "stop":
                await self._stop()
                await self._begin()
            case "kill":
                await self._kill()
                await self._begin()
            case "flood":
                await self._connect(client)
                client.flood(random)
            case "full" | "room":
                self._errors.is_full |= step.kind == "full"
                self._hub.store.fill(is_full=step.kind == "full")
            case "reload":
                self._hub.reload(random.choice((SETTINGS, OTHER_SETTINGS)))
            case _:
                raise PropertyViolated(f"unknown step {step.kind}")

    async def _connect(self, client: Client) -> None:
        if client.link is None:
            client.connect(self._hub)
            await self._settle()

    def _post(self, client: Client, random: Random) -> None:
        if client.kind == "nq":
            client.cut()
            task = self._loop.create_task(client.post(self._hub, random.choice((0.0, 0.0, 2.0))))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    # The end.

    async def _end(self) -> None:
        self._hub.reload(SETTINGS)
        self._hub.store.fill(is_full=False)
        await self._answer_all()
        for client in self._clients:
            client.leave()
        await self._wait(1.0)
        await self._wait(_EXPIRY)
        await self._check_empty()
        await self._stop()
        await self._begin()
        await self._check_empty()
        await self._stop()

    async def _check_empty(self) -> None:
        await self._hub.empty()
        await self._wait(100.0)
        await self._flush()
        check_empty(self._hub, self._model, self._loop.time())

    async def _answer_all(self) -> None:
        """Answer all pending requests; every accepted request must get a response."""
        helper = self._client(len(self._clients), "umq")
        self._clients.append(helper)
        for client in self._clients:
            client.damage = 0.0
            client.pause(is_paused=False)
        until = self._loop.time() + REQUEST_TTL + 100.0
        while self._loop.time() < until:
            for client in self._clients:
                await self._connect(client)
            for method in hub_grammar.METHODS:
                helper.send_request(msgs.Register(f"h{method}", method, share="round_robin"))
            for client in self._clients:
                client.serve()
            await self._wait(7.0)
        for client in self._clients:
            if client.kind == "nq" and client.is_undamaged:
                check(f"accepted and not answered, of client {client.number}", client.accepted, set())
