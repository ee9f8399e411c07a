"""What crosses between the topics of a broker and those of the hub, and what comes back is not taken twice."""

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
    """What a hub keeps."""

    def __init__(self) -> None:
        self.kept: dict[Topic, tuple[Payload, int]] = {}

    def retained(self, topic: Topic) -> tuple[Payload, int] | None:
        return self.kept.get(topic)


def bridged(
    filters: dict[str, str],
    kept: dict[Topic, tuple[Payload, int]] | None = None,
    last: int = 0,
    clock: Callable[[], float] | None = None,
) -> TopicBridge:
    bridge, hub = TopicBridge(filters, MOST), Hub()
    hub.kept.update(kept or {})
    bridge.reset(hub.retained, last, clock or (lambda: 0.0))
    return bridge


def told(bridge: TopicBridge, said: Event) -> tuple[str, bytes, bool] | None:
    given = bridge.to_broker(said)
    if given is not None:
        bridge.note_published(*given[:2])
    return given


def test_what_never_came_back_does_not_hide_what_a_device_says_later() -> None:
    now = 0.0
    bridge = bridged({"lamp/#": "both"}, clock=lambda: now)
    told(bridge, event("lamp/set", 1))
    now = ECHO_TIMEOUT
    assert bridge.to_hub("lamp/set", b"1", retained=False) is None
    told(bridge, event("lamp/set", 1))
    now += ECHO_TIMEOUT + 1.0
    assert bridge.to_hub("lamp/set", b"1", retained=False) is not None


def test_a_message_is_a_publication_that_we_do_not_hear_again() -> None:
    bridge = bridged({"sensors/#": "in"})
    word = bridge.to_hub("sensors/roof", b"21.5", retained=True)
    assert word is not None
    assert (word.topic, word.body.value(), word.retain, word.exclude_me) == (("sensors", "roof"), 21.5, True, True)
    assert bridge.to_hub("others/roof", b"21.5", retained=False) is None


@pytest.mark.parametrize(
    ("payload", "body"),
    [(b"plain text", Text("plain text")), (b'{"a": 1}', Text('{"a": 1}')), (b"\xff\x00", Binary(b"\xff\x00"))],
)
def test_payloads(payload: bytes, body: object) -> None:
    word = bridged({"#": "both"}).to_hub("a", payload, retained=False)
    assert word is not None
    assert (word.body, word.retain) == (body, False)


@given(
    st.one_of(
        st.none(), st.text(max_size=50), st.integers(), st.lists(st.text(max_size=9), max_size=3), st.just(b"\xff")
    )
)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    given = bridged({"#": "out"}).to_broker(event("a", value))
    assert given is not None
    word = bridged({"#": "in"}).to_hub("a", given[1], retained=False)
    assert word is not None
    assert word.body.value() == value


def test_our_own_publication_comes_back_once_and_is_not_heard() -> None:
    bridge = bridged({"a/+": "both"})
    for _ in range(2):
        assert told(bridge, event("a/b", 1)) == ("a/b", b"1", False)
    found = [bridge.to_hub("a/b", b"1", retained=False) for _ in range(3)]
    assert [word is None for word in found] == [True, True, False]


def test_what_was_said_on_another_link_does_not_come_back() -> None:
    bridge = bridged({"a/+": "both"})
    told(bridge, event("a/b", 1))
    bridge.reset(Hub().retained, 0, lambda: 0.0)
    assert bridge.to_hub("a/b", b"1", retained=False) is not None


def test_what_is_expected_back_is_bounded() -> None:
    bridge = bridged({"#": "both"})
    for number in range(70_000):
        told(bridge, event("a", number))
    assert len(bridge._echoes) == 0xFFFF


def test_what_is_too_large_for_the_broker_is_not_said() -> None:
    bridge = bridged({"#": "both"})
    assert bridge.to_broker(event("a", b"x" * MOST)) is not None
    with pytest.raises(TooLarge, match=r"mqtt\.max_payload"):
        bridge.to_broker(event("a", b"x" * (MOST + 1)))


A: Topic = ("a",)


def test_a_retained_value_of_the_broker_is_news_only_if_it_is() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(1), 300)}, last=400)
    assert bridge.to_hub("a", b"1", retained=True) is None
    word = bridge.to_hub("a", b"2", retained=True)
    assert word is not None
    assert word.retain


def test_a_value_that_was_set_while_there_was_no_link_stays() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(2), 401)}, last=400)
    assert bridge.to_hub("a", b"1", retained=True) is None
    assert bridge.to_broker(event("a", 2, 401)) == ("a", b"2", True)


def test_what_the_broker_retains_is_not_told_to_it_again() -> None:
    bridge = bridged({"#": "both"}, {A: (Value(1), 300)}, last=400)
    bridge.to_hub("a", b"1", retained=True)
    assert bridge.to_broker(event("a", 1, 300)) is None
    assert bridge.to_broker(event("b", 1, 301)) == ("b", b"1", False)


def test_what_follows_on_a_retained_value_is_the_next_one() -> None:
    word = bridged({"#": "both"}, {A: (Value(1), 300)}).to_hub("a", b"2", retained=False)
    assert word is not None
    assert word.retain


def test_retained_values_are_taken_back_on_both_sides() -> None:
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
def test_filters_that_share_a_topic_are_refused(one: str, other: str, meet: bool) -> None:
    for pair in ((one, other), (other, one)):
        if meet:
            with pytest.raises(BadFilters, match="overlap"):
                TopicBridge(dict.fromkeys(pair, "both"), MOST)
        else:
            TopicBridge(dict.fromkeys(pair, "both"), MOST)


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+", "a/b#"])
def test_what_is_no_filter(bad: str) -> None:
    with pytest.raises(BadFilters, match=r"mqtt\.topics"):
        TopicBridge({bad: "both"}, MOST)
