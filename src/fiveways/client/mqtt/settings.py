"""How one client of a broker connects, and what it may hold."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from fiveways.client.settings import HUB_TIMEOUT
from fiveways.schemas import Service
from fiveways.wire.limits import Limits


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Times in seconds. `connect_mqtt` explains those that most programs need."""

    timeout: float = HUB_TIMEOUT
    service: str = ""
    """Whose methods `call("SayHello")` means, as a name or as a topic."""
    schemas: Mapping[str, Service] = field(default_factory=dict)
    """By full name; what is called by a name of these takes and gives JSON."""
    reconnect: bool = True
    wait: float = 0.0
    """For this long the first link is tried again."""
    first_wait: float = 0.1
    longest_wait: float = 1.0
    open_timeout: float = 10.0
    """For the link, and for the broker to confirm a subscription."""
    keepalive: float = 20.0
    client_id: str = ""
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    limits: Limits = Limits()
    topic_idle: float = 300.0
    """The broker is asked for a topic no longer on which nobody called anything for so long."""
    max_topics: int = 1000
    """Topics that are asked for at once; the one that was used least recently makes room."""
    max_waiting: int = 16 << 20
    """Bytes, about, of one stream, or of one subscription, that nobody has taken yet."""
    show_errors: bool = False
    """Whether callers of our services are told what these raise."""
