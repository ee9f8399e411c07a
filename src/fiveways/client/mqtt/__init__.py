"""RPC over MQTT, as a program uses it: typed stubs and services on any broker."""

from fiveways.client.mqtt.feeds import MqttSubscription, Publication
from fiveways.client.mqtt.implementation import MqttContext
from fiveways.client.mqtt.peer import ConnectingMqtt, MqttPeer, connect_mqtt
from fiveways.client.mqtt.retry import Retry
from fiveways.client.mqtt.services import Served
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.mqtt.stub import Stub

__all__ = [
    "ConnectingMqtt",
    "MqttContext",
    "MqttPeer",
    "MqttSettings",
    "MqttSubscription",
    "Publication",
    "Retry",
    "Served",
    "Stub",
    "connect_mqtt",
]
