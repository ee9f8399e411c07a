"""Opening an MQTT 3.1.1 connection to a broker, always with a clean session."""

import asyncio
import math
import secrets
import ssl
from typing import Final

from fiveways.errors import ConnectionLost
from fiveways.transports import mqtt_frames as frames
from fiveways.transports.address import connect_error
from fiveways.transports.mqtt_broker import Broker
from fiveways.transports.mqtt_connection import MqttLink, MqttReceiver, PacketIdsExhausted, SubscriptionRefused
from fiveways.transports.mqtt_frames import ConnectOptions, MqttMessage, Will

__all__ = [
    "Broker",
    "MqttLink",
    "MqttMessage",
    "MqttReceiver",
    "PacketIdsExhausted",
    "SubscriptionRefused",
    "Will",
    "open_mqtt",
]

MAX_PACKET: Final = 1 << 24
_MAX_KEEPALIVE: Final = 0xFFFF


async def open_mqtt(
    broker: Broker,
    receiver: MqttReceiver,
    *,
    client_id: str = "",
    keepalive: float = 30.0,
    will: Will | None = None,
    max_packet: int = MAX_PACKET,
    ssl_context: ssl.SSLContext | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  the error text contains it
) -> MqttLink:
    """Connect to a broker with a clean session. The receiver gets nothing before this function returns.

    Args:
        broker: Address and credentials. With `tls`, the broker's certificate must be valid for its host name.
        receiver: Consumer of messages and events.
        client_id: The broker closes another connection with the same client id. Default: a random id.
        keepalive: Seconds. A broker that is silent for 1.5 times as long is lost. 0 disables the check.
        will: Message that the broker publishes when the connection is lost.
        max_packet: Maximum bytes of a packet from the broker.
        ssl_context: Context for TLS. Default: the system's.
        timeout: Seconds until the CONNACK must have arrived.

    Raises:
        Refused: The broker refused the credentials.
        ConnectionLost: The broker is unreachable, speaks no MQTT, or did not answer in time.
        ValueError: The client id or the will is not valid in MQTT.
    """
    seconds = min(math.ceil(keepalive), _MAX_KEEPALIVE)
    client_id = client_id or f"fw{secrets.token_hex(10)}"  # every broker accepts 23 characters (MQTT 3.1.1, 3.1.3.1)
    connect_packet = frames.connect(ConnectOptions(client_id, seconds, broker.user, broker.password, will))
    context = (ssl_context or ssl.create_default_context()) if broker.tls else None
    link = MqttLink(broker, connect_packet, max_packet, keepalive)
    try:
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: link,
                broker.host,
                broker.port,
                ssl=context,
                server_hostname=broker.host if context else None,
            )
            await link.connack
        link.begin(receiver)
    except TimeoutError:
        link.abandon()
        raise ConnectionLost(f"{broker} did not answer within {timeout:g} seconds") from None
    except (OSError, UnicodeError) as exc:
        link.abandon()
        raise ConnectionLost(f"cannot connect to {broker}: {connect_error(exc, broker.host, broker.port)}") from exc
    except BaseException:
        link.abandon()
        raise
    return link
