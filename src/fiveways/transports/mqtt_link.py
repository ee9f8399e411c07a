"""A link to an MQTT broker: a client's end of MQTT 3.1.1, always with a clean session."""

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
    timeout: float = 10.0,  # noqa: ASYNC109  it is part of the sentence when it is over
) -> MqttLink:
    """Connect to a broker with a clean session. The receiver hears nothing before the link is returned.

    Args:
        broker: Where it is. With `tls` its certificate must be good for its host's name.
        receiver: Who gets what comes.
        client_id: A broker ends another connection with the same one; left out, it is random.
        keepalive: Seconds; a broker that is silent for one and a half of these is lost. 0 is for ever.
        will: What the broker publishes if we go without a word.
        max_packet: Bytes of the longest packet that the broker may send.
        ssl_context: How to check and be checked; left out, as the system does.
        timeout: Seconds until the broker must have let us in.

    Raises:
        Refused: the broker does not want us: the user, the password, or what they may do.
        ConnectionLost: the broker cannot be reached, is none, or does not answer in time.
        ValueError: MQTT cannot say this client id or will.
    """
    seconds = min(math.ceil(keepalive), _MAX_KEEPALIVE)
    client_id = client_id or f"fw{secrets.token_hex(10)}"  # 23 characters are what every broker takes
    hello = frames.connect(ConnectOptions(client_id, seconds, broker.user, broker.password, will))
    context = (ssl_context or ssl.create_default_context()) if broker.tls else None
    link = MqttLink(broker, hello, max_packet, keepalive)
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
