"""NQ conversations with predictable identifiers, driven by JSON messages."""

import json
from random import Random
from typing import Any

from fiveways.model import messages as hub
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def setup(limits: Limits | None = None, **options: object) -> ConversationSetup:
    return ConversationSetup("p1", Role.SERVER, Random(7), limits or Limits(), {"id_prefix": "h", **options})


def create_conversation(limits: Limits | None = None, **options: object) -> NqConversation:
    return NqConversation(setup(limits, **options))


def receive(conversation: NqConversation, *messages: object, now: float = 0.0) -> list[hub.HubMessage]:
    return list(conversation.receive(Packet(json.dumps(messages[0] if len(messages) == 1 else messages).encode()), now))


def sent_messages(conversation: NqConversation) -> list[Any]:
    messages: list[Any] = []
    for packet in conversation.take_packets():
        value = json.loads(packet.payload)
        messages += value if isinstance(value, list) else [value]
    return messages
