"""The states of a UMQ conversation, with the messages that each side may send and the next states."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.umq_family.messages import (
    AttachmentError,
    Callback,
    Data,
    Error,
    Fatal,
    Hello,
    NotRun,
    Result,
    SetVariable,
    TopicClose,
    TopicUpdate,
    UmqMessage,
    UnsetVariable,
    Unsubscribe,
    Welcome,
)


class State(Enum):
    """The state of a conversation."""

    NEW = "new"
    """A client before its hello."""
    AWAIT_HELLO = "await hello"
    GREETED = "greeted"
    """A server that received a hello and has not decided yet."""
    AWAIT_WELCOME = "await welcome"
    OPEN = "open"
    CLOSED = "closed"


Transitions = Mapping[Enum, Mapping[type, Enum]]
Kinds = tuple[type[UmqMessage], ...]

ATTACHMENTS: Final[Kinds] = (Data, AttachmentError)
OPEN_MESSAGES: Final[Kinds] = (
    *ATTACHMENTS,
    *(Callback, Result, Error, NotRun),
    *(TopicUpdate, TopicClose, Unsubscribe),
    *(SetVariable, UnsetVariable),
)


_FATAL: Final[dict[type, Enum]] = {Fatal: State.CLOSED}


def transitions(*requests: type[UmqMessage]) -> Transitions:
    """Return the messages that the peer may send in each state, including the dialect's request messages."""
    return {
        State.NEW: _FATAL,
        State.AWAIT_HELLO: {Hello: State.GREETED, **_FATAL},
        State.GREETED: {**dict.fromkeys(ATTACHMENTS, State.GREETED), **_FATAL},
        State.AWAIT_WELCOME: {Welcome: State.OPEN, **_FATAL},
        State.OPEN: {**dict.fromkeys(OPEN_MESSAGES + requests, State.OPEN), **_FATAL},
        State.CLOSED: {},
    }


def own_transitions(*requests: type[UmqMessage]) -> Transitions:
    """Return the messages that we may send in each state, and the next state."""
    return {
        State.NEW: {Hello: State.AWAIT_WELCOME, **_FATAL},
        State.AWAIT_HELLO: _FATAL,
        State.GREETED: {Welcome: State.OPEN, **_FATAL},
        State.AWAIT_WELCOME: {**dict.fromkeys(ATTACHMENTS, State.AWAIT_WELCOME), **_FATAL},
        State.OPEN: {**dict.fromkeys(OPEN_MESSAGES + requests, State.OPEN), **_FATAL},
        State.CLOSED: {},
    }


def advance(table: Transitions, state: Enum, message: UmqMessage, rule: str) -> Enum:
    """Return the state after the peer's `message`; RemoteProtocolError if this state does not allow it."""
    next_state = table[state].get(type(message))
    if next_state is None:
        raise RemoteProtocolError(Fault.UNEXPECTED, f"{type(message).__name__} in state '{state.value}'", rule)
    return next_state
