"""Conversations for tests: how to make one, open it, and what each protocol needs for that."""

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
"""The topic on which a packet means something, where the link alone does not say it."""


class OtherRandom(Random):
    """Chance for the server's end: from the same seed as the client's, it must not choose the same identifiers."""

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k) ^ ((1 << k) - 1)


def create_conversation(
    spec: ProtocolSpec,
    role: Role,
    limits: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
) -> Conversation:
    """A conversation before its handshake."""
    bounds = Limits(**(limits or {}))
    random = OtherRandom(7) if role is Role.SERVER else Random(7)
    return spec.create_conversation(ConversationSetup("peer", role, random, bounds, options))


def complete_handshake(conversation: Conversation, spec: ProtocolSpec, role: Role) -> None:
    """Lead a conversation through its handshake, if it has one, with a second one at the other end."""
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


def describe(words_heard: object) -> str:
    """Words without their defaults, for a failed comparison."""
    return repr(msgspec.to_builtins(words_heard, enc_hook=repr))


def force_state(conversation: Any, state: Enum) -> None:  # noqa: ANN401  looks inside
    """Put a conversation into a state, as if it had got there by itself."""
    if hasattr(conversation, "_set_state"):
        conversation._set_state(state)
    conversation._state = state
    conversation.closed = state.name == "CLOSED"


def state_of(conversation: Any) -> Enum:  # noqa: ANN401  looks inside
    """Where a conversation stands."""
    state: Enum = conversation._state
    return state


def count_entries(conversation: Any) -> int:  # noqa: ANN401  looks inside
    """How many things a conversation holds in all its tables."""
    seen: set[int] = set()
    todo, total = [vars(conversation)], 0
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            total += len(each)
            todo += each.values()
        elif isinstance(each, list | set | tuple | deque):
            total += len(each)
            todo += each
        elif type(each).__module__.startswith("fiveways") and not isinstance(each, msgspec.Struct):
            todo.append(attributes(each))
    return total


def attributes(each: object) -> dict[str, object]:
    """The attributes of an object, with or without a dictionary of its own."""
    slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
    return {**getattr(each, "__dict__", {}), **{name: getattr(each, name, None) for name in slots}}
