"""Creation, handshake and inspection of conversations in tests."""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Any

import msgspec

from fiveways.model import messages as hub
from fiveways.protocols.base import Conversation, ConversationSetup, ProtocolSpec, Role
from fiveways.wire.limits import Limits

CHANNEL: dict[str, str] = {"mqtt-rpc": "/fiveways"}
"""The topic for packets of protocols in which the connection alone is not enough."""


class OtherRandom(Random):
    """A random source for the server that differs from the client's with the same seed."""

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k) ^ ((1 << k) - 1)


def create_conversation(
    spec: ProtocolSpec,
    role: Role,
    limits: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
) -> Conversation:
    """Return a conversation before its handshake."""
    bounds = Limits(**(limits or {}))
    random = OtherRandom(7) if role is Role.SERVER else Random(7)
    return spec.create_conversation(ConversationSetup("peer", role, random, bounds, options))


def complete_handshake(conversation: Conversation, spec: ProtocolSpec, role: Role) -> None:
    """Complete the handshake of a conversation, if its protocol has one, with a temporary peer."""
    if hub.Hello not in spec.sendable_messages:
        return
    other = create_conversation(spec, Role.CLIENT if role is Role.SERVER else Role.SERVER)
    client, server = (other, conversation) if role is Role.SERVER else (conversation, other)
    client.send(hub.Hello(), 0.0)
    for packet in client.take_packets():
        server.receive(packet, 0.0)
    server.send(hub.Welcome(), 0.0)
    for packet in server.take_packets():
        client.receive(packet, 0.0)


def describe(messages: object) -> str:
    """Return hub messages as text for a failed comparison."""
    return repr(msgspec.to_builtins(messages, enc_hook=repr))


def force_state(conversation: Any, state: Enum) -> None:  # noqa: ANN401  looks inside
    """Put a conversation into a state."""
    if hasattr(conversation, "_set_state"):
        conversation._set_state(state)
    conversation._state = state
    conversation.closed = state.name == "CLOSED"


def state_of(conversation: Any) -> Enum:  # noqa: ANN401  looks inside
    """Return the state of a conversation."""
    state: Enum = conversation._state
    return state


def count_entries(conversation: Any) -> int:  # noqa: ANN401  looks inside
    """Return the number of entries in all tables of a conversation."""
    seen: set[int] = set()
    queue, total = [vars(conversation)], 0
    while queue:
        item = queue.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            total += len(item)
            queue += item.values()
        elif isinstance(item, list | set | tuple | deque):
            total += len(item)
            queue += item
        elif type(item).__module__.startswith("fiveways") and not isinstance(item, msgspec.Struct):
            queue.append(attributes(item))
    return total


def attributes(item: object) -> dict[str, object]:
    """Return the attributes of an object, including those in slots."""
    slots = [name for cls in type(item).__mro__ for name in getattr(cls, "__slots__", ())]
    return {**getattr(item, "__dict__", {}), **{name: getattr(item, name, None) for name in slots}}
