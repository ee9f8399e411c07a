"""`shared_frame`: one packet for all subscribers whose conversations return a frame."""

from functools import cache
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model import messages as hub
from fiveways.model import topics
from fiveways.model.bidi_controls import find_bidi_control
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Cbor, Json, Payload, Text, Value
from tests.conformance.protocols.conversation_pair import Pair

PATTERN = topics.parse_pattern("sensors.*", topics.UMQ)
LIMITS = {"max_text": 200, "max_pending": 8}
"""Small enough for an event that exceeds them."""
NAMES = ["0", "1", "2", "3", "256", "257", "258", "never"]

with_topics = pytest.mark.parametrize(
    "spec", [spec for spec in registry.all_specs() if hub.Event in spec.sendable_messages], ids=attrgetter("name")
)


class Subscriber:
    """A hub's conversation with a peer that sometimes subscribes."""

    def __init__(self, spec: ProtocolSpec) -> None:
        self.pair = Pair(spec, LIMITS)
        self.conversation: Conversation = self.pair.ends[Role.SERVER]
        self.requested: list[hub.Subscribe] = []
        self.granted: list[str] = []
        self.deferred: list[str] = []
        self.count = 0

    def do(self, step: str) -> None:
        self.count += 1
        try:
            getattr(self, step)()
            self.pair.deliver()
        except LocalProtocolError:
            pass  # not allowed in this state

    def subscribe(self) -> None:
        received = self.pair.send(Role.CLIENT, hub.Subscribe(f"h{self.count}", PATTERN, f"s{self.count}"))
        self.requested += [message for message in received if isinstance(message, hub.Subscribe)]

    def grant(self) -> None:
        if self.requested:
            message = self.requested.pop(0)
            self.conversation.send(hub.Result(message.id), 0.0)
            self.granted.append(message.subscription)

    def deny(self) -> None:
        if self.requested:
            self.conversation.send(hub.Failure(self.requested.pop(0).id, Reason.DENIED), 0.0)

    def close_topic(self) -> None:
        if self.granted:
            self.conversation.send(hub.TopicClosed(self.granted.pop()), 0.0)

    def event(self) -> None:
        if self.granted:
            self.conversation.send(hub.Event(self.granted[-1], ("sensors", "a"), Value(self.count)), 0.0)

    def event_with_attachment(self) -> None:
        if self.granted:
            name = f"a{self.count}"
            self.conversation.send(hub.Event(self.granted[-1], ("sensors", "a"), Value(1), (name,)), 0.0)
            self.deferred.append(name)

    def event_that_will_not_fit(self) -> None:
        """Send an event that exceeds the limit with its attachment, or with the error that replaces it."""
        if self.granted:
            name = f"a{self.count}"
            self.conversation.send(hub.Event(self.granted[-1], ("sensors", "a"), Value("x" * 150), (name,)), 0.0)
            self.conversation.send(hub.Attachment(name, error="e" * 60), 0.0)

    def attachment(self) -> None:
        if self.deferred:
            self.conversation.send(hub.Attachment(self.deferred.pop(0), b"late"), 0.0)

    def goodbye(self) -> None:
        self.conversation.send(hub.Goodbye(), 0.0)


SEGMENTS = (
    st.lists(st.text(max_size=5), min_size=1, max_size=3)
    .filter(any)
    .filter(lambda texts: not find_bidi_control("".join(texts)))
)
STEPS = [name for name, value in vars(Subscriber).items() if callable(value) and name not in {"__init__", "do"}]


@cache  # creating the strategy for each example would dominate the run time
def histories() -> st.SearchStrategy[list[str]]:
    """Return histories of a subscriber; most begin with a granted subscription."""
    begins = st.sampled_from([[], ["subscribe"], ["subscribe", "grant"], ["subscribe", "subscribe", "grant"]])
    return st.tuples(begins, st.lists(st.sampled_from(STEPS), max_size=8)).map(lambda both: both[0] + both[1])


@cache
def bodies() -> st.SearchStrategy[Payload]:
    values = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=20), st.binary(max_size=9)
    )
    return st.one_of(
        values.map(Value),
        st.text(max_size=20).map(Text),
        st.sampled_from([b"[1, 2]", b'"1"', b'{"a":null}', b"1.50"]).map(Json),
        st.sampled_from([b"\x01", b"\xa1\x61a\xf5", b"\x42ab", b"\xf9\x7e\x00"]).map(Cbor),
        st.just(Value("x" * 200)),
    )


def sent_packets(conversation: Conversation, event: hub.Event) -> list[Packet] | None:
    """Return the packets for a peer; None if the event cannot be sent."""
    conversation.take_packets()
    try:
        conversation.send(event, 0.0)
    except LocalProtocolError:
        assert conversation.take_packets() == []
        return None
    return conversation.take_packets()


