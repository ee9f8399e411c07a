"""Two NQ conversations over a connection that drops, repeats, delays and reorders packets.

Each request must end once with the right result. Time is virtual and the random source is seeded, so a run is fast and
repeatable. Both ends send and answer requests; sometimes one end is restored from its export or reconnects.
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from fiveways.errors import Reason
from fiveways.model import messages as hub
from fiveways.model.topics import UMQ, parse_pattern
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Json, Value

CALLS = 150
END_OF_TIME = 6 * 3600.0


class World:
    """The clock and the scheduled events."""

    def __init__(self) -> None:
        self.now = 0.0
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def schedule(self, wait: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._coming, (self.now + wait, self._count, happen))

    def next_at(self) -> float:
        return self._coming[0][0] if self._coming else END_OF_TIME

    def happen(self) -> None:
        self.now, _, happen = heapq.heappop(self._coming)
        happen()


class Link:
    """One direction of the connection. `loss` is the probability of each kind of disturbance."""

    def __init__(self, world: World, random: Random, loss: float) -> None:
        self._world = world
        self._random = random
        self._loss = loss
        self._epoch = 0
        self.elements: Counter[str] = Counter()

    def carry(self, packet: Packet, deliver: Callable[[Packet], None]) -> None:
        parsed = json.loads(packet.payload)
        self.elements.update(json.dumps(message) for message in (parsed if isinstance(parsed, list) else [parsed]))
        chance, epoch = self._random.random, self._epoch

        def arrive() -> None:
            if epoch == self._epoch:
                deliver(packet)

        if chance() < self._loss:
            return
        for _ in range(2 if chance() < self._loss else 1):
            late = self._random.uniform(0, 20) if chance() < self._loss else 0.0
            self._world.schedule(0.05 + late, arrive)

    def cut(self) -> None:
        """Drop all packets in flight."""
        self._epoch += 1


class OutgoingCall:
    """A call and its outcome."""

    def __init__(self, method: str, argument: object) -> None:
        self.method = method
        self.argument = argument
        self.accepted = 0
        self.elements: list[object] = []
        self.ends: list[object] = []
        self.cancelled = False


class End:
    """A conversation with a hub that serves a few methods, and a user that calls methods of the other end."""

    def __init__(self, world: World, random: Random, name: str, options: dict[str, object]) -> None:
        self.world = world
        self.random = random
        role = Role.SERVER if name == "server" else Role.CLIENT
        self.setup = ConversationSetup(name, role, Random(random.random()), options=options)
        self.conversation = NqConversation(self.setup)
        self.link: Link
        self.other: End
        self.calls: dict[str, OutgoingCall] = {}
        self.runs: Counter[str] = Counter()
        self.open: dict[str, list[object]] = {}
        self.strays = 0
        self.slowest_acceptance = 3.0
        self.topics: list[str] = []
        self.ticks: list[object] = []

    # Transport.

    def flush(self) -> None:
        for packet in self.conversation.take_packets():
            self.link.carry(packet, self.other.receive)

    def receive(self, packet: Packet) -> None:
        self.handle(self.conversation.receive(packet, self.world.now))
        self.flush()

    def wake(self) -> None:
        self.handle(self.conversation.wake(self.world.now))
        self.flush()

    def send(self, message: hub.HubMessage) -> None:
        self.conversation.send(message, self.world.now)
        self.flush()

    def restart(self) -> None:
        saved = json.loads(json.dumps(self.conversation.export(unaccepted=True)))
        self.conversation = NqConversation.restore(self.setup, saved, self.world.now)
        self.flush()

    def relink(self) -> None:
        self.link.cut()
        self.other.link.cut()
        self.conversation.reconnect(self.world.now)
        self.other.conversation.reconnect(self.world.now)
        self.flush()
        self.other.flush()

    # The hub.

    def handle(self, messages: object) -> None:
        for message in messages:  # type: ignore[attr-defined]
            match message:
                case hub.Call():
                    self.runs[message.id] += 1
                    self.open[message.id] = [message.body.value()]
                    self.serve(message)
                case hub.Part():
                    self.handle_part(message)
                case hub.Cancel():
                    self.end(message.id, hub.Failure(message.id, Reason.CANCELLED))
                case hub.Accepted():
                    self.calls[message.id].accepted += 1
                case hub.Result():
                    request = self.calls[message.id]
                    if message.body is not None:
                        request.elements.append(message.body.value())
                    if message.last:
                        request.ends.append("result")
                case hub.Failure():
                    self.calls[message.id].ends.append(message.reason)
                case hub.Stray():
                    self.strays += 1
                case hub.Subscribe():
                    self.topics.append(message.subscription)
                    self.send(hub.Result(message.id))
                case hub.Event():
                    assert message.topic == ("ticks", "all of them")
                    self.ticks.append(message.body.value())
                case hub.Progress() | hub.Acknowledged():
                    pass
                case _:
                    raise AssertionError(message)

    def serve(self, call: hub.Call) -> None:
        later, uniform = self.world.schedule, self.random.uniform
        later(
            uniform(0, self.slowest_acceptance),
            lambda: self.send(hub.Accepted(call.id)) if call.id in self.open else None,
        )
        if call.method == "echo":
            later(uniform(3, 30), lambda: self.end(call.id, hub.Result(call.id, call.body)))
        elif call.method == "fail":
            later(uniform(3, 30), lambda: self.end(call.id, hub.Failure(call.id, Reason.RAISED, "{0} no", name="oops")))
        elif call.method == "report":
            for wait in (4.0, 8.0, 12.0):
                later(wait, lambda wait=wait: self.note(call.id, wait))  # type: ignore[misc]
            later(13, lambda: self.end(call.id, hub.Result(call.id, call.body)))
        elif call.method == "count":
            self.count(call.id, 1, call.body.value())

    def note(self, call_id: str, wait: float) -> None:
        if call_id in self.open:
            self.send(hub.Progress(call_id, text="{1} s so far", args=(str(wait),)))

    def count(self, call_id: str, number: int, end: object) -> None:
        if call_id not in self.open:
            return
        if number > end:  # type: ignore[operator]
            self.end(call_id, hub.Result(call_id, None, stream=True, last=True))
            return
        wait = self.random.choice([0.0, 0.0, 0.0, 5.0])

        def go_on() -> None:
            if call_id not in self.open:
                return
            if number == end and number % 2:
                self.end(call_id, hub.Result(call_id, Value(number), stream=True, last=True))
            else:
                self.send(hub.Result(call_id, Value(number), stream=True, last=False))
                self.count(call_id, number + 1, end)

        self.world.schedule(3.5 + wait if number == 1 else wait, go_on)

    def handle_part(self, part: hub.Part) -> None:
        value = self.open[part.id]
        if part.body is not None:
            value.append(part.body.value())
        if part.last:
            self.world.schedule(4, lambda: self.end(part.id, hub.Result(part.id, Value(value))))

    def end(self, call_id: str, message: hub.HubMessage) -> None:
        if self.open.pop(call_id, None) is not None:
            self.send(message)

    def tick(self, number: int) -> None:
        for topic in self.topics:
            self.send(hub.Event(topic, ("ticks", "all of them"), Value(number)))

    # The user.

    def subscribe(self) -> None:
        self.calls["subscribe"] = OutgoingCall("subscribe", None)
        self.send(hub.Subscribe("subscribe", parse_pattern("ticks.*", UMQ), "ticks"))

    def ask(self, number: int) -> None:
        call_id = f"{self.setup.peer}-{number}"
        method = self.random.choice(["echo", "echo", "fail", "report", "count", "sum"])
        value: object = self.random.randrange(150) if method == "count" else f"{call_id} ďábel"
        request = self.calls[call_id] = OutgoingCall(method, value)
        if method == "sum":
            request.argument = [f"{call_id}.{part}" for part in range(self.random.randrange(1, 100))]
            self.send(hub.Call(call_id, method, Value(request.argument[0]), more=True))
            for part in request.argument[1:]:
                self.send(hub.Part(call_id, Value(part)))
            self.send(hub.Part(call_id, last=True))
        else:
            self.send(hub.Call(call_id, method, Json(json.dumps(value).encode())))
        if self.random.random() < 0.1:
            self.world.schedule(self.random.uniform(0, 40), lambda: self.cancel(call_id))

    def cancel(self, call_id: str) -> None:
        if not self.calls[call_id].ends:
            self.calls[call_id].cancelled = True
            self.send(hub.Cancel(call_id))

    def is_done(self) -> bool:
        return all(request.ends or request.cancelled for request in self.calls.values())


class PollingEnd(End):
    """An end that can only send in response to received packets, as over HTTP."""

    def flush(self) -> None:
        pass

    def receive(self, packet: Packet) -> None:
        super().receive(packet)
        super().flush()


def poll_peer(client: End, until: float) -> None:
    """Poll every two seconds."""
    client.link.carry(Packet(b"[]"), client.other.receive)
    if client.world.now < until:
        client.world.schedule(2, lambda: poll_peer(client, until))


def pair(world: World, seed: int, loss: float, **options: object) -> tuple[End, End]:
    random = Random(seed)
    kind = PollingEnd if options.get("simplex") else End
    client, server = End(world, random, "client", options), kind(world, random, "server", options)
    client.other, server.other = server, client
    client.link, server.link = Link(world, random, loss), Link(world, random, loss)
    return client, server


def run(world: World, ends: tuple[End, End]) -> None:
    """Process events until only the expiry of tombstones is left."""
    while True:
        due = [(end.conversation.deadline(), end) for end in ends]
        at, end = min(((at, end) for at, end in due if at is not None), default=(END_OF_TIME, None), key=lambda x: x[0])
        if world.next_at() <= at and world.next_at() < END_OF_TIME:
            world.happen()
        elif at < END_OF_TIME and end is not None:
            world.now = max(world.now, at)
            end.wake()
        else:
            return


def check(end: End) -> None:
    for request in end.calls.values():
        if request.cancelled:
            assert request.ends == [], "a cancelled call was answered"
            continue
        assert request.accepted <= 1
        if request.method == "fail":
            assert request.ends == [Reason.RAISED]
            continue
        assert request.ends == ["result"], f"{request.method} ended {len(request.ends)} times"
        if request.method == "count":
            assert request.elements == list(range(1, int(str(request.argument)) + 1))
        else:
            assert request.elements == [request.argument]
    assert max(end.runs.values()) == 1, "a request was run twice"
    assert end.open == {}
    assert end.strays == 0


def check_no_state_is_left(end: End, now: float) -> None:
    conversation = end.conversation
    conversation.wake(now + conversation._shared.options.duplicate_window + 1)
    assert conversation.deadline() is None
    assert [
        len(conversation._outgoing),
        len(conversation._outgoing._by_id),
        len(conversation._incoming.requests),
        len(conversation._deferred),
    ] == [0] * 4
    assert [
        len(conversation._incoming.tombstones),
        len(conversation._retransmission),
        conversation._shared.answer_budget.used,
        conversation._shared.reorder_budget.used,
    ] == [0] * 4
    assert conversation._shared.request_budget.used == 0
    assert conversation.take_packets() == []


@pytest.mark.parametrize("seed", range(4))
def test_each_request_ends_once_over_a_lossy_connection(seed: int) -> None:
    world = World()
    ends = pair(world, seed, loss=0.3)
    random = Random(seed)
    for end in ends:
        for number in range(CALLS):
            world.schedule(random.uniform(0, 300), lambda end=end, number=number: end.ask(number))  # type: ignore[misc]
    for _ in range(12):
        world.schedule(random.uniform(0, 600), random.choice(ends).restart)
        world.schedule(random.uniform(0, 600), random.choice(ends).relink)
    client, server = ends
    client.subscribe()
    for number in range(CALLS):
        world.schedule(200 + number, lambda number=number: server.tick(number))  # type: ignore[misc]
    run(world, ends)
    assert all(end.is_done() for end in ends)
    assert sorted(client.ticks) == list(range(CALLS))  # type: ignore[type-var]
    for end in ends:
        check(end)
    for end in ends:
        check_no_state_is_left(end, world.now)


def test_nothing_is_retransmitted_over_a_good_connection() -> None:
    world = World()
    ends = pair(world, 1, loss=0.0, first_poll=600.0, longest_wait=600.0)
    for end in ends:
        end.slowest_acceptance = 0.5
    for number in range(CALLS):
        for end in ends:
            world.schedule(number / 10, lambda end=end, number=number: end.ask(number))  # type: ignore[misc]
    run(world, ends)
    for end in ends:
        check(end)
        check_no_state_is_left(end, world.now)
        assert max(end.link.elements.values()) == 1, end.link.elements.most_common(3)


@pytest.mark.parametrize("seed", range(2))
def test_each_request_ends_once_with_a_polling_end(seed: int) -> None:
    world = World()
    ends = pair(world, seed, loss=0.3, simplex=True)
    random = Random(seed)
    poll_peer(ends[0], 3000)
    for end in ends:
        for number in range(CALLS):
            world.schedule(random.uniform(0, 300), lambda end=end, number=number: end.ask(number))  # type: ignore[misc]
    run(world, ends)
    assert all(end.is_done() for end in ends)
    for end in ends:
        check(end)
        check_no_state_is_left(end, world.now)
