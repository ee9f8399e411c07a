"""NQ over connections that drop, repeat, delay and reorder messages: every request is answered and run once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from fiveways.app import App
from fiveways.model.messages import Call, Failure, Result
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Value
from tests.support.nq_peers import Linked, Message, Poster, linked, packed, posters, unpacked
from tests.support.raw_peers import Place, hub, settings
from tests.support.running import async_test

CALLS = 200
LOSS = 0.3
"""Probability of each fault, per message and direction."""
LATE = 0.2
TICK = 0.01
OPTIONS: dict[str, object] = {"first_wait": 0.1, "first_poll": 0.2, "longest_wait": 0.5}


class FaultyDirection:
    """One direction of a faulty connection. Messages of one packet meet different faults."""

    def __init__(self, random: Random, arrive: Callable[[Message], None]) -> None:
        self.met: Counter[str] = Counter()
        self.is_bad = True
        self._random = random
        self._arrive = arrive

    def transfer(self, payload: bytes) -> None:
        for message in unpacked(payload):
            if self._meets("lost"):
                continue
            for _ in range(2 if self._meets("repeated") else 1):
                wait = self._random.uniform(0, LATE) if self._meets("late") else 0.0
                asyncio.get_running_loop().call_later(wait, self._arrive, message)

    def _meets(self, misfortune: str) -> bool:
        is_met = self.is_bad and self._random.random() < LOSS
        self.met[misfortune] += is_met
        return is_met


class Requester:
    """A conversation behind a faulty connection, and the outcomes of its requests."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._loop = asyncio.get_running_loop()
        self.talk = NqConversation(ConversationSetup("requester", Role.CLIENT, self._random, Limits(), OPTIONS))
        self.coming = FaultyDirection(self._random, self.receive)
        self.going = FaultyDirection(self._random, self.send)
        self.answers: dict[str, list[object]] = {}
        self._unsent = list(range(CALLS))
        self.outside: list[Message] = []
        """Packets that have reached the hub."""

    def send(self, message: Message) -> None:
        self.outside.append(message)

    def receive(self, message: Message) -> None:
        for received in self.talk.receive(Packet(packed(message)), self._loop.time()):
            if isinstance(received, Result):
                self.answers[received.id].append(None if received.body is None else received.body.value())
            elif isinstance(received, Failure):
                self.answers[received.id].append(received)

    def step(self) -> None:
        """Send new requests and overdue repetitions."""
        now = self._loop.time()
        for number in self._unsent[:4]:
            self.answers[f"{number}"] = []
            self.talk.send(Call(f"{number}", "work", Value([number])), now)
        del self._unsent[:4]
        deadline = self.talk.deadline()
        if deadline is not None and deadline <= now:
            assert not self.talk.wake(now)
        for packet in self.talk.take_packets():
            self.going.transfer(packet.payload)

    @property
    def is_done(self) -> bool:
        return not self._unsent and all(self.answers.values())

    def recover(self) -> None:
        self.coming.is_bad = self.going.is_bad = False
        self.talk.reconnect(self._loop.time())


async def over_link(requester: Requester, peer: Linked, is_over: Callable[[], bool]) -> None:
    async def listen() -> None:
        while True:
            requester.coming.transfer(packed(await peer.hear()))

    listening = asyncio.ensure_future(listen())
    try:
        while not is_over():
            requester.step()
            for message in requester.outside:
                peer.say(message)
            requester.outside.clear()
            await asyncio.wait([listening], timeout=TICK)
            assert not listening.done(), listening
    finally:
        listening.cancel()


async def over_http(requester: Requester, poster: Poster, is_over: Callable[[], bool]) -> None:
    while not is_over():
        requester.step()
        messages, requester.outside = requester.outside, []
        requester.coming.transfer(packed(*await poster.post(*messages, wait=TICK)))


def slow_app(random: Random) -> tuple[App, Counter[int]]:
    """A slow application, and the number of its calls by argument."""
    app, runs = App(), Counter[int]()

    @app.method("work")
    async def work(number: int) -> dict[str, int]:
        runs[number] += 1
        await asyncio.sleep(random.uniform(0, LATE))
        return {"n": number, "square": number * number}

    return app, runs


def check(requester: Requester, runs: Counter[int]) -> None:
    assert requester.answers == {f"{n}": [{"n": n, "square": n * n}] for n in range(CALLS)}
    assert runs == Counter(range(CALLS))
    for way in (requester.coming, requester.going):
        assert min(way.met[each] for each in ("lost", "repeated", "late")) > CALLS * LOSS / 2, way.met


def is_empty(place: Place, peer: str) -> Callable[[], bool]:
    """Return whether the hub holds no request and no answer for a peer."""
    session = place.server.resumable_sessions._by_id[peer]
    return lambda: place.server.exchange.hub.is_idle(peer) and not len(session.conversation._incoming.requests)


@pytest.mark.parametrize("seed", [1, 2])
@async_test
async def test_every_request_is_answered_once_over_a_faulty_connection(seed: int) -> None:
    app, runs = slow_app(Random(seed))
    async with hub(settings(), app) as place:
        requester, peer = Requester(seed), await linked(place)
        await over_link(requester, peer, lambda: requester.is_done)
        check(requester, runs)
        peer.cut()
        again = await linked(place, peer.peer)
        requester.recover()
        await over_link(requester, again, is_empty(place, peer.peer))
        check(requester, runs)
        again.cut()


@pytest.mark.parametrize("seed", [1, 2])
@async_test
async def test_every_request_is_answered_once_over_lossy_http(seed: int) -> None:
    app, runs = slow_app(Random(seed))
    async with hub(settings(), app) as place, posters(place.port) as (poster,):
        requester = Requester(seed)
        await over_http(requester, poster, lambda: requester.is_done)
        check(requester, runs)
        requester.recover()
        await over_http(requester, poster, is_empty(place, poster.peer))
        check(requester, runs)
