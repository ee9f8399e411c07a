"""The states of a conversation: without a handshake there are two."""

from enum import Enum
from typing import Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Message, Request, Response


class State(Enum):
    """Where a conversation stands. Only our own side closes it: the broker's link is not one peer's to end."""

    OPEN = "open"
    CLOSED = "closed"

    __hash__ = object.__hash__  # that of Enum is written in Python, and one is asked for with every message


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: dict.fromkeys((Request, Response, ErrorResponse), State.OPEN),
    State.CLOSED: {},
}


def advance(state: Enum, message: Message) -> Enum:
    """The state after the peer's `message`; RemoteProtocolError if it may not come now."""
    after = TRANSITIONS[state].get(type(message))
    if after is None:
        raise RemoteProtocolError(Fault.UNEXPECTED, f"{type(message).__name__} in state '{state.value}'", "MQRPC-01")
    return after
