"""Whatever happens, in whatever order: what must hold, holds.

A walk does random things at a hub and keeps its own, much simpler books: who is there, which requests are not
answered, which attachments are owed. Every seed is a walk that can be repeated.
"""

from collections import Counter
from random import Random

import msgspec
import pytest

from fiveways.errors import LocalProtocolError, Reason, Unrepresentable
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Announce, Continuation, Deliveries, Delivery, Fanout, Persist
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.shares import LimitShares, Pool
from fiveways.hub.traits import Credentials
from fiveways.model.messages import (
    Attachment,
    Call,
    Cancel,
    CloseTopic,
    Description,
    Discover,
    Failure,
    Goodbye,
    Hello,
    HubMessage,
    Part,
    Progress,
    Publish,
    Register,
    Result,
    SetVariable,
    Subscribe,
    TopicClosed,
    Unregister,
    UnsetVariable,
    Unsubscribe,
    Welcome,
)
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Payload, Value
from tests.support.hub_helpers import LRPM, MQTT, NQ, UMQ, UMQ36, held, pattern, topic

STEPS = 600
NAMES = ["a", "a.b", "a.b.c", "r.x", "r.s.y", "hub.ping", "nothing"]
TOPICS = ["t", "t.u", "t.u.v", "$s"]
PATTERNS = [*TOPICS, "t.*", "#", "t/#", "+/u", "*.u*"]
LIMITS = Limits(max_pending=6, max_subscriptions=5, max_variables=3, max_stream=3, max_text=60)
SETTINGS = HubSettings(max_offers=4, max_retained=3, max_queue=3, max_queues=2, call_timeout=5.0, max_methods=2)
OTHERS = HubSettings(
    max_offers=2,
    max_methods=2,
    call_timeout=3.0,
    identities=(Identity("i", "t", permissions=Permissions(call=("a.*",))),),
    anonymous_permissions=Permissions(call=("a.*", "hub.*", "r.*"), subscribe=("t.*",)),
    topic_policies=(("t.*", "block"),),
)


