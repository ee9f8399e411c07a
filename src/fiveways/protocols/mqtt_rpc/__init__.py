"""RPC over MQTT 3.1.1: protobuf messages on topics of a broker."""

from fiveways.protocols.base import ProtocolSpec
from fiveways.protocols.mqtt_rpc import bridge
from fiveways.protocols.mqtt_rpc.conversation import MqttConversation
from fiveways.protocols.mqtt_rpc.messages import MESSAGES, decode, encode
from fiveways.protocols.mqtt_rpc.states import TRANSITIONS, State

SPEC = ProtocolSpec(
    name="mqtt-rpc",
    transports=("mqtt", "memory"),
    decode=decode,
    encode=encode,
    messages=MESSAGES,
    states=State,
    transitions=TRANSITIONS,
    create_conversation=MqttConversation,
    name_style=bridge.STYLES.names,
    topic_style=bridge.STYLES.topics,
    sendable_messages=frozenset(MqttConversation.SENDERS),
)
