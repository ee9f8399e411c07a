"""Invariants of the hub under random messages.

A walk sends random messages to a hub and keeps a much simpler model of its sessions, pending requests and expected
attachments. Each seed is a reproducible walk.
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
from tests.support.hub_helpers import LRPM, MQTT, NQ, UMQ, UMQ36, count_objects, pattern, topic

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
    """A hub and the model of its state."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.hub = Hub(Random(seed), LIMITS, SETTINGS)
        self.now = 0.0
        self.last_number = 0
        self.peers: list[str] = []
        self.pending: Counter[tuple[str, str]] = Counter()
        """Requests without a response, by peer and id."""
        self.served: dict[str, list[HubMessage]] = {}
        """Calls that each peer received, answered or not."""
        self.announced: dict[str, list[str]] = {}
        """Attachments that each peer has announced and not sent."""
        self.expected: dict[str, set[str]] = {}
        """Attachments that were announced to each peer."""
        self.streams: list[Call] = []
        """The latest streamed requests."""
        self.lost: set[tuple[str, str]] = set()
        """Attachments of messages that could not be represented."""

    # Output of the hub.

    def perform(self, deliveries: Deliveries) -> None:
        for delivery in deliveries:
            if isinstance(delivery, Fanout):
                assert len({(subscriber.peer, subscriber.subscription) for subscriber in delivery.subscribers}) == len(
                    delivery.subscribers
                )
                for subscriber in delivery.subscribers:
                    self.receive(subscriber.peer, delivery.event)
            elif isinstance(delivery, Persist):
                self.perform([*delivery.then])
            elif isinstance(delivery, Announce):
                self.perform([delivery.delivery])
            elif isinstance(delivery, Continuation):
                self.perform(delivery.resume())
            elif self.random.random() < 0.03 and not isinstance(delivery.message, Attachment | Welcome | Goodbye):
                self.fail_delivery(delivery)
            else:
                self.receive(delivery.peer, delivery.message)

    def fail_delivery(self, delivery: Delivery) -> None:
        """Fail a delivery, as if the receiver's protocol could not represent it."""
        self.lost |= {(delivery.peer, name) for name in getattr(delivery.message, "attachments", ())}
        if isinstance(delivery.message, Failure):
            self.end_request(delivery.peer, delivery.message.id)
        error = self.random.choice([Unrepresentable("no"), LocalProtocolError("too many"), LocalProtocolError("over")])
        self.perform(self.hub.handle_undelivered(delivery, error, self.now))

    def receive(self, peer: str, message: HubMessage) -> None:
        assert peer in self.peers, f"{message} for {peer}, who is not there"
        match message:
            case Result(stream=True, last=False):
                assert self.pending[peer, message.id] == 1
            case Result() | Failure() | Description():
                self.end_request(peer, message.id)
            case Call() | Discover():
                self.served[peer].append(message)
            case Attachment():
                if (peer, message.name) not in self.lost:
                    self.expected[peer].remove(message.name)
            case Goodbye():
                self.leave(peer)
        names = getattr(message, "attachments", ())
        if peer in self.peers:
            assert not self.expected[peer] & set(names)
            self.expected[peer] |= set(names)

    def end_request(self, peer: str, word_id: str) -> None:
        assert self.pending[peer, word_id] == 1, f"{word_id} of {peer} is answered, but does not wait"
        del self.pending[peer, word_id]

    # Input of the hub.

    def send(self, peer: str, message: HubMessage) -> None:
        self.announced[peer] += getattr(message, "attachments", ())
        self.perform(self.hub.handle(peer, message, self.now))

    def send_request(self, peer: str, message: HubMessage) -> None:
        """Send a request that must be answered."""
        if isinstance(message, Call) and message.more:
            self.streams = [*self.streams[-20:], message]
        self.pending[peer, message.id] += 1  # type: ignore[attr-defined]
        self.send(peer, message)

    def new_id(self) -> str:
        self.last_number += 1
        return f"n{self.last_number}"

    def new_attachments(self) -> tuple[str, ...]:
        return tuple(self.new_id() for _ in range(self.random.choice([0, 0, 0, 1, 2])))

    def flip(self) -> bool:
        return self.random.random() < 0.4

    def body(self) -> Payload:
        return self.random.choice([Value(None), Value(1), Value([1]), Value("x" * 40), Json(b'{"$base64":1}')])

    def join(self) -> None:
        peer = f"p{self.random.randrange(6)}"
        if peer in self.peers:
            return
        self.peers.append(peer)
        self.served[peer], self.announced[peer], self.expected[peer] = [], [], set()
        self.hub.arrive(peer, self.random.choice([UMQ, UMQ36, LRPM, NQ, MQTT]), Credentials(), self.now)
        self.send(peer, Hello())

    def leave(self, peer: str) -> None:
        if peer not in self.peers:
            return
        self.peers.remove(peer)
        self.pending = Counter({key: number for key, number in self.pending.items() if key[0] != peer})
        del self.served[peer], self.announced[peer], self.expected[peer]
        self.perform(self.hub.leave(peer, self.now))

    def send_part(self, peer: str) -> None:
        """Send a part of a pending streamed request, if this peer has one."""
        open_here = [message for message in self.streams if self.pending[peer, message.id]]
        if open_here:
            ends = self.flip()
            body = None if ends and self.flip() else self.random.choice([Value(1), self.body()])
            self.send(peer, Part(self.random.choice(open_here).id, body, ends))

    def request(self) -> HubMessage:
        """Return a request that gets a result or a failure."""
        random, new = self.random, self.new_id()
        name, topic_ = random.choice(NAMES), topic(random.choice(TOPICS))
        kind, share = random.choice(["unary", "unary", "server", "both"]), random.choice(["", "random", "first"])
        call = Call(new, name, self.body(), "" if self.flip() else name, self.new_attachments())
        timeout, more, stream, progress = random.choice([None, None, 1.0, 9.0]), self.flip(), self.flip(), self.flip()
        messages: list[HubMessage] = [
            msgspec.structs.replace(call, timeout=timeout, more=more, stream=stream, progress=progress),
            Call(new, name, self.body(), stream=self.flip()),
            Call(new, random.choice([*self.hub._callbacks._callbacks, "x"]), self.body(), callback=True),
            Call(new, "hub.callback", Value(random.choice(["x", "y"]))),
            Call(new, "hub.push", Value([random.choice("qrs"), self.body().json().decode()])),
            Call(new, "hub.pull", Value([random.choice("qrs"), "w"])),
            Call(new, "hub.get", Value(["v", random.choice(["p1", "p2"])])),
            Register(new, name, kind=kind, share=share, route=self.flip()),
            Register(new, "r", route=True),
            Unregister(new, name, route=self.flip()),
            Subscribe(new, pattern(random.choice(PATTERNS)), f"s{random.randrange(8)}", self.flip()),
            Unsubscribe(new, f"s{random.randrange(8)}"),
            Publish(new, topic_, self.body(), self.new_attachments(), self.flip(), self.flip()),
            CloseTopic(new, topic_),
            SetVariable(new, random.choice(["v", "w", "token"]), self.body(), self.new_attachments()),
            UnsetVariable(new, "v"),
            Discover(new, random.choice(["", "hub", "a", "r.", "r.x", "a.b", "r-s-", "r:x", "*"])),
        ]
        return random.choice(messages)

    def answer(self, peer: str) -> None:
        """Answer a call, a part of one, or one that was answered before."""
        if not self.served[peer]:
            return
        message = self.random.choice(self.served[peer][-8:])
        op, body = message.id, self.body()  # type: ignore[attr-defined]
        if isinstance(message, Discover):
            result: list[HubMessage] = [
                Description(op, ("x", "s.y", "bad\n"), ("s",)),
                Description(op, doc="d"),
                Result(op),
            ]
        else:
            result = [
                Result(op, body, self.new_attachments()),
                Result(op, body),
                Result(op, body, self.new_attachments(), stream=True, last=False),
                Result(op, body, stream=True, last=False),
                Result(op, None, stream=True),
                Failure(op, Reason.RAISED),
                Progress(op, body),
            ]
        self.send(peer, self.random.choice(result))

    def send_anything(self, peer: str) -> None:
        random = self.random
        request = f"n{random.randrange(max(1, self.last_number - 30), self.last_number + 2)}"
        messages: list[HubMessage] = [
            Part(request, self.body(), self.flip()),
            Part(request, None, last=True),
            Cancel(request),
            Publish(None, topic(random.choice(TOPICS)), self.body(), self.new_attachments(), self.flip(), self.flip()),
            Unsubscribe(None, f"s{random.randrange(8)}"),
            SetVariable(None, "v", self.body()),
            Result(str(random.randrange(50))),
            TopicClosed("s1"),
        ]
        self.send(peer, random.choice(messages))

    def send_attachment(self, peer: str) -> None:
        if self.announced[peer]:
            name = self.announced[peer].pop(0)
            self.send(peer, Attachment(name, b"data", None if self.flip() else "failed"))

    def step(self) -> None:
        random = self.random
        if not self.peers or random.random() < 0.05:
            self.join()
            return
        peer = random.choice(self.peers)
        match random.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                self.send_request(peer, self.request())
            case 7 | 8 | 9 | 10 | 11:
                self.answer(peer)
            case 12 | 13:
                self.send_attachment(peer)
            case 14:
                self.send_anything(peer)
            case 15:
                self.send_part(peer)
            case 16 | 17:
                self.now += random.choice([0.0, 0.1, 1.0])
                deadline = self.hub.deadline()
                if deadline is not None and deadline <= self.now:
                    self.perform(self.hub.expire(self.now))
            case 18 if random.random() < 0.3:
                self.leave(peer)
            case 19 if random.random() < 0.1:
                self.perform(self.hub.reload(random.choice([SETTINGS, OTHERS])))
            case _:
                self.perform(self.hub.unsubscribe_slow_consumer(peer, f"s{random.randrange(8)}"))


