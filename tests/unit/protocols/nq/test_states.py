"""The states of requests: all are reachable, and only final ones have no transitions."""

from enum import Enum
from typing import Any

import pytest

from fiveways.errors import Fault, RemoteProtocolError
from fiveways.protocols.nq.messages import Idle
from fiveways.protocols.nq.states import (
    INCOMING_TRANSITIONS,
    OUTGOING_TRANSITIONS,
    IncomingState,
    OutgoingState,
    State,
    advance,
)


@pytest.mark.parametrize(
    ("table", "first", "last"),
    [
        (OUTGOING_TRANSITIONS, OutgoingState.SENT, OutgoingState.DONE),
        (INCOMING_TRANSITIONS, IncomingState.RECEIVED, IncomingState.ACKNOWLEDGED),
    ],
)
def test_states_are_reachable_and_only_the_last_is_final(table: Any, first: Enum, last: Enum) -> None:  # noqa: ANN401  two tables
    assert set(table) == set(type(first))
    reached, queue = {first}, [first]
    while queue:
        next_state = set(table[queue.pop()].values()) - reached
        reached |= next_state
        queue += next_state
    assert reached == set(type(first))
    assert [state for state, row in table.items() if not row] == [last]


def test_closed_connection_accepts_no_message() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        advance(State.CLOSED, Idle())
    assert caught.value.fault is Fault.UNEXPECTED