class Walk:
    """A hub, those who are there, and what they may expect."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.hub = Hub(Random(seed), LIMITS, SETTINGS)
        self.now = 0.0
        self.last = 0
        self.here: list[str] = []
        self.waiting: Counter[tuple[str, str]] = Counter()
        """Requests that are not answered, by peer and id."""
        self.work: dict[str, list[HubMessage]] = {}
        """Calls that each peer has heard of, and perhaps answered."""
        self.announced: dict[str, list[str]] = {}
        """Attachments that each peer has announced and not sent."""
        self.owed: dict[str, set[str]] = {}
        """Attachments that each peer has been promised."""
        self.streams: list[Call] = []
        """Streamed requests, the last few."""
        self.void: set[tuple[str, str]] = set()
        """Attachments of messages that could not be said."""

    # What comes out.

    def perform(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            if isinstance(delivery, Fanout):
                assert len({(each.peer, each.subscription) for each in delivery.subscribers}) == len(
                    delivery.subscribers
                )
                for each in delivery.subscribers:
                    self.tell(each.peer, delivery.event)
            elif isinstance(delivery, Persist):
                self.perform([*delivery.then])
            elif isinstance(delivery, Announce):
                self.perform([delivery.delivery])
            elif isinstance(delivery, Continuation):
                self.perform(delivery.resume())
            elif self.chance.random() < 0.03 and not isinstance(delivery.message, Attachment | Welcome | Goodbye):
                self.lose(delivery)
            else:
                self.tell(delivery.peer, delivery.message)

    def lose(self, delivery: Delivery) -> None:
        """The receiver's protocol cannot say it."""
        self.void |= {(delivery.peer, name) for name in getattr(delivery.message, "attachments", ())}
        if isinstance(delivery.message, Failure):
            self.answered(delivery.peer, delivery.message.id)
        error = self.chance.choice([Unrepresentable("no"), LocalProtocolError("too many"), LocalProtocolError("over")])
        self.perform(self.hub.handle_undelivered(delivery, error, self.now))

    def tell(self, peer: str, word: HubMessage) -> None:
        assert peer in self.here, f"{word} for {peer}, who is not there"
        match word:
            case Result(stream=True, last=False):
                assert self.waiting[peer, word.id] == 1
            case Result() | Failure() | Description():
                self.answered(peer, word.id)
            case Call() | Discover():
                self.work[peer].append(word)
            case Attachment():
                if (peer, word.name) not in self.void:
                    self.owed[peer].remove(word.name)
            case Goodbye():
                self.leave(peer)
        names = getattr(word, "attachments", ())
        if peer in self.here:
            assert not self.owed[peer] & set(names)
            self.owed[peer] |= set(names)

    def answered(self, peer: str, word_id: str) -> None:
        assert self.waiting[peer, word_id] == 1, f"{word_id} of {peer} is answered, but does not wait"
        del self.waiting[peer, word_id]

    # What goes in.

    def say(self, peer: str, word: HubMessage) -> None:
        self.announced[peer] += getattr(word, "attachments", ())
        self.perform(self.hub.handle(peer, word, self.now))

    def ask(self, peer: str, word: HubMessage) -> None:
        """Make a request that must be answered."""
        if isinstance(word, Call) and word.more:
            self.streams = [*self.streams[-20:], word]
        self.waiting[peer, word.id] += 1  # type: ignore[attr-defined]
        self.say(peer, word)

    def new(self) -> str:
        self.last += 1
        return f"n{self.last}"

    def some(self) -> tuple[str, ...]:
        return tuple(self.new() for _ in range(self.chance.choice([0, 0, 0, 1, 2])))

    def yes(self) -> bool:
        return self.chance.random() < 0.4

    def body(self) -> Payload:
        return self.chance.choice([Value(None), Value(1), Value([1]), Value("x" * 40), Json(b'{"$base64":1}')])

    def join(self) -> None:
        peer = f"p{self.chance.randrange(6)}"
        if peer in self.here:
            return
        self.here.append(peer)
        self.work[peer], self.announced[peer], self.owed[peer] = [], [], set()
        self.hub.arrive(peer, self.chance.choice([UMQ, UMQ36, LRPM, NQ, MQTT]), Credentials(), self.now)
        self.say(peer, Hello())

    def leave(self, peer: str) -> None:
        if peer not in self.here:
            return
        self.here.remove(peer)
        self.waiting = Counter({key: number for key, number in self.waiting.items() if key[0] != peer})
        del self.work[peer], self.announced[peer], self.owed[peer]
        self.perform(self.hub.leave(peer, self.now))

    def go_on(self, peer: str) -> None:
        """Send a part of a streamed request that is open, as far as this peer has made one."""
        open_here = [word for word in self.streams if self.waiting[peer, word.id]]
        if open_here:
            ends = self.yes()
            body = None if ends and self.yes() else self.chance.choice([Value(1), self.body()])
            self.say(peer, Part(self.chance.choice(open_here).id, body, ends))

    def request(self) -> HubMessage:
        """Something that is answered with a result or a failure."""
        chance, new = self.chance, self.new()
        name, where = chance.choice(NAMES), topic(chance.choice(TOPICS))
        kind, share = chance.choice(["unary", "unary", "server", "both"]), chance.choice(["", "random", "first"])
        call = Call(new, name, self.body(), "" if self.yes() else name, self.some())
        timeout, more, stream, progress = chance.choice([None, None, 1.0, 9.0]), self.yes(), self.yes(), self.yes()
        words: list[HubMessage] = [
            msgspec.structs.replace(call, timeout=timeout, more=more, stream=stream, progress=progress),
            Call(new, name, self.body(), stream=self.yes()),
            Call(new, chance.choice([*self.hub._callbacks._callbacks, "x"]), self.body(), callback=True),
            Call(new, "hub.callback", Value(chance.choice(["x", "y"]))),
            Call(new, "hub.push", Value([chance.choice("qrs"), self.body().json().decode()])),
            Call(new, "hub.pull", Value([chance.choice("qrs"), "w"])),
            Call(new, "hub.get", Value(["v", chance.choice(["p1", "p2"])])),
            Register(new, name, kind=kind, share=share, route=self.yes()),
            Register(new, "r", route=True),
            Unregister(new, name, route=self.yes()),
            Subscribe(new, pattern(chance.choice(PATTERNS)), f"s{chance.randrange(8)}", self.yes()),
            Unsubscribe(new, f"s{chance.randrange(8)}"),
            Publish(new, where, self.body(), self.some(), self.yes(), self.yes()),
            CloseTopic(new, where),
            SetVariable(new, chance.choice(["v", "w", "token"]), self.body(), self.some()),
            UnsetVariable(new, "v"),
            Discover(new, chance.choice(["", "hub", "a", "r.", "r.x", "a.b", "r-s-", "r:x", "*"])),
        ]
        return chance.choice(words)

    def answer(self, peer: str) -> None:
        """Answer a call, a part of one, or one that was answered before."""
        if not self.work[peer]:
            return
        word = self.chance.choice(self.work[peer][-8:])
        op, body = word.id, self.body()  # type: ignore[attr-defined]
        if isinstance(word, Discover):
            told: list[HubMessage] = [
                Description(op, ("x", "s.y", "bad\n"), ("s",)),
                Description(op, doc="d"),
                Result(op),
            ]
        else:
            told = [
                Result(op, body, self.some()),
                Result(op, body),
                Result(op, body, self.some(), stream=True, last=False),
                Result(op, body, stream=True, last=False),
                Result(op, None, stream=True),
                Failure(op, Reason.RAISED),
                Progress(op, body),
            ]
        self.say(peer, self.chance.choice(told))

    def say_anything(self, peer: str) -> None:
        chance = self.chance
        request = f"n{chance.randrange(max(1, self.last - 30), self.last + 2)}"
        words: list[HubMessage] = [
            Part(request, self.body(), self.yes()),
            Part(request, None, last=True),
            Cancel(request),
            Publish(None, topic(chance.choice(TOPICS)), self.body(), self.some(), self.yes(), self.yes()),
            Unsubscribe(None, f"s{chance.randrange(8)}"),
            SetVariable(None, "v", self.body()),
            Result(str(chance.randrange(50))),
            TopicClosed("s1"),
        ]
        self.say(peer, chance.choice(words))

    def send_attachment(self, peer: str) -> None:
        if self.announced[peer]:
            name = self.announced[peer].pop(0)
            self.say(peer, Attachment(name, b"data", None if self.yes() else "failed"))

    def step(self) -> None:
        chance = self.chance
        if not self.here or chance.random() < 0.05:
            self.join()
            return
        peer = chance.choice(self.here)
        match chance.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                self.ask(peer, self.request())
            case 7 | 8 | 9 | 10 | 11:
                self.answer(peer)
            case 12 | 13:
                self.send_attachment(peer)
            case 14:
                self.say_anything(peer)
            case 15:
                self.go_on(peer)
            case 16 | 17:
                self.now += chance.choice([0.0, 0.1, 1.0])
                deadline = self.hub.deadline()
                if deadline is not None and deadline <= self.now:
                    self.perform(self.hub.expire(self.now))
            case 18 if chance.random() < 0.3:
                self.leave(peer)
            case 19 if chance.random() < 0.1:
                self.perform(self.hub.reload(chance.choice([SETTINGS, OTHERS])))
            case _:
                self.perform(self.hub.unsubscribe_slow_consumer(peer, f"s{chance.randrange(8)}"))


