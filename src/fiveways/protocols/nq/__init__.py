"""NQ version 1: reliable requests and responses in JSON, over any transport."""

from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.nq.messages import MESSAGES, decode
from fiveways.protocols.nq.serializer import encode
from fiveways.protocols.nq.states import TRANSITIONS, State

SPEC = ProtocolSpec(
    name="nq",
    transports=("ws", "http", "zmq", "memory"),
    decode=decode,
    encode=encode,
    messages=MESSAGES,
    states=State,
    transitions=TRANSITIONS,
    create_conversation=NqConversation,
    name_style=bridge.STYLES.names,
    topic_style=bridge.STYLES.topics,
    sendable_messages=frozenset(NqConversation.SENDERS),
    forwards_cancel=True,
)
