"""The states of a link, which are few, and of each request on it, which is where NQ has its states.

A conversation belongs to its peer, not to its link: `CLOSED` only lasts until the peer comes back on another one.
"""

from enum import Enum
from typing import Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.nq.messages import MESSAGES, Farewell, Message


class IdentityHashedEnum(Enum):
    """Members are compared by identity, so they may be hashed by it, which is much faster in the tables below."""

    __hash__ = object.__hash__


class State(IdentityHashedEnum):
    """Where a link stands. There is no handshake: it is open from the start."""

    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.OPEN: {**dict.fromkeys(MESSAGES.values(), State.OPEN), Farewell: State.CLOSED},
    State.CLOSED: {},
}


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's message; RemoteProtocolError if it may not come now."""
    after = TRANSITIONS[state].get(type(message))
    if after is None:
        raise RemoteProtocolError(Fault.UNEXPECTED, f"{type(message).__name__} in state '{state.value}'", "NQ-01")
    return after


class RequestStep(IdentityHashedEnum):
    """What can happen to a request, at either end of it."""

    ACCEPT = "accept"
    """`{a, i}`"""
    PART = "part"
    """`{a, i, d, n}`, not the last one"""
    END = "end"
    """the single answer, the last part, or a fatal error"""
    ACK = "ack"
    """`{i}`, or for a stream `{i, o}`, for all of the answer"""
    UNKNOWN = "unknown"
    """a poll was answered so"""
    CANCEL = "cancel"
    """`{i, e}` with e.fatal"""
    EXPIRE = "expire"
    """its time to live is over"""


class OutgoingState(IdentityHashedEnum):
    """Where a request of ours stands."""

    SENT = "sent"
    """said again and again until accepted"""
    ACCEPTED = "accepted"
    """polled now and then until answered"""
    STREAMING = "streaming"
    """parts are coming"""
    CANCELLED = "cancelled"
    """the cancellation is said again and again; what comes in is acknowledged and dropped"""
    DONE = "done"
    """forgotten"""


class IncomingState(IdentityHashedEnum):
    """Where a request of the peer stands."""

    RECEIVED = "received"
    """not safe yet: the peer says it again"""
    ACCEPTED = "accepted"
    """safe; the hub owes an answer"""
    STREAMING = "streaming"
    """parts are going out"""
    ANSWERED = "answered"
    """the answer is complete, kept, and said again until acknowledged"""
    ACKNOWLEDGED = "acknowledged"
    """only the key is kept, so that a late repeat is not run again"""


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