@pytest.mark.parametrize("seed", range(60))
def test_random_walk_keeps_invariants(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        assert walk.hub.open_calls() >= 0
        deadline = walk.hub.deadline()
        assert deadline is None or walk.hub.alarm.at <= deadline
    # Time ends every call that nobody answers, and work goes back to its queue.
    while (deadline := walk.hub.deadline()) is not None:
        walk.now = max(walk.now, deadline)
        walk.perform(walk.hub.expire(walk.now))
    assert walk.hub.open_calls() == 0
    assert walk.waiting == Counter()
    # What was announced comes or fails, so nobody waits for it for ever.
    for peer in list(walk.here):
        while peer in walk.here and walk.announced[peer]:
            walk.send_attachment(peer)
    assert {peer: names for peer, names in walk.owed.items() if names - {name for _, name in walk.void}} == {}
    for peer in list(walk.here):
        walk.leave(peer)
    assert_empty(walk.hub)


@pytest.mark.parametrize("seed", range(60, 90))
def test_random_walk_with_abrupt_end_keeps_invariants(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    while walk.here:
        walk.leave(walk.chance.choice(walk.here))
    assert walk.waiting == Counter()
    assert_empty(walk.hub)


def assert_empty(hub: Hub) -> None:
    """All that is left is what is kept on purpose: values of topics, items of queues, names that are missed."""
    stats = hub.stats()
    left = {name: stats[name] for name in ("sessions", "offers", "subscriptions", "callbacks", "open_calls")}
    assert set(left.values()) == {0}
    while (at := hub._work_queues.deadline()) is not None:  # the delay of a failed item is over without anybody
        hub.expire(at)
    assert hub.deadline() is None
    for queue in hub._work_queues._by_name.values():
        assert queue.waiting or queue.dead_jobs
        assert (queue.in_progress, queue.pulls) == (0, {})
        assert queue.pool.used == queue.waiting + len(queue.dead_jobs)
    assert hub._work_queues._pool.used == len(hub._work_queues._by_name)
    hub.traffic.aggregate_calls()
    for cell in (*hub.traffic.by_key.values(), *hub.traffic.evicted.values()):
        assert cell.calls == len(cell.histogram) + cell.answered_by_hub, (
            "a call has ended, and was not counted, or twice"
        )
        assert cell.results() >= 0
    assert hub._counters.results >= 0
    hub.traffic.failures.clear()
    hub.traffic.protocols.clear()
    hub._work_queues._by_name.clear()
    hub._work_queues._pool = Pool(0, LimitShares())
    hub._work_queues._bytes = Pool(0, LimitShares())
    hub._publishing._retained.__init__()  # type: ignore[misc]
    hub.registrations._former_names.clear()
    hub._subscriptions._clear_caches()
    hub._discovery._lists.clear()
    hub._counters.failures.clear()
    hub.admission._failed_logins._by_address.clear()
    hub.reload(SETTINGS)
    assert held(hub) == held(Hub(Random(1), LIMITS, SETTINGS))
