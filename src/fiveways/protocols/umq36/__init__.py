"""UMQ36, the base36 dialect of UMQ."""

from collections.abc import Sequence

from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.umq36 import bridge
from fiveways.protocols.umq36.conversation import Umq36Conversation
from fiveways.protocols.umq36.messages import MESSAGES, decode, encode
from fiveways.protocols.umq36.states import TRANSITIONS, State
from fiveways.protocols.umq_family.messages import UmqMessage
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet


def _decode(packet: Packet, limits: Limits) -> Sequence[UmqMessage]:
    return (decode(packet, limits),)


SPEC = ProtocolSpec(
    name="umq36",
    transports=("ws", "memory"),
    decode=_decode,
    encode=encode,
    messages=MESSAGES,
    states=State,
    transitions=TRANSITIONS,
    create_conversation=Umq36Conversation,
    name_style=bridge.STYLES.names,
    topic_style=bridge.STYLES.topics,
    sendable_messages=frozenset(Umq36Conversation.SENDERS),
)
