"""NQ over links that drop, repeat, delay and reorder, to a real hub: every request is answered once, and run once."""

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
from tests.integration.runtime.test_nq_http import waiting
from tests.support.nq_peers import Linked, Message, Poster, linked, packed, posters, unpacked
from tests.support.raw_peers import Place, hub, settings

CALLS = 200
LOSS = 0.3
"""The chance of each misfortune, for each message and each way."""
LATE = 0.2
TICK = 0.01
OPTIONS: dict[str, object] = {"first_wait": 0.1, "first_poll": 0.2, "longest_wait": 0.5}


class BadWay:
    """One direction. Messages of one packet have different fates."""

    def __init__(self, random: Random, arrive: Callable[[Message], None]) -> None:
        self.met: Counter[str] = Counter()
        self.is_bad = True
        self._random = random
        self._arrive = arrive

    def carry(self, payload: bytes) -> None:
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
    """A conversation at the far end of two bad ways, and what became of its requests."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._loop = asyncio.get_running_loop()
        self.talk = NqConversation(ConversationSetup("requester", Role.CLIENT, self._random, Limits(), OPTIONS))
        self.coming = BadWay(self._random, self.hear)
        self.going = BadWay(self._random, self.send)
        self.answers: dict[str, list[object]] = {}
        self._unsent = list(range(CALLS))
        self.outside: list[Message] = []
        """What has arrived at the hub's door."""

    def send(self, message: Message) -> None:
        self.outside.append(message)

    def hear(self, message: Message) -> None:
        for word in self.talk.receive(Packet(packed(message)), self._loop.time()):
            if isinstance(word, Result):
                self.answers[word.id].append(None if word.body is None else word.body.value())
            elif isinstance(word, Failure):
                self.answers[word.id].append(word)

    def turn(self) -> None:
        """Ask for some more, say again what is overdue, and set all of it on its way."""
        now = self._loop.time()
        for number in self._unsent[:4]:
            self.answers[f"{number}"] = []
            self.talk.send(Call(f"{number}", "work", Value([number])), now)
        del self._unsent[:4]
        deadline = self.talk.deadline()
        if deadline is not None and deadline <= now:
            assert not self.talk.wake(now)
        for packet in self.talk.take_packets():
            self.going.carry(packet.payload)

    @property
    def is_done(self) -> bool:
        return not self._unsent and all(self.answers.values())

    def recover(self) -> None:
        self.coming.is_bad = self.going.is_bad = False
        self.talk.reconnect(self._loop.time())


async def over_link(requester: Requester, peer: Linked, is_over: Callable[[], bool]) -> None:
    async def listen() -> None:
        while True:
            requester.coming.carry(packed(await peer.hear()))

    listening = asyncio.ensure_future(listen())
    try:
        while not is_over():
            requester.turn()
            for message in requester.outside:
                peer.say(message)
            requester.outside.clear()
            await asyncio.wait([listening], timeout=TICK)
            assert not listening.done(), listening
    finally:
        listening.cancel()


async def over_http(requester: Requester, poster: Poster, is_over: Callable[[], bool]) -> None:
    while not is_over():
        requester.turn()
        said, requester.outside = requester.outside, []
        requester.coming.carry(packed(*await poster.post(*said, wait=TICK)))


def working(random: Random) -> tuple[App, Counter[int]]:
    """An application that takes its time, and how often it was asked for what."""
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


def nothing_is_left(place: Place, peer: str) -> Callable[[], bool]:
    """Whether the hub owes nothing to a peer, and keeps no answer for it."""
    standing = place.server.resumable_sessions._by_id[peer]
    return lambda: place.server.exchange.hub.is_idle(peer) and not len(standing.conversation._incoming.requests)


@pytest.mark.parametrize("seed", [1, 2])
@waiting
async def test_every_request_is_answered_once_over_a_bad_link(seed: int) -> None:
    app, runs = working(Random(seed))
    async with hub(settings(), app) as place:
        requester, peer = Requester(seed), await linked(place)
        await over_link(requester, peer, lambda: requester.is_done)
        check(requester, runs)
        peer.cut()
        again = await linked(place, peer.peer)
        requester.recover()
        await over_link(requester, again, nothing_is_left(place, peer.peer))
        check(requester, runs)
        again.cut()


@pytest.mark.parametrize("seed", [1, 2])
@waiting
async def test_every_request_is_answered_once_over_http_that_loses(seed: int) -> None:
    app, runs = working(Random(seed))
    async with hub(settings(), app) as place, posters(place.port) as (poster,):
        requester = Requester(seed)
        await over_http(requester, poster, lambda: requester.is_done)
        check(requester, runs)
        requester.recover()
        await over_http(requester, poster, nothing_is_left(place, poster.peer))
        check(requester, runs)