def common(conversation: Conversation, event: hub.Event) -> Packet | None:
    """Return the shared frame; None if there is none or the event cannot be sent."""
    conversation.take_packets()
    try:
        return conversation.shared_frame(event)
    except LocalProtocolError:
        assert sent_packets(conversation, event) is None
        return None
    finally:
        assert conversation.take_packets() == []


def has_shared_frame(subscriber: Subscriber, name: str) -> bool:
    return common(subscriber.conversation, hub.Event(name, ("sensors", "a"), Value(1))) is not None


@with_topics
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_shared_frame_equals_sent_bytes_after_any_history(spec: ProtocolSpec, data: st.DataObject) -> None:
    subscribers = [Subscriber(spec) for _ in range(2)]
    for subscriber in subscribers:
        for step in data.draw(histories()):
            subscriber.do(step)
    segments = data.draw(SEGMENTS)
    publication = data.draw(st.integers(0, 2**64 - 1))
    body, envelope = data.draw(bodies()), data.draw(st.booleans())
    for name in NAMES:
        event = hub.Event(name, tuple(segments), body, publication=publication, envelope=envelope)
        shared = [common(item.conversation, event) for item in subscribers]
        if None in shared:
            continue
        assert shared[0] == shared[1]
        assert [sent_packets(item.conversation, event) for item in subscribers] == [[packet] for packet in shared]
        # No other state has changed: the next event can be shared too.
        assert [common(item.conversation, event) for item in subscribers] == shared


@with_topics
def test_active_subscription_has_a_shared_frame_except_in_nq(spec: ProtocolSpec) -> None:
    subscribers = [Subscriber(spec) for _ in range(2)]
    for subscriber in subscribers:
        assert not has_shared_frame(subscriber, "1")
        assert not has_shared_frame(subscriber, "256")
        for step in ("subscribe", "grant"):
            subscriber.do(step)
    (name,) = {name for subscriber in subscribers for name in subscriber.granted} if spec.name != "nq" else {"1"}
    assert [has_shared_frame(item, name) for item in subscribers] == [spec.name != "nq"] * 2
    for subscriber in subscribers:
        subscriber.do("goodbye")
    assert not any(has_shared_frame(item, name) for item in subscribers)


@pytest.mark.parametrize("name", ["lrpm-json", "lrpm-cbor"])
def test_subscriber_with_missed_events_has_no_shared_frame(name: str) -> None:
    spec = registry.load(name)
    plain, missing = Subscriber(spec), Subscriber(spec)
    for step in ("subscribe", "grant"):
        plain.do(step)
        missing.do(step)
    missing.do("event_that_will_not_fit")
    (subscription,) = missing.granted
    assert has_shared_frame(plain, subscription)
    assert not has_shared_frame(missing, subscription)
    event = hub.Event(subscription, ("sensors", "a"), Value(1))
    assert sent_packets(plain.conversation, event) != sent_packets(missing.conversation, event)
    assert has_shared_frame(missing, subscription)
    assert sent_packets(plain.conversation, event) == sent_packets(missing.conversation, event)


@pytest.mark.parametrize("name", ["lrpm-json", "lrpm-cbor"])
def test_event_behind_a_deferred_one_has_no_shared_frame(name: str) -> None:
    waiting = Subscriber(registry.load(name))
    for step in ("subscribe", "grant", "subscribe", "grant"):
        waiting.do(step)
    other, subscription = waiting.granted
    waiting.do("event_with_attachment")
    assert not has_shared_frame(waiting, subscription)
    assert has_shared_frame(waiting, other)
    assert sent_packets(waiting.conversation, hub.Event(subscription, ("sensors", "a"), Value(1))) == []
    waiting.do("attachment")
    assert has_shared_frame(waiting, subscription)


@pytest.mark.parametrize("name", ["umq36", "umq"])
def test_update_is_shared_while_attachments_are_pending(name: str) -> None:
    waiting, plain = Subscriber(registry.load(name)), Subscriber(registry.load(name))
    for step in ("subscribe", "grant"):
        waiting.do(step)
        plain.do(step)
    waiting.do("event_with_attachment")
    (subscription,) = waiting.granted
    assert has_shared_frame(waiting, subscription)
    event = hub.Event(subscription, ("sensors", "a"), Value(1))
    assert sent_packets(waiting.conversation, event) == sent_packets(plain.conversation, event)


def test_protocol_without_events_has_no_shared_frame() -> None:
    conversation = Pair(registry.load("mqtt-rpc")).ends[Role.SERVER]
    assert all(conversation.shared_frame(hub.Event(name, ("a",))) is None for name in NAMES)
