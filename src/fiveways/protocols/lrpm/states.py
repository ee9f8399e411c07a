"""The states of a session, and the messages that each side may send in each state.

The spec has INIT, AUTH and OKAY. Before OKAY client and server alternate (LRPM-a03). Therefore INIT and AUTH are split
by the side that must send next, and a message out of turn is missing in the row of the state.
"""

from enum import Enum
from typing import Final, TypeAlias

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
    """The state of a session."""

    CLIENT_INIT = "INIT, before our HELLO"
    INIT = "INIT, before the client's HELLO"
    AWAIT_SERVER = "INIT or AUTH, before the server's answer"
    """After our HELLO or PROOF: a HELLO accepts us, a PROVE asks for a proof."""
    AWAIT_DECISION = "INIT or AUTH, before our answer"
    """After the client's HELLO or PROOF: accept it, ask for a proof, or close."""
    AUTH = "AUTH, before the client's PROOF"
    PROVING = "AUTH, before our PROOF"
    OKAY = "OKAY"
    CLOSED = "CLOSED"


OPEN_MESSAGES: Final[tuple[type, ...]] = (
    *(Call, Result, Error, Cancel),
    *(Event, Publish, Published, Subscribe, Subscribed, Unsubscribe, Unsubscribed),
    Application,
)
Transitions: TypeAlias = dict[Enum, dict[type, Enum]]

TRANSITIONS: Final[Transitions] = {
    State.CLIENT_INIT: {Goodbye: State.CLOSED},
    State.INIT: {Hello: State.AWAIT_DECISION, Goodbye: State.CLOSED},
    State.AWAIT_SERVER: {Hello: State.OKAY, Prove: State.PROVING, Goodbye: State.CLOSED},
    State.AWAIT_DECISION: {Goodbye: State.CLOSED},
    State.AUTH: {Proof: State.AWAIT_DECISION, Goodbye: State.CLOSED},
    State.PROVING: {Goodbye: State.CLOSED},
    State.OKAY: {**dict.fromkeys(OPEN_MESSAGES, State.OKAY), Goodbye: State.CLOSED},
    State.CLOSED: {},
}
"""The messages of the peer. A missing entry is a protocol error."""

OWN_TRANSITIONS: Final[Transitions] = {
    State.CLIENT_INIT: {Hello: State.AWAIT_SERVER, Goodbye: State.CLOSED},
    State.INIT: {Goodbye: State.CLOSED},
    State.AWAIT_SERVER: {Goodbye: State.CLOSED},
    State.AWAIT_DECISION: {Hello: State.OKAY, Prove: State.AUTH, Goodbye: State.CLOSED},
    State.AUTH: {Goodbye: State.CLOSED},
    State.PROVING: {Proof: State.AWAIT_SERVER, Goodbye: State.CLOSED},
    State.OKAY: {**dict.fromkeys(OPEN_MESSAGES, State.OKAY), Goodbye: State.CLOSED},
    State.CLOSED: {},
}
"""The messages that we may send."""


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's `message`.

    Raises:
        RemoteProtocolError: this state does not allow it (LRPM-09, -a03).
    """
    next_state = TRANSITIONS[state].get(type(message))
    if next_state is None:
        rule = "LRPM-09" if state is State.OKAY or type(message) in OPEN_MESSAGES else "LRPM-a03"
        text = f"{type(message).__name__.upper()} in state {state.value}"
        raise RemoteProtocolError(Fault.UNEXPECTED, text, rule)
    return next_state
