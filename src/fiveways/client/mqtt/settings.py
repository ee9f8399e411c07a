"""Settings of one client of an MQTT broker."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from fiveways.client.settings import HUB_TIMEOUT
from fiveways.schemas import Service
from fiveways.wire.limits import Limits


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Settings of one client of a broker; times are in seconds. `connect_mqtt` explains the common ones."""

    timeout: float = HUB_TIMEOUT
    service: str = ""
    """Default service of `call("SayHello")`, as a name or a topic."""
    schemas: Mapping[str, Service] = field(default_factory=dict)
    """Services by full name; calls by name to these services take and return JSON."""
    reconnect: bool = True
    wait: float = 0.0
    """Seconds for which the first connection is retried."""
    first_wait: float = 0.1
    longest_wait: float = 1.0
    open_timeout: float = 10.0
    """Limit for the connection, and for the broker to confirm a subscription."""
    keepalive: float = 20.0
    client_id: str = ""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    limits: Limits = Limits()
    topic_idle: float = 300.0
    """Seconds without a call after which the client unsubscribes from a topic."""
    max_topics: int = 1000
    """Topics with a subscription at the same time; the least recently used one is evicted."""
    max_waiting: int = 16 << 20
    """Approximate bytes of one stream or subscription that may wait for the reader."""
    show_errors: bool = False
    """Whether callers of served methods see the class and text of an exception."""
