"""The answer of `hub.peers`: addresses, chosen names, registrations and subscriptions, and its bounds."""

from random import Random
from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.peer_listing import MAX_NAME_LENGTH
from fiveways.hub.session import public_name
from fiveways.hub.traits import Credentials
from fiveways.model.messages import Call, Hello, Register, Result, SetVariable, UnsetVariable
from fiveways.wire.payload import NULL, Binary, Json, Payload, Text, Value
from tests.support.hub_helpers import LRPM, PEERS, join, make, offer, only, opened, pattern, refusal, subscribe

PLAIN = {"identity": "", "name": "", "address": "", "since": 0.0, "observer": False}
NOTHING = {"methods": 0, "subscriptions": 0, "registered": [], "subscribed": []}


def told(hub: Hub, body: Payload = NULL, now: float = 0.0) -> Any:  # noqa: ANN401  the answer
    return only(hub.handle("ann", Call("c", "hub.peers", body), now), Result).body.native


def row(hub: Hub, peer: str) -> Any:  # noqa: ANN401  likewise
    (found,) = [each for each in told(hub)["peers"] if each["peer"] == public_name(peer)]
    return found


def test_open_sessions_are_listed() -> None:
    hub = opened()
    hub.arrive("late", LRPM, Credentials(), 0.0)
    listed = [
        {"peer": public_name(peer), "protocol": traits.protocol, **PLAIN, **NOTHING} for peer, traits in PEERS.items()
    ]
    assert told(hub) == {"sessions": 6, "peers": listed}


def test_list_stops_at_a_thousand_sessions() -> None:
    hub = make()
    for number in range(1000):
        join(hub, f"p{number}")
    join(hub, "ann")
    found = told(hub)
    assert (found["sessions"], len(found["peers"])) == (1001, 1000)


def test_listing_has_address_and_time_of_arrival() -> None:
    hub = Hub(Random(7), epoch=1_700_000_000.0)
    hub.arrive("ann", LRPM, Credentials(remote="192.0.2.7:4711"), 12.5)
    hub.handle("ann", Hello(), 12.5)
    assert row(hub, "ann")["address"] == "192.0.2.7:4711"
    assert row(hub, "ann")["since"] == 1_700_000_012.5
    hub.resume("ann", Credentials(remote="[2001:db8::1]:99"))
    assert row(hub, "ann")["address"] == "[2001:db8::1]:99"
    assert row(hub, "ann")["since"] == 1_700_000_012.5
    hub.resume("nobody", Credentials(remote="x"))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (Value("billing"), "billing"),
        (Text("billing"), "billing"),
        (Json(b'"bill\\u00eding"'), "billíing"),
        (Value("<b>bold</b>"), "<b>bold</b>"),
        (Value("x" * MAX_NAME_LENGTH), "x" * MAX_NAME_LENGTH),
        (Value("x" * (MAX_NAME_LENGTH + 1)), "x" * (MAX_NAME_LENGTH - 1) + "…"),
        (Value("x" * 5000), ""),
        (Value(7), ""),
        (Text("7"), ""),
        (Value({"name": "x"}), ""),
        (Binary(b"x"), ""),
    ],
)
def test_display_name_is_the_name_variable(body: Payload, shown: str) -> None:
    hub = opened()
    hub.handle("bob", SetVariable("s", "name", body), 0.0)
    assert row(hub, "bob")["name"] == shown
    hub.handle("bob", UnsetVariable("u", "name"), 0.0)
    assert row(hub, "bob")["name"] == ""


def test_list_has_first_registrations_and_subscriptions_of_each_session() -> None:
    hub = opened()
    hub.handle("bob", Register("route", "files", route=True), 0.0)
    for number in range(7):
        offer(hub, "bob", f"math.m{number}")
    subscribe(hub, "bob", pattern("news.*"))
    found = row(hub, "bob")
    assert (found["methods"], found["subscriptions"]) == (8, 1)
    assert found["registered"] == ["files.", "math.m0", "math.m1", "math.m2", "math.m3"]
    assert found["subscribed"] == ["news.*"]
    one = told(hub, Value({"peer": public_name("bob")}))
    assert [each["peer"] for each in one["peers"]] == [public_name("bob")]
    assert one["peers"][0]["registered"] == ["files.", *(f"math.m{number}" for number in range(7))]


def test_response_size_is_limited() -> None:
    hub = make()
    join(hub, "ann")
    for number in range(300):
        join(hub, f"p{number}")
        for method in range(5):
            offer(hub, f"p{number}", f"m{method}.{'x' * 200}")
    found = told(hub)
    listed = sum(len(name) for each in found["peers"] for name in each["registered"])
    assert 0 < listed <= 1 << 15
    assert found["peers"][-1]["registered"] == []
    assert found["peers"][-1]["methods"] == 5


def test_unknown_session_is_refused() -> None:
    hub = opened()
    refused = refusal(hub.handle("ann", Call("c", "hub.peers", Value({"peer": "nobody"})), 0.0))
    assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, "there is no peer nobody")


def test_patterns_are_written_for_people() -> None:
    hub = opened()
    for text in ("a.b", "a.*.c", "a/+/c", "a/b/#", "#"):
        subscribe(hub, "bob", pattern(text), text)
    assert row(hub, "bob")["subscribed"] == ["a.b", "a.*.c", "a.*.c", "a.b.#", "#"]
