"""Of several hubs on one broker, one answers on a topic, whenever each of them hears what."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.runtime.mqtt.topic_election import CLAIMS_PREFIX, NO_CLAIMS, SILENCE_TIMEOUT, TopicElection

TOPICS = ("/a", "/b", "/c")


class Broker:
    """One order of messages for all; each hub has heard so many of them."""

    def __init__(self, names: str) -> None:
        self.hubs = {name: TopicElection(name) for name in names}
        self.heard = dict.fromkeys(names, 0)
        self.said: list[tuple[str, bytes]] = []

    def want(self, name: str, topics: frozenset[str]) -> None:
        news = self.hubs[name].set_wanted(topics)
        if news is not None:
            self.said.append((f"{CLAIMS_PREFIX}{name}", news))

    def hear(self, name: str, count: int = 1) -> None:
        for place, payload in self.said[self.heard[name] :][:count]:
            self.hubs[name].receive(place, payload)
            self.heard[name] += 1

    def settle(self) -> None:
        for name in self.hubs:
            self.hear(name, len(self.said))


def test_who_claims_first_holds_and_the_other_follows() -> None:
    broker = Broker("zx")
    broker.want("z", frozenset({"/a"}))
    assert broker.hubs["z"].owned == frozenset()
    broker.settle()
    broker.want("x", frozenset({"/a", "/b"}))
    broker.settle()
    assert [sorted(broker.hubs[name].owned) for name in "zx"] == [["/a"], ["/b"]]
    assert broker.hubs["x"].rivals() == {"/a": "z"}
    broker.said.append((f"{CLAIMS_PREFIX}z", b""))
    broker.settle()
    assert broker.hubs["x"].owned == {"/a", "/b"}


def test_what_is_not_wanted_any_more_is_let_go_at_once() -> None:
    broker = Broker("z")
    broker.want("z", frozenset({"/a", "/b"}))
    broker.settle()
    broker.want("z", frozenset({"/b"}))
    assert broker.hubs["z"].owned == {"/b"}
    assert broker.hubs["z"].set_wanted(frozenset({"/b"})) is None


def test_what_no_hub_says_changes_nothing() -> None:
    claims = TopicElection("x")
    claims.set_wanted(frozenset({"/a"}))
    for payload in (
        b"{",
        b"[]",
        b'{"/a": "1"}',
        b'{"/a": -1}',
        b'{"/a": 9007199254740993}',
        b'{"/a": %s}' % (b"9" * 4300),
        b'{"\xff": 1}',
        b"\xff",
        b"[" * 100_000,
        json.dumps({f"/{number}": 1 for number in range(1001)}).encode(),
        json.dumps({"/a" + "x" * (1 << 17): 1}).encode(),
    ):
        assert not claims.receive(f"{CLAIMS_PREFIX}other", payload)
    assert claims.rivals() == {}


def test_so_many_strangers_leave_room_for_us() -> None:
    broker = Broker("z")
    for number in range(1000):
        broker.said.append((f"{CLAIMS_PREFIX}stranger{number}", b'{"/x": 1}'))
    broker.want("z", frozenset({"/a"}))
    broker.settle()
    assert broker.hubs["z"].owned == {"/a"}
    assert len(broker.hubs["z"]._hubs) <= 101


def test_who_comes_anew_is_told_and_what_was_taken_back_is_said_again() -> None:
    claims = TopicElection("x")
    mine = claims.set_wanted(frozenset({"/a"}))
    assert mine is not None
    claims.receive(f"{CLAIMS_PREFIX}x", mine)
    assert claims.set_wanted(frozenset({"/a"})) is None
    for place, payload in (
        (f"{CLAIMS_PREFIX}new", NO_CLAIMS),
        (f"{CLAIMS_PREFIX}x", b""),
        (f"{CLAIMS_PREFIX}x", b'{"/b": 1}'),
    ):
        assert claims.receive(place, payload)
        assert claims.set_wanted(frozenset({"/a"})) == mine
        assert claims.set_wanted(frozenset({"/a"})) is None
    assert claims.receive(f"{CLAIMS_PREFIX}x", mine)
    assert claims.owned == {"/a"}


def claimed(*names: str) -> TopicElection:
    """Claims of a hub x that has heard claims of others, with lower numbers."""
    claims = TopicElection("x")
    mine = claims.set_wanted(frozenset({"/a"}))
    assert mine is not None
    claims.receive(f"{CLAIMS_PREFIX}x", mine, 0.0)
    for name in names:
        claims.receive(f"{CLAIMS_PREFIX}{name}", b'{"/a":0}', 0.0)
    return claims


def test_hub_that_answers_no_question_is_forgotten() -> None:
    claims = claimed("dead", "alive")
    assert claims.rivals() == {"/a": "alive"}
    claims.receive(claims.query_topic, NO_CLAIMS, 10.0)
    claims.receive(f"{CLAIMS_PREFIX}alive", b'{"/a":0}', 11.0)
    claims.receive(claims.query_topic, NO_CLAIMS, 25.0)
    assert claims.drop_silent(10.0 + SILENCE_TIMEOUT - 1) == []
    assert claims.drop_silent(10.0 + SILENCE_TIMEOUT) == ["dead"]
    assert claims.others == ["alive"]
    assert claims.owned == frozenset()
    claims.receive(f"{CLAIMS_PREFIX}alive", b"", 80.0)
    assert claims.drop_silent(1000.0) == []
    assert claims.owned == {"/a"}


def test_hub_that_nobody_asked_is_not_forgotten() -> None:
    claims = claimed("other")
    assert claims.drop_silent(1e6) == []
    assert claims.rivals() == {"/a": "other"}


def test_message_in_our_name_is_ours_once_for_each_time_that_we_said_it() -> None:
    claims = TopicElection("x")
    place = f"{CLAIMS_PREFIX}x"
    assert claims.is_own_message(f"{CLAIMS_PREFIX}y", b'{"/a":0}')
    claims.note_published(NO_CLAIMS)
    claims.set_wanted(frozenset({"/c"}))
    assert claims.is_own_message(place, NO_CLAIMS)
    assert not claims.is_own_message(place, NO_CLAIMS)
    # The will of an earlier link may come late.
    assert claims.is_own_message(place, b"")
    assert not claims.is_own_message(place, b"")
    first, second = claims.set_wanted(frozenset({"/a"})), claims.set_wanted(frozenset({"/a", "/b"}))
    assert first is not None
    assert second is not None
    claims.note_published(first)
    claims.note_published(second)
    assert claims.is_own_message(place, second)
    assert not claims.is_own_message(place, first)
    # One that repeats what we claim does no harm.
    assert claims.is_own_message(place, second)
    assert not claims.is_own_message(place, b'{"/a":0}')


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from("xyz"), st.frozensets(st.sampled_from(TOPICS))),
        st.tuples(st.just("hear"), st.sampled_from("xyz"), st.integers(1, 3)),
        st.tuples(st.just("die"), st.sampled_from("xyz"), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(STEPS)
def test_a_request_finds_one_who_answers_at_most(steps: list[tuple[str, str, object]]) -> None:
    """A request stands at one place in the broker's order: each hub decides by what it has heard up to there."""
    broker = Broker("xyz")
    gone: set[str] = set()
    for what, name, more in steps:
        if name in gone:
            continue
        if what == "want":
            assert isinstance(more, frozenset)
            broker.want(name, more)
        elif what == "hear":
            assert isinstance(more, int)
            broker.hear(name, more)
        else:
            gone.add(name)
            broker.said.append((f"{CLAIMS_PREFIX}{name}", b""))
        at_the_same_place: dict[int, list[TopicElection]] = {}
        for each, claims in broker.hubs.items():
            if each not in gone:
                at_the_same_place.setdefault(broker.heard[each], []).append(claims)
        for hubs in at_the_same_place.values():
            for topic in TOPICS:
                assert sum(topic in hub.owned for hub in hubs) <= 1
    broker.settle()
    for topic in TOPICS:
        wanted = [claims for name, claims in broker.hubs.items() if name not in gone and topic in claims._own_claims]
        assert sum(topic in claims.owned for claims in wanted) == bool(wanted)
