"""Permissions of sessions."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries
from fiveways.hub.permissions import _MAX_CACHED, AllowList, Glob, compile_allow_list, pattern_texts
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.traits import Credentials
from fiveways.model.messages import (
    Call,
    CloseTopic,
    Discover,
    Failure,
    Hello,
    HubMessage,
    Publish,
    Register,
    Result,
    Subscribe,
)
from fiveways.model.topics import UMQ, Pattern, Topic, spell
from fiveways.wire.payload import Value
from tests.support.hub_helpers import LRPM, make_hub, only_message, pattern, refusal, subscribe, success, topic, welcome
from tests.unit.hub.test_subscriptions import all_topics, patterns


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "a.b.c", True),
        ("a.*", "a.", True),
        ("a.*", "a.b.c", True),
        ("a.*", "a", False),
        ("*.b", "a.b", True),
        ("*.b", "b", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "a.b.b.c", True),
        ("a*b*c", "ac", False),
        ("a*bc*c", "abc", False),
        ("**", "a", True),
        ("*a*b*", "ba", False),
        ("[a]", "a", False),
    ],
)
def test_glob_matches_text(glob: str, text: str, expected: bool) -> None:
    assert Glob(glob).matches(text) is expected


few = st.text("ab.*", max_size=6)


@given(few, st.text("ab.", max_size=8))
def test_globs_match_like_regular_expressions(glob: str, text: str) -> None:
    expression = ".*".join(re.escape(piece) for piece in glob.split("*"))
    assert Glob(glob).matches(text) is (re.fullmatch(expression, text) is not None)


@given(few, st.text("ab.", max_size=3), st.text("ab.", max_size=4))
def test_glob_may_match_below_prefixes_of_its_matches(glob: str, prefix: str, rest: str) -> None:
    if Glob(glob).matches(prefix + rest):
        assert Glob(glob).may_match_below(prefix)


def test_glob_does_not_match_below_other_prefixes() -> None:
    assert not Glob("a.b").may_match_below("c.")
    assert not Glob("a.b*").may_match_below("c.")
    assert Glob("a.b").may_match_below("a.")
    assert not Glob("a").may_match_below("a.")


@given(few, patterns, all_topics)
def test_allowed_pattern_matches_only_allowed_topics(glob: str, requests: Pattern, topic_: Topic) -> None:
    allowed = AllowList((glob,))
    if requests.matches(topic_) and any(topic_) and all(allowed.allows(text) for text in pattern_texts(requests)):
        assert allowed.allows(spell(topic_, UMQ))


def test_list_that_allows_everything_is_none() -> None:
    assert compile_allow_list(("*",)) is None
    assert compile_allow_list(("a", "*")) is None
    assert compile_allow_list(()) is not None


def test_decision_cache_is_limited() -> None:
    allowed = AllowList(("m1*",))
    for number in range(_MAX_CACHED + 10):
        assert allowed.allows(f"m{number}") is f"m{number}".startswith("m1")
    assert len(allowed._cached) == 10
    assert allowed.allows("m1")


RIGHTS = Permissions(call=("a.*", "hub.stats"), offer=("a.*",), publish=("news.*",), subscribe=("news.*", "x"))


def hub_with_permissions() -> Hub:
    hub = make_hub(identities=(Identity("i", "t", permissions=RIGHTS),))
    hub.arrive("i", LRPM, Credentials(bearer="t"), 0.0)
    assert hub.handle("i", Hello(), 0.0) == welcome("i")
    return hub


@pytest.mark.parametrize(
    ("message", "is_allowed"),
    [
        (Register("1", "a.b"), True),
        (Register("1", "a.b", route=True), True),
        (Register("1", "a", route=True), True),
        (Register("1", "a"), False),
        (Register("1", "b", route=True), False),
        (Publish("1", topic("news.x")), True),
        (Publish("1", topic("news")), False),
        (CloseTopic("1", topic("news.x")), True),
        (CloseTopic("1", topic("x")), False),
        (Subscribe("1", pattern("news.*.x"), "s"), True),
        (Subscribe("1", pattern("news/+"), "s"), True),
        (Subscribe("1", pattern("news/+/#"), "s"), True),
        (Subscribe("1", pattern("x"), "s"), True),
        (Subscribe("1", pattern("news/#"), "s"), False),
        (Subscribe("1", pattern("#"), "s"), False),
        (Subscribe("1", pattern("*"), "s"), False),
        (Subscribe("1", pattern("+"), "s"), False),
        (Subscribe("1", pattern("news"), "s"), False),
        (Call("1", "hub.ping"), True),
        (Call("1", "hub.stats"), True),
        (Call("1", "hub.peers"), False),
        (Call("1", "hub.nonsense"), False),
        (Call("1", "b"), False),
        (Discover("1", "b"), False),
        (Discover("1", "b."), False),
        (Discover("1", "hub.ping"), True),
    ],
)
def test_permissions_of_each_kind_are_enforced(message: HubMessage, is_allowed: bool) -> None:
    hub = hub_with_permissions()
    deliveries = hub.handle("i", message, 0.0)
    if is_allowed:
        assert refusals(deliveries) == []
        return
    assert refusal(deliveries)[:3] == ("i", "1", Reason.DENIED)
    assert hub.stats()["failures"] == {"denied": 1}


def refusals(deliveries: Deliveries) -> list[object]:
    return [delivery for delivery in deliveries if isinstance(getattr(delivery, "message", None), Failure)]


def test_denial_names_the_action() -> None:
    hub = hub_with_permissions()
    refused = refusal(hub.handle("i", Call("1", "b"), 0.0))
    assert refused[3] == "you may not call b"
    refused = refusal(hub.handle("i", Subscribe("1", pattern("a/#"), "s"), 0.0))
    assert refused[3] == "you may not subscribe to a.*"
    refused = refusal(hub.handle("i", Publish("1", topic("a.b")), 0.0))
    assert refused[3] == "you may not publish to a.b"
    refused = refusal(hub.handle("i", Register("1", "b", "b.", route=True), 0.0))
    assert refused[3] == "you may not register b."


def test_allowed_call_is_forwarded() -> None:
    hub = hub_with_permissions()
    assert hub.handle("i", Register("1", "a.b"), 0.0) == success("i", "1")
    assert only_message(hub.handle("i", Call("1", "a.b"), 0.0), Call).id == "1"
    assert only_message(hub.handle("i", Result("1"), 0.0), Result).id == "1"
    assert hub.handle("i", Register("1", "a.r", route=True), 0.0) == success("i", "1")
    assert only_message(hub.handle("i", Call("1", "a.r.x"), 0.0), Call).method == "x"


def test_forbidden_methods_are_not_listed() -> None:
    hub = hub_with_permissions()
    hub.arrive("other", LRPM, Credentials(), 0.0)
    hub.handle("other", Hello(), 0.0)
    hub.handle("other", Register("1", "b"), 0.0)
    results = [refusal(hub.handle("i", Call("1", name), 0.0)) for name in ("b", "c")]
    assert [delivery[2] for delivery in results] == [Reason.DENIED, Reason.DENIED]


def test_invalid_topic_is_refused() -> None:
    hub = hub_with_permissions()
    assert refusal(hub.handle("i", Publish("1", ("",)), 0.0))[2] is Reason.DENIED
    assert refusal(hub.handle("i", Subscribe("1", Pattern((("y" * 300,),)), "s"), 0.0))[2] is Reason.DENIED


# Closing topics.


def hub_with_identities(**permissions: Permissions) -> Hub:
    """Return a hub with a session of each of these identities, and an anonymous one."""
    identities = tuple(Identity(name, f"of-{name}", permissions=granted) for name, granted in permissions.items())
    hub = make_hub(identities=identities, anonymous_permissions=permissions.get("guest", Permissions()))
    for name in (*permissions, *(() if "guest" in permissions else ("guest",))):
        hub.arrive(name, LRPM, Credentials(bearer="" if name == "guest" else f"of-{name}"), 0.0)
        assert hub.handle(name, Hello(), 0.0) == welcome(name)
    return hub


def may_close(hub: Hub, peer: str) -> bool:
    deliveries = hub.handle(peer, CloseTopic("c", topic("news")), 0.0)
    if deliveries[-1] == success(peer, "c")[0]:
        return True
    text = "you may not close news: others subscribe to it, and may publish on it"
    assert refusal(deliveries) == (peer, "c", Reason.DENIED, text)
    return False


def test_topic_with_other_subscribers_is_closed_only_with_permission() -> None:
    hub = hub_with_identities(ann=Permissions(), bob=Permissions(), eve=Permissions(close=("news",)))
    assert may_close(hub, "ann")
    subscribe(hub, "ann", pattern("news"))
    assert not may_close(hub, "bob")
    assert not may_close(hub, "guest")
    assert may_close(hub, "ann")
    subscribe(hub, "guest", pattern("news"))
    assert not may_close(hub, "ann")
    assert may_close(hub, "eve")
    subscribe(hub, "ann", pattern("*"))
    assert may_close(hub, "bob")


def test_topic_is_closed_by_the_only_identity_that_may_publish_on_it() -> None:
    none = Permissions(publish=())
    hub = hub_with_identities(ann=Permissions(), bob=none, guest=none)
    subscribe(hub, "bob", pattern("news"))
    assert may_close(hub, "ann")
    hub = hub_with_identities(ann=Permissions(), bob=none)
    subscribe(hub, "bob", pattern("news"))
    assert not may_close(hub, "ann")


def test_anonymous_peers_close_topics_of_each_other() -> None:
    hub = hub_with_identities(ann=Permissions())
    hub.arrive("other", LRPM, Credentials(), 0.0)
    hub.handle("other", Hello(), 0.0)
    subscribe(hub, "other", pattern("news"))
    assert may_close(hub, "guest")


# Work queues.


def queue_call(hub: Hub, method: str, queue: str, **more: object) -> Deliveries:
    return hub.handle("x", Call("c", method, Value({"queue": queue, **more})), 0.0)


def hub_with_session(permissions: Permissions) -> Hub:
    hub = make_hub(identities=(Identity("alice", "sesame", permissions=permissions),))
    hub.arrive("x", LRPM, Credentials(bearer="sesame"), 0.0)
    hub.handle("x", Hello(), 0.0)
    return hub


def test_push_and_pull_have_separate_permissions() -> None:
    hub = hub_with_session(Permissions(push=("in.*",), pull=("out.*",)))
    assert only_message(queue_call(hub, "hub.push", "in.a", data=1), Result)
    refused = refusal(queue_call(hub, "hub.push", "out.a", data=1))
    assert refused == ("x", "c", Reason.DENIED, "you may not push to queue out.a")
    assert only_message(queue_call(hub, "hub.pull", "out.a", callback="1"), Result)
    for method in ("hub.pull", "hub.dead", "hub.redrive", "hub.drop"):
        refused = refusal(
            queue_call(hub, method, "in.a", **({"callback": "1"} if method == "hub.pull" else {"job": 1}))
        )
        assert refused == ("x", "c", Reason.DENIED, "you may not pull from queue in.a")
    listed = only_message(hub.handle("x", Call("c", "hub.queues"), 0.0), Result)
    assert listed.body == Value({"out.a": {"waiting": 0, "given": 0, "dead": 0}})


def test_no_pattern_denies_all_queues() -> None:
    hub = hub_with_session(Permissions(push=(), pull=()))
    for method in ("hub.push", "hub.pull", "hub.dead", "hub.redrive", "hub.drop"):
        assert refusal(queue_call(hub, method, "q", data=1, callback="1", job=1))[2] is Reason.DENIED
    assert only_message(hub.handle("x", Call("c", "hub.queues"), 0.0), Result).body == Value({})


def test_waiting_pull_ends_with_its_permission() -> None:
    hub = hub_with_session(Permissions())
    for queue in ("a", "b"):
        queue_call(hub, "hub.pull", queue, callback="1")
    hub.reload(HubSettings(identities=(Identity("alice", "sesame", permissions=Permissions(pull=("b",))),)))
    assert only_message(queue_call(hub, "hub.push", "a", data=1), Result).body == Value({"waiting": 1})
    assert len(queue_call(hub, "hub.push", "b", data=1)) == 2
    hub.reload(HubSettings(identities=(Identity("alice", "sesame", permissions=Permissions(pull=())),)))
    hub.leave("x", 0.0)
