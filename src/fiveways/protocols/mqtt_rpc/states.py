"""The states of a conversation: without a handshake there are two.

No message of a peer leads from one to the other, and none is out of place, so unlike elsewhere there is no `advance`.
"""

from enum import Enum
from typing import Final

from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response


class State(Enum):
    """Where a conversation stands. Only our own side closes it: the broker's link is not one peer's to end."""

    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: dict.fromkeys((Request, Response, ErrorResponse), State.OPEN),
    State.CLOSED: {},
}
