"""The states of a connection, and of each request on it.

A conversation belongs to its peer, not to its connection: it stays `CLOSED` only until the peer reconnects.
"""

from enum import Enum
from typing import Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.nq.messages import MESSAGES, Farewell, Message


class IdentityHashedEnum(Enum):
    """An Enum with the hash of its identity, which is much faster in the tables below."""

    __hash__ = object.__hash__


class State(IdentityHashedEnum):
    """The state of a connection. Without a handshake it is open from the start."""

    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: {**dict.fromkeys(MESSAGES.values(), State.OPEN), Farewell: State.CLOSED},
    State.CLOSED: {},
}


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's message; RemoteProtocolError if this state does not allow it."""
    next_state = TRANSITIONS[state].get(type(message))
    if next_state is None:
        raise RemoteProtocolError(Fault.UNEXPECTED, f"{type(message).__name__} in state '{state.value}'", "NQ-01")
    return next_state


class RequestStep(IdentityHashedEnum):
    """An event in the life of a request, at either end."""

    ACCEPT = "accept"
    """`{a, i}`"""
    PART = "part"
    """`{a, i, d, n}`, not the last one"""
    END = "end"
    """a single answer, the last part, or a fatal error"""
    ACK = "ack"
    """`{i}`, or for a stream `{i, o}` for the whole answer"""
    UNKNOWN = "unknown"
    """the reply to a poll that the request is unknown"""
    CANCEL = "cancel"
    """`{i, e}` with e.fatal"""
    EXPIRE = "expire"
    """the time to live is over"""


class OutgoingState(IdentityHashedEnum):
    """The state of our request."""

    SENT = "sent"
    """retransmitted until accepted"""
    ACCEPTED = "accepted"
    """polled until answered"""
    STREAMING = "streaming"
    """parts are arriving"""
    CANCELLED = "cancelled"
    """the cancellation is retransmitted; incoming parts are acknowledged and dropped"""
    DONE = "done"
    """removed"""


class IncomingState(IdentityHashedEnum):
    """The state of a request of the peer."""

    RECEIVED = "received"
    """not accepted: the peer retransmits it"""
    ACCEPTED = "accepted"
    """accepted; the hub must answer"""
    STREAMING = "streaming"
    """parts are sent"""
    ANSWERED = "answered"
    """the complete answer is stored and retransmitted until acknowledged"""
    ACKNOWLEDGED = "acknowledged"
    """only the tombstone is stored, so that a late retransmission is not run again"""


OUTGOING_TRANSITIONS: Final[dict[OutgoingState, dict[RequestStep, OutgoingState]]] = {
    OutgoingState.SENT: {
        RequestStep.ACCEPT: OutgoingState.ACCEPTED,
        RequestStep.PART: OutgoingState.STREAMING,
        RequestStep.END: OutgoingState.DONE,
        RequestStep.UNKNOWN: OutgoingState.SENT,
        RequestStep.CANCEL: OutgoingState.CANCELLED,
        RequestStep.EXPIRE: OutgoingState.DONE,
    },
    OutgoingState.ACCEPTED: {
        RequestStep.PART: OutgoingState.STREAMING,
        RequestStep.END: OutgoingState.DONE,
        RequestStep.UNKNOWN: OutgoingState.SENT,
        RequestStep.CANCEL: OutgoingState.CANCELLED,
        RequestStep.EXPIRE: OutgoingState.DONE,
    },
    OutgoingState.STREAMING: {
        RequestStep.PART: OutgoingState.STREAMING,
        RequestStep.END: OutgoingState.DONE,
        RequestStep.CANCEL: OutgoingState.CANCELLED,
        RequestStep.EXPIRE: OutgoingState.DONE,
    },
    OutgoingState.CANCELLED: {
        RequestStep.PART: OutgoingState.CANCELLED,
        RequestStep.END: OutgoingState.DONE,
        RequestStep.EXPIRE: OutgoingState.DONE,
    },
    OutgoingState.DONE: {},
}
INCOMING_TRANSITIONS: Final[dict[IncomingState, dict[RequestStep, IncomingState]]] = {
    IncomingState.RECEIVED: {
        RequestStep.ACCEPT: IncomingState.ACCEPTED,
        RequestStep.PART: IncomingState.STREAMING,
        RequestStep.END: IncomingState.ANSWERED,
    },
    IncomingState.ACCEPTED: {RequestStep.PART: IncomingState.STREAMING, RequestStep.END: IncomingState.ANSWERED},
    IncomingState.STREAMING: {RequestStep.PART: IncomingState.STREAMING, RequestStep.END: IncomingState.ANSWERED},
    IncomingState.ANSWERED: {
        RequestStep.ACK: IncomingState.ACKNOWLEDGED,
        RequestStep.EXPIRE: IncomingState.ACKNOWLEDGED,
    },
    IncomingState.ACKNOWLEDGED: {},
}
