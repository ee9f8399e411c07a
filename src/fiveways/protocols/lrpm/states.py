"""The states of a session, one table for both ends: it is asked about what is sent as well as what is received.

Who may speak next before the session is open is a matter of turns, and so of the conversation.
"""

from enum import Enum
from typing import Final

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.lrpm.messages import (
    Application,
    Call,
    Cancel,
    Error,
    Event,
    Goodbye,
    Hello,
    Message,
    Proof,
    Prove,
    Publish,
    Published,
    Result,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)


class State(Enum):
    """Where a session stands."""

    INIT = "INIT"
    """Nothing has been said."""
    AUTH = "AUTH"
    """The client has said HELLO; the server's HELLO, after as many PROVE and PROOF as it wants, is still to come."""
    OKAY = "OKAY"
    CLOSED = "CLOSED"


EXCHANGE: Final[tuple[type, ...]] = (
    *(Call, Result, Error, Cancel),
    *(Event, Publish, Published, Subscribe, Subscribed, Unsubscribe, Unsubscribed),
    Application,
)

TRANSITIONS: Final[dict[Enum, dict[type, Enum]]] = {
    State.INIT: {Hello: State.AUTH, Goodbye: State.CLOSED},
    State.AUTH: {Prove: State.AUTH, Proof: State.AUTH, Hello: State.OKAY, Goodbye: State.CLOSED},
    State.OKAY: {**dict.fromkeys(EXCHANGE, State.OKAY), Goodbye: State.CLOSED},
    State.CLOSED: {},
}


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's `message`; RemoteProtocolError if it may not come now (LRPM-09)."""
    after = TRANSITIONS[state].get(type(message))
    if after is None:
        text = f"{type(message).__name__.upper()} in state {state.value}"
        raise RemoteProtocolError(Fault.UNEXPECTED, text, "LRPM-09")
    return after
