"""The states of a session, and what either side may say in each; which end of the link we are shows only in them.

The document has INIT, AUTH and OKAY. Before OKAY the two ends take turns (LRPM-a03), so INIT and AUTH are split by
whose turn it is, and a message out of turn is simply one that its row does not have.
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
    """Where a session stands."""

    CLIENT_INIT = "INIT, before our HELLO"
    INIT = "INIT, before the client's HELLO"
    AWAIT_SERVER = "INIT or AUTH, before the server's answer"
    """HELLO or PROOF has been said; HELLO lets us in, PROVE asks for more."""
    AWAIT_DECISION = "INIT or AUTH, before our answer"
    """HELLO or PROOF has come; we let the client in, ask for more, or part."""
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
"""What the peer may say. A missing entry is its fault."""

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
"""What we may say."""


def advance(state: Enum, message: Message) -> Enum:
    """Return the state after the peer's `message`; RemoteProtocolError if it may not come now (LRPM-09, -a03)."""
    after = TRANSITIONS[state].get(type(message))
    if after is None:
        rule = "LRPM-09" if state is State.OKAY or type(message) in OPEN_MESSAGES else "LRPM-a03"
        text = f"{type(message).__name__.upper()} in state {state.value}"
        raise RemoteProtocolError(Fault.UNEXPECTED, text, rule)
    return after
