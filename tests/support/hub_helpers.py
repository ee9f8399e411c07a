"""Hubs and peers for tests of the hub."""

from collections.abc import Mapping
from random import Random
from typing import Any

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.settings import HubSettings
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Failure, Hello, HubMessage, Register, Result, Subscribe, Welcome
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload, Value

UMQ = ProtocolTraits("umq", names.UMQ, topics.UMQ, attachments_follow=True)
UMQ36 = ProtocolTraits("umq36", names.UMQ36, topics.UMQ, attachments_follow=True)
LRPM = ProtocolTraits("lrpm-json", names.LRPM, topics.LRPM, cancels=True, has_challenge=True)
NQ = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True)
MQTT = ProtocolTraits("mqtt-rpc", names.MQTT, topics.MQTT, accepts_streams=True)

PEERS = {"ann": LRPM, "bob": UMQ, "cleo": NQ, "dan": LRPM, "eve": UMQ}
"""The sessions of `hub_with_peers`, with their protocols."""


def make_hub(
    limits: Mapping[str, Any] | None = None,
    *,
    is_durable: bool = False,
    **settings: Any,  # noqa: ANN401  fields of HubSettings
) -> Hub:
    """Return a hub without sessions."""
    return Hub(Random(7), Limits(**(limits or {})), HubSettings(**settings), is_durable=is_durable)


def hub_with_peers(limits: Mapping[str, Any] | None = None, **settings: Any) -> Hub:  # noqa: ANN401  fields of HubSettings
    """Return a hub with a session for each of `PEERS`."""
    hub = make_hub(limits, **settings)
    for peer, traits in PEERS.items():
        join(hub, peer, traits)
    return hub


def join(hub: Hub, peer: str, traits: ProtocolTraits = LRPM, now: float = 0.0) -> None:
    """Add an anonymous session."""
    hub.arrive(peer, traits, Credentials(), now)
    assert hub.handle(peer, Hello(), now) == welcome(peer)


def welcome(peer: str) -> Deliveries:
    return [Delivery(peer, Welcome(Value({"session": peer, "version": ""})))]


def register_method(hub: Hub, peer: str, method: str, spelling: str = "", **options: Any) -> None:  # noqa: ANN401  of Register
    """Register a method."""
    assert hub.handle(peer, Register("r", method, spelling, **options), 0.0) == success(peer, "r")


def subscribe(hub: Hub, peer: str, pattern: Pattern, name: str = "s", **options: Any) -> None:  # noqa: ANN401  of Subscribe
    """Subscribe to topics without retained values."""
    assert hub.handle(peer, Subscribe("r", pattern, name, **options), 0.0) == success(peer, "r", Value({"id": name}))


def topic(text: str) -> Topic:
    return topics.parse(text, topics.UMQ)


def pattern(text: str) -> Pattern:
    """Parse a pattern in UMQ style, or in MQTT style if it has `/`, `+` or `#`."""
    return topics.parse_pattern(text, topics.MQTT if set("/+#") & set(text) else topics.UMQ)


def success(peer: str, message_id: str, body: Payload = NULL, op: str = "") -> Deliveries:
    """Return the deliveries after a successful request."""
    return [Delivery(peer, Result(message_id, body), op)]


def refusal(deliveries: Deliveries) -> tuple[str, str, Reason, str]:
    """Return peer, request id, reason and text of a refused request."""
    (delivery,) = deliveries
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, Failure)
    return delivery.peer, delivery.message.id, delivery.message.reason, delivery.message.text


def only_message(deliveries: Deliveries, kind: type[HubMessage]) -> Any:  # noqa: ANN401  of that kind
    """Return the message of the only delivery, which is of this kind."""
    (delivery,) = deliveries
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery.message, kind)
    return delivery.message


def count_objects(hub: Hub) -> int:
    """Count the objects in all tables of the hub, without its traffic counters."""
    visited = {id(numbers) for numbers in (hub.traffic, hub.traffic.topics, *hub.traffic._tables.values())}
    stack: list[object] = [hub]
    total = 0
    while stack:
        item = stack.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        if isinstance(item, dict):
            total += len(item)
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set):
            total += len(item)
            stack += item
        elif type(item).__module__.startswith("fiveways.hub"):
            slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
            fields = getattr(type(item), "__struct_fields__", ())
            stack += vars(item).values() if hasattr(item, "__dict__") else ()
            stack += [getattr(item, name, None) for name in (*slots, *fields)]
    return total
