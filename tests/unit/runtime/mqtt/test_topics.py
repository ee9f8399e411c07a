"""What crosses between the topics of a broker and those of the hub, and what comes back is not taken twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.model.messages import Event
from fiveways.runtime.mqtt.topics import BadFilters, Bridge
from fiveways.wire.payload import Binary, Text, Value


def event(topic: str, value: object, publication: int = 300) -> Event:
    return Event("", tuple(topic.split("/")), Value(value), (), publication)


def test_a_message_is_a_publication_that_we_do_not_hear_again() -> None:
    bridge = Bridge({"sensors/#": "in"})
    word = bridge.take("sensors/roof", b"21.5", retained=True, now=0.0)
    assert word is not None
    assert (word.topic, word.body.value(), word.retain, word.exclude_me) == (("sensors", "roof"), 21.5, True, True)
    assert bridge.take("others/roof", b"21.5", retained=False, now=0.0) is None


@pytest.mark.parametrize(
    ("payload", "body"),
    [(b"plain text", Text("plain text")), (b'{"a": 1}', Text('{"a": 1}')), (b"\xff\x00", Binary(b"\xff\x00"))],
)
def test_payloads(payload: bytes, body: object) -> None:
    word = Bridge({"#": "both"}).take("a", payload, retained=False, now=0.0)
    assert word is not None
    assert word.body == body


@given(st.one_of(st.none(), st.text(), st.integers(), st.lists(st.text(), max_size=3), st.just(b"\xff")))
def test_a_value_comes_back_as_it_was(value: object) -> None:
    bridge = Bridge({"#": "out"})
    _, payload, _ = bridge.give(event("a", value), is_retained=False, now=0.0)
    word = Bridge({"#": "in"}).take("a", payload, retained=False, now=0.0)
    assert word is not None
    assert word.body.value() == value


def test_our_own_publication_comes_back_once_and_is_not_heard() -> None:
    bridge = Bridge({"a/+": "both"})
    for _ in range(2):
        assert bridge.give(event("a/b", 1), is_retained=False, now=0.0) == ("a/b", b"1", False)
    found = [bridge.take("a/b", b"1", retained=False, now=1.0) for _ in range(3)]
    assert [word is None for word in found] == [True, True, False]


def test_what_never_came_back_is_not_expected_for_ever() -> None:
    bridge = Bridge({"a/+": "both"})
    bridge.give(event("a/b", 1), is_retained=False, now=0.0)
    assert bridge.take("a/b", b"1", retained=False, now=1000.0) is not None
    bridge.give(event("a/b", 1), is_retained=False, now=1000.0)
    bridge.begin()
    assert bridge.take("a/b", b"1", retained=False, now=1000.0) is not None


def test_what_is_expected_back_is_bounded() -> None:
    bridge = Bridge({"#": "both"})
    for number in range(20_000):
        bridge.give(event("a", number), is_retained=False, now=0.0)
    assert bridge._waiting == len(bridge._unechoed) == 10_000


def test_retained_values_are_taken_back_at_the_broker_too() -> None:
    bridge = Bridge({"#": "both"})
    assert bridge.give(event("a", None), is_retained=False, now=0.0) == ("a", b"", False)
    assert bridge.give(event("a", 1), is_retained=True, now=0.0) == ("a", b"1", True)
    assert bridge.give(event("a", None), is_retained=False, now=0.0) == ("a", b"", True)
    word = Bridge({"#": "in"}).take("a", b"", retained=False, now=0.0)
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
                Bridge(dict.fromkeys(pair, "both"))
        else:
            Bridge(dict.fromkeys(pair, "both"))


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+", "a/b#"])
def test_what_is_no_filter(bad: str) -> None:
    with pytest.raises(BadFilters, match=r"mqtt\.topics"):
        Bridge({bad: "both"})