@pytest.mark.parametrize("seed", range(60))
def test_random_walk_keeps_invariants(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        assert walk.hub.open_calls() >= 0
        deadline = walk.hub.deadline()
        assert deadline is None or walk.hub.alarm.at <= deadline
    # Deadlines end all pending calls, and jobs return to their queues.
    while (deadline := walk.hub.deadline()) is not None:
        walk.now = max(walk.now, deadline)
        walk.perform(walk.hub.expire(walk.now))
    assert walk.hub.open_calls() == 0
    assert walk.pending == Counter()
    # Announced attachments come or fail, so no receiver waits forever.
    for peer in list(walk.peers):
        while peer in walk.peers and walk.announced[peer]:
            walk.send_attachment(peer)
    assert {peer: names for peer, names in walk.expected.items() if names - {name for _, name in walk.lost}} == {}
    for peer in list(walk.peers):
        walk.leave(peer)
    assert_empty(walk.hub)


@pytest.mark.parametrize("seed", range(60, 90))
def test_random_walk_with_abrupt_end_keeps_invariants(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    while walk.peers:
        walk.leave(walk.random.choice(walk.peers))
    assert walk.pending == Counter()
    assert_empty(walk.hub)


def assert_empty(hub: Hub) -> None:
    """Assert that only lasting state is left: retained values, jobs, and former names."""
    stats = hub.stats()
    remaining = {name: stats[name] for name in ("sessions", "offers", "subscriptions", "callbacks", "open_calls")}
    assert set(remaining.values()) == {0}
    while (deadline := hub._work_queues.deadline()) is not None:  # retry delays of failed jobs
        hub.expire(deadline)
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
    assert count_objects(hub) == count_objects(Hub(Random(1), LIMITS, SETTINGS))
