"""Client of RPC over MQTT: typed stubs and services at any MQTT broker."""

from fiveways.client.mqtt.method_handlers import MqttContext
from fiveways.client.mqtt.peer import MqttConnector, MqttPeer, connect_mqtt
from fiveways.client.mqtt.retry import Retry
from fiveways.client.mqtt.services import ServedService
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.mqtt.stub import Stub
from fiveways.client.mqtt.subscriptions import MqttSubscription, Publication

__all__ = [
    "MqttConnector",
    "MqttContext",
    "MqttPeer",
    "MqttSettings",
    "MqttSubscription",
    "Publication",
    "Retry",
    "ServedService",
    "Stub",
    "connect_mqtt",
]
