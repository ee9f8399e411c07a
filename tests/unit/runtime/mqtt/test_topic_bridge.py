"""The topic bridge: messages cross between broker and hub, and echoes are not accepted again."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import TooLarge
from fiveways.model.messages import Event
from fiveways.model.topics import Topic
from fiveways.runtime.mqtt.echo_tracker import ECHO_TIMEOUT
from fiveways.runtime.mqtt.topic_bridge import BadFilters, TopicBridge
from fiveways.wire.payload import Binary, Payload, Text, Value

MOST = 1000


def event(topic: str, value: object, publication: int = 300) -> Event:
    return Event("", tuple(topic.split("/")), Value(value), (), publication)


class Hub:
    """The retained values of a hub."""

    def __init__(self) -> None:
        self.kept: dict[Topic, tuple[Payload, int]] = {}

    def retained(self, topic: Topic) -> tuple[Payload, int] | None:
        return self.kept.get(topic)


def bridged(
    filters: dict[str, str],
    retained_values: dict[Topic, tuple[Payload, int]] | None = None,
    last: int = 0,
    clock: Callable[[], float] | None = None,
) -> TopicBridge:
    bridge, hub = TopicBridge(filters, MOST), Hub()
    hub.kept.update(retained_values or {})
    bridge.reset(hub.retained, last, clock or (lambda: 0.0))
    return bridge


def received(bridge: TopicBridge, published: Event) -> tuple[str, bytes, bool] | None:
    given = bridge.to_broker(published)
    if given is not None:
        bridge.note_published(*given[:2])
    return given


def test_lost_echo_does_not_hide_a_later_message_of_a_device() -> None:
    now = 0.0
    bridge = bridged({"lamp/#": "both"}, clock=lambda: now)
    received(bridge, event("lamp/set", 1))
    now = ECHO_TIMEOUT
    assert bridge.to_hub("lamp/set", b"1", retained=False) is None
    received(bridge, event("lamp/set", 1))
    now += ECHO_TIMEOUT + 1.0
    assert bridge.to_hub("lamp/set", b"1", retained=False) is not None


def test_message_becomes_a_publication_that_is_not_echoed() -> None:
    bridge = bridged({"sensors/#": "in"})
    word = bridge.to_hub("sensors/roof", b"21.5", retained=True)
    assert word is not None
    assert (word.topic, word.body.value(), word.retain, word.exclude_me) == (("sensors", "roof"), 21.5, True, True)
    assert bridge.to_hub("others/roof", b"21.5", retained=False) is None


@pytest.mark.parametrize(
    ("payload", "body"),
    [(b"plain text", Text("plain text")), (b'{"a": 1}', Text('{"a": 1}')), (b"\xff\x00", Binary(b"\xff\x00"))],
)
def test_payloads_are_converted(payload: bytes, body: object) -> None:
    word = bridged({"#": "both"}).to_hub("a", payload, retained=False)
    assert word is not None
    assert (word.body, word.retain) == (body, False)


@given(
    st.one_of(
        st.none(), st.text(max_size=50), st.integers(), st.lists(st.text(max_size=9), max_size=3), st.just(b"\xff")
    )
)
def test_value_survives_both_conversions(value: object) -> None:
    given = bridged({"#": "out"}).to_broker(event("a", value))
    assert given is not None
    word = bridged({"#": "in"}).to_hub("a", given[1], retained=False)
    assert word is not None
    assert word.body.value() == value


def test_echo_of_own_publication_is_ignored_once() -> None:
    bridge = bridged({"a/+": "both"})
    for _ in range(2):
        assert received(bridge, event("a/b", 1)) == ("a/b", b"1", False)
    publications = [bridge.to_hub("a/b", b"1", retained=False) for _ in range(3)]
    assert [word is None for word in publications] == [True, True, False]


def test_new_connection_expects_no_old_echoes() -> None:
    bridge = bridged({"a/+": "both"})
    received(bridge, event("a/b", 1))
    bridge.reset(Hub().retained, 0, lambda: 0.0)
    assert bridge.to_hub("a/b", b"1", retained=False) is not None


def test_number_of_awaited_echoes_is_bounded() -> None:
    bridge = bridged({"#": "both"})
    for number in range(70_000):
        received(bridge, event("a", number))
    assert len(bridge._echoes) == 0xFFFF


def test_event_above_max_payload_is_not_published() -> None:
    bridge = bridged({"#": "both"})
    assert bridge.to_broker(event("a", b"x" * MOST)) is not None
    with pytest.raises(TooLarge, match=r"mqtt\.max_payload"):
        bridge.to_broker(event("a", b"x" * (MOST + 1)))


A: Topic = ("a",)


def test_retained_message_is_published_only_if_it_is_new() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(1), 300)}, last=400)
    assert bridge.to_hub("a", b"1", retained=True) is None
    word = bridge.to_hub("a", b"2", retained=True)
    assert word is not None
    assert word.retain


def test_value_set_without_a_connection_stays() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(2), 401)}, last=400)
    assert bridge.to_hub("a", b"1", retained=True) is None
    assert bridge.to_broker(event("a", 2, 401)) == ("a", b"2", True)


def test_value_that_the_broker_retains_is_not_published_again() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(1), 300)}, last=400)
    bridge.to_hub("a", b"1", retained=True)
    assert bridge.to_broker(event("a", 1, 300)) is None
    assert bridge.to_broker(event("b", 1, 301)) == ("b", b"1", False)


def test_message_after_a_retained_value_replaces_it() -> None:
    word = bridged({"#": "both"}, {A: (Value(1), 300)}).to_hub("a", b"2", retained=False)
    assert word is not None
    assert word.retain


def test_retained_values_are_removed_on_both_sides() -> None:
    assert bridged({"#": "both"}).to_broker(event("a", None)) == ("a", b"", True)
    word = bridged({"#": "in"}).to_hub("a", b"", retained=False)
    assert word is not None
    assert (word.retain, word.body.value()) == (True, None)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a/#", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "+/b", True),
        ("a/+/c", "a/b/+", True),
        ("#", "$x", False),
        ("$x/#", "$x/y", True),
        ("a/+", "a/b/c", False),
        ("a/#", "b/#", False),
        ("a/+/c", "a/b/d", False),
    ],
)
def test_overlapping_filters_are_refused(one: str, other: str, meet: bool) -> None:
    for pair in ((one, other), (other, one)):
        if meet:
            with pytest.raises(BadFilters, match="overlap"):
                TopicBridge(dict.fromkeys(pair, "both"), MOST)
        else:
            TopicBridge(dict.fromkeys(pair, "both"), MOST)


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+", "a/b#"])
def test_invalid_filter_is_refused(bad: str) -> None:
    with pytest.raises(BadFilters, match=r"mqtt\.topics"):
        TopicBridge({bad: "both"}, MOST)
