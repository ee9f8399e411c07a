"""NQ version 1: reliable requests and answers in JSON, over whatever link there is."""

from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.nq.messages import MESSAGES, decode
from fiveways.protocols.nq.states import TRANSITIONS, State
from fiveways.protocols.nq.writing import encode

SPEC = ProtocolSpec(
    name="nq",
    transports=("ws", "http", "zmq", "memory"),
    decode=decode,
    encode=encode,
    messages=MESSAGES,
    states=State,
    transitions=TRANSITIONS,
    converse=NqConversation,
    names=bridge.STYLES.names,
    topics=bridge.STYLES.topics,
    carries=frozenset(NqConversation.SENDERS),
    cancels=True,
)
