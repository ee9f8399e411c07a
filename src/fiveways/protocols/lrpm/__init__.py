"""LRPM, Lightweight RPC and PubSub Messages: one protocol in two encodings."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from fiveways.model import names, topics
from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.lrpm.conversation import LrpmConversation
from fiveways.protocols.lrpm.fastpath import JsonFastPath
from fiveways.protocols.lrpm.messages import CBOR_CODEC, JSON_CODEC, MESSAGES, Codec, Message
from fiveways.protocols.lrpm.states import TRANSITIONS, State
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def _spec(name: str, codec: Codec, converse: type[LrpmConversation], vectors: str) -> ProtocolSpec:
    def decode(packet: Packet, limits: Limits) -> Sequence[Message]:
        return (codec.decode(packet, limits),)

    return ProtocolSpec(
        name=name,
        transports=("ws", "memory"),
        decode=decode,
        encode=codec.encode,
        messages=MESSAGES,
        states=State,
        transitions=TRANSITIONS,
        create_conversation=partial(converse, codec=codec),
        name_style=names.LRPM,
        topic_style=topics.LRPM,
        sendable_messages=frozenset(LrpmConversation.SENDERS),
        forwards_cancel=True,
        vectors=vectors,
    )


JSON: Final = _spec("lrpm-json", JSON_CODEC, JsonFastPath, "json_*.json")
CBOR: Final = _spec("lrpm-cbor", CBOR_CODEC, LrpmConversation, "cbor_*.json")
