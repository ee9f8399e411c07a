"""Topic elections: of several hubs on one broker, one answers on a topic, for every order of receipt."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.runtime.mqtt.topic_election import CLAIMS_PREFIX, NO_CLAIMS, SILENCE_TIMEOUT, TopicElection

TOPICS = ("/a", "/b", "/c")


class Broker:
    """The broker's order of messages, and the number that each hub has received."""

    def __init__(self, names: str) -> None:
        self.hubs = {name: TopicElection(name) for name in names}
        self.heard = dict.fromkeys(names, 0)
        self.said: list[tuple[str, bytes]] = []

    def want(self, name: str, topics: frozenset[str]) -> None:
        news = self.hubs[name].set_wanted(topics)
        if news is not None:
            self.said.append((f"{CLAIMS_PREFIX}{name}", news))

    def receive(self, name: str, count: int = 1) -> None:
        for place, payload in self.said[self.heard[name] :][:count]:
            self.hubs[name].receive(place, payload)
            self.heard[name] += 1

    def settle(self) -> None:
        for name in self.hubs:
            self.receive(name, len(self.said))


def test_first_claim_wins_and_the_other_hub_follows() -> None:
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


def test_unwanted_topic_is_given_up_at_once() -> None:
    broker = Broker("z")
    broker.want("z", frozenset({"/a", "/b"}))
    broker.settle()
    broker.want("z", frozenset({"/b"}))
    assert broker.hubs["z"].owned == {"/b"}
    assert broker.hubs["z"].set_wanted(frozenset({"/b"})) is None


def test_invalid_claims_are_ignored() -> None:
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


def test_many_unknown_hubs_leave_room_for_own_claims() -> None:
    broker = Broker("z")
    for number in range(1000):
        broker.said.append((f"{CLAIMS_PREFIX}stranger{number}", b'{"/x": 1}'))
    broker.want("z", frozenset({"/a"}))
    broker.settle()
    assert broker.hubs["z"].owned == {"/a"}
    assert len(broker.hubs["z"]._hubs) <= 101


def test_new_hub_receives_claims_and_removed_claims_are_published_again() -> None:
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
    """Claims of a hub x that knows lower numbers of other hubs."""
    claims = TopicElection("x")
    mine = claims.set_wanted(frozenset({"/a"}))
    assert mine is not None
    claims.receive(f"{CLAIMS_PREFIX}x", mine, 0.0)
    for name in names:
        claims.receive(f"{CLAIMS_PREFIX}{name}", b'{"/a":0}', 0.0)
    return claims


def test_hub_that_answers_no_query_is_forgotten() -> None:
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


def test_hub_without_a_query_is_not_forgotten() -> None:
    claims = claimed("other")
    assert claims.drop_silent(1e6) == []
    assert claims.rivals() == {"/a": "other"}


def test_message_in_own_name_is_accepted_once_per_publication() -> None:
    claims = TopicElection("x")
    place = f"{CLAIMS_PREFIX}x"
    assert claims.is_own_message(f"{CLAIMS_PREFIX}y", b'{"/a":0}')
    claims.note_published(NO_CLAIMS)
    claims.set_wanted(frozenset({"/c"}))
    assert claims.is_own_message(place, NO_CLAIMS)
    assert not claims.is_own_message(place, NO_CLAIMS)
    # The will of an earlier connection may arrive late.
    assert claims.is_own_message(place, b"")
    assert not claims.is_own_message(place, b"")
    first, second = claims.set_wanted(frozenset({"/a"})), claims.set_wanted(frozenset({"/a", "/b"}))
    assert first is not None
    assert second is not None
    claims.note_published(first)
    claims.note_published(second)
    assert claims.is_own_message(place, second)
    assert not claims.is_own_message(place, first)
    # A copy of the hub's claims does no harm.
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
def test_request_is_answered_by_one_hub_at_most(steps: list[tuple[str, str, object]]) -> None:
    """A request has one place in the broker's order: each hub decides by the messages before it."""
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
            broker.receive(name, more)
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
        claimants = [claims for name, claims in broker.hubs.items() if name not in gone and topic in claims._own_claims]
        assert sum(topic in claims.owned for claims in claimants) == bool(claimants)
