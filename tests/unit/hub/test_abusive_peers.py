"""Abusive peers: floods are refused, and the state of the hub stays limited."""

from collections.abc import Callable
from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.model.messages import (
    Call,
    Discover,
    Failure,
    HubMessage,
    Publish,
    Register,
    Result,
    SetVariable,
    Subscribe,
    Unregister,
    Unsubscribe,
)
from fiveways.model.topics import Pattern
from fiveways.wire.payload import NULL, Text, Value
from tests.support.hub_helpers import LRPM, NQ, UMQ, count_objects, join, make_hub, register_method

BOUNDS = {"max_pending": 20, "max_subscriptions": 20, "max_variables": 20, "max_expected_attachments": 20}
SETTINGS: dict[str, Any] = {
    "max_offers": 20,
    "max_retained": 20,
    "max_queues": 20,
    "max_queue": 20,
    "max_queue_bytes": 1000,
}
ROUNDS = 500
MAX_OBJECTS = 800
"""Objects that a hub may hold with these limits; without them, each test would leave thousands."""

FLOODS: dict[str, Callable[[int], HubMessage]] = {
    "methods": lambda n: Register("1", f"m{n}"),
    "routes": lambda n: Register("1", f"m{n}", route=True),
    "subscriptions": lambda n: Subscribe("1", Pattern((("t",),)), f"s{n}"),
    "patterns": lambda n: Subscribe("1", Pattern((("t", f"{n}"), ("", ""))), f"s{n}"),
    "calls": lambda n: Call(f"c{n}", "m", timeout=n),
    "streams": lambda n: Call(f"c{n}", "m", more=True),
    "attachments": lambda n: Call(f"c{n}", "m", attachments=(f"a{n}", f"b{n}")),
    "publications with attachments": lambda n: Publish("1", ("t",), NULL, (f"a{n}",)),
    "retained values": lambda n: Publish("1", ("t", f"{n}"), Value(n), retain=True),
    "variables": lambda n: SetVariable("1", f"v{n}", Value(n)),
    "large variables": lambda n: SetVariable("1", f"v{n}", Text("x" * (1 << 20))),
    "callbacks": lambda _: Call("1", "hub.callback", Value("x")),
    "queues": lambda n: Call("1", "hub.push", Value([f"q{n}", n])),
    "items": lambda n: Call("1", "hub.push", Value(["q", n])),
    "large items": lambda n: Call("1", "hub.push", Value([f"q{n % 10}", "x" * 100])),
    "pulls": lambda _: Call("1", "hub.pull", Value(["q", "w"])),
    "questions": lambda n: Discover(f"c{n}", "r."),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_is_refused_within_limits(flood: str) -> None:
    hub = prepared_hub()
    reasons = set[Reason]()
    for number in range(ROUNDS):
        for delivery in hub.handle("mallory", FLOODS[flood](number), 0.0):
            message = getattr(delivery, "message", None)
            if isinstance(message, Failure):
                reasons.add(message.reason)
    assert reasons <= {Reason.OVERLOADED, Reason.TOO_LARGE}
    assert reasons
    assert count_objects(hub) < MAX_OBJECTS
    # Other peers are not affected.
    deliveries = hub.handle("good", Call("c", "n"), 0.0)
    assert [getattr(delivery, "peer", "") for delivery in deliveries] == ["fine"]


def prepared_hub() -> Hub:
    hub = make_hub(BOUNDS, **SETTINGS)
    join(hub, "good", LRPM)
    join(hub, "fine", LRPM)
    join(hub, "bob", UMQ)
    join(hub, "mallory", NQ)
    register_method(hub, "bob", "m")
    register_method(hub, "fine", "n")
    register_method(hub, "bob", "r", route=True)
    hub.handle("bob", Subscribe("1", Pattern((("t",),)), "s"), 0.0)
    return hub


CYCLES: dict[str, Callable[[int], list[HubMessage]]] = {
    "methods": lambda n: [Register("1", f"m{n}"), Unregister("1", f"m{n}")],
    "subscriptions": lambda n: [Subscribe("1", Pattern((("t", f"{n}"),)), "s"), Unsubscribe("1", "s")],
    "topics": lambda n: [Publish(None, ("t", f"{n}"))],
    "calls": lambda n: [Call("c", "x", timeout=1000.0 + n), Result(f"{n + 1}")],
    "ids": lambda n: [Result(f"x{n}"), Failure(f"y{n}", Reason.LOST)],
    "names": lambda n: [Call("c", f"unknown{n}"), Discover("c", f"unknown{n}")],
    "tokens": lambda n: [Call("c", f"unknown{n}", callback=True)],
}


@pytest.mark.parametrize("cycle", CYCLES)
def test_short_lived_state_is_bounded(cycle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveways.hub.registrations._MAX_FORMER_NAMES", 50)
    monkeypatch.setattr("fiveways.hub.subscriptions._MAX_CACHED_TOPICS", 50)
    hub = prepared_hub()
    register_method(hub, "mallory", "x")
    for number in range(ROUNDS):
        for message in CYCLES[cycle](number):
            hub.handle("mallory", message, 0.0)
    assert count_objects(hub) < MAX_OBJECTS


def test_departed_peers_leave_no_state() -> None:
    hub = prepared_hub()
    lasting = {"methods", "routes", "retained values", "queues", "items", "large items"}
    floods = [flood for name, flood in FLOODS.items() if name not in lasting]
    hub.expire(1.0)  # removes cancelled timers
    before = count_objects(hub)
    for number in range(ROUNDS):
        join(hub, f"p{number}", UMQ)
        for flood in floods:
            hub.handle(f"p{number}", flood(0), 0.0)
        hub.leave(f"p{number}", 0.0)
    hub.expire(1e9)
    hub._subscriptions._clear_caches()
    hub._counters.failures.clear()
    assert count_objects(hub) == before
