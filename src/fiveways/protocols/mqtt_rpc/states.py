"""The states of a conversation, only two because there is no handshake.

No message of a peer changes the state or is unexpected, so there is no `advance` as in other protocols.
"""

from enum import Enum
from typing import Final

from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response


class State(Enum):
    """The state of a conversation. Only our side closes it: no single peer may end the connection to the broker."""

    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: dict.fromkeys((Request, Response, ErrorResponse), State.OPEN),
    State.CLOSED: {},
}
