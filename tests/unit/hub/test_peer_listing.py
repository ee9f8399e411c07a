"""The response of `hub.peers`: addresses, display names, registrations and subscriptions, and its limits."""

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
from tests.support.hub_helpers import (
    LRPM,
    PEERS,
    hub_with_peers,
    join,
    make_hub,
    only_message,
    pattern,
    refusal,
    register_method,
    subscribe,
)

PLAIN = {"identity": "", "name": "", "address": "", "since": 0.0, "observer": False}
NOTHING = {"methods": 0, "subscriptions": 0, "registered": [], "subscribed": []}


def listing(hub: Hub, body: Payload = NULL, now: float = 0.0) -> Any:  # noqa: ANN401  the response
    return only_message(hub.handle("ann", Call("c", "hub.peers", body), now), Result).body.native


def listed_peer(hub: Hub, peer: str) -> Any:  # noqa: ANN401  a row of the response
    (listed,) = [candidate for candidate in listing(hub)["peers"] if candidate["peer"] == public_name(peer)]
    return listed


def test_open_sessions_are_listed() -> None:
    hub = hub_with_peers()
    hub.arrive("late", LRPM, Credentials(), 0.0)
    listed = [
        {"peer": public_name(peer), "protocol": traits.protocol, **PLAIN, **NOTHING} for peer, traits in PEERS.items()
    ]
    assert listing(hub) == {"sessions": 6, "peers": listed}


def test_list_stops_at_a_thousand_sessions() -> None:
    hub = make_hub()
    for number in range(1000):
        join(hub, f"p{number}")
    join(hub, "ann")
    report = listing(hub)
    assert (report["sessions"], len(report["peers"])) == (1001, 1000)


def test_listing_has_address_and_time_of_arrival() -> None:
    hub = Hub(Random(7), epoch=1_700_000_000.0)
    hub.arrive("ann", LRPM, Credentials(remote="192.0.2.7:4711"), 12.5)
    hub.handle("ann", Hello(), 12.5)
    assert listed_peer(hub, "ann")["address"] == "192.0.2.7:4711"
    assert listed_peer(hub, "ann")["since"] == 1_700_000_012.5
    hub.resume("ann", Credentials(remote="[2001:db8::1]:99"))
    assert listed_peer(hub, "ann")["address"] == "[2001:db8::1]:99"
    assert listed_peer(hub, "ann")["since"] == 1_700_000_012.5
    hub.resume("nobody", Credentials(remote="x"))


@pytest.mark.parametrize(
    ("body", "displayed"),
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
def test_display_name_is_the_name_variable(body: Payload, displayed: str) -> None:
    hub = hub_with_peers()
    hub.handle("bob", SetVariable("s", "name", body), 0.0)
    assert listed_peer(hub, "bob")["name"] == displayed
    hub.handle("bob", UnsetVariable("u", "name"), 0.0)
    assert listed_peer(hub, "bob")["name"] == ""


def test_list_has_first_registrations_and_subscriptions_of_each_session() -> None:
    hub = hub_with_peers()
    hub.handle("bob", Register("route", "files", route=True), 0.0)
    for number in range(7):
        register_method(hub, "bob", f"math.m{number}")
    subscribe(hub, "bob", pattern("news.*"))
    result = listed_peer(hub, "bob")
    assert (result["methods"], result["subscriptions"]) == (8, 1)
    assert result["registered"] == ["files.", "math.m0", "math.m1", "math.m2", "math.m3"]
    assert result["subscribed"] == ["news.*"]
    one = listing(hub, Value({"peer": public_name("bob")}))
    assert [peer["peer"] for peer in one["peers"]] == [public_name("bob")]
    assert one["peers"][0]["registered"] == ["files.", *(f"math.m{number}" for number in range(7))]


def test_response_size_is_limited() -> None:
    hub = make_hub()
    join(hub, "ann")
    for number in range(300):
        join(hub, f"p{number}")
        for method in range(5):
            register_method(hub, f"p{number}", f"m{method}.{'x' * 200}")
    report = listing(hub)
    listed = sum(len(name) for peer in report["peers"] for name in peer["registered"])
    assert 0 < listed <= 1 << 15
    assert report["peers"][-1]["registered"] == []
    assert report["peers"][-1]["methods"] == 5


def test_unknown_session_is_refused() -> None:
    hub = hub_with_peers()
    refused = refusal(hub.handle("ann", Call("c", "hub.peers", Value({"peer": "nobody"})), 0.0))
    assert refused == ("ann", "c", Reason.BAD_ARGUMENTS, "there is no peer nobody")


def test_patterns_are_written_for_people() -> None:
    hub = hub_with_peers()
    for text in ("a.b", "a.*.c", "a/+/c", "a/b/#", "#"):
        subscribe(hub, "bob", pattern(text), text)
    assert listed_peer(hub, "bob")["subscribed"] == ["a.b", "a.*.c", "a.*.c", "a.b.#", "#"]
