"""The states of requests: every one can be reached, and the last ones are last."""

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
def test_every_state_can_be_reached_and_only_the_last_is_an_end(table: Any, first: Enum, last: Enum) -> None:  # noqa: ANN401  two tables
    assert set(table) == set(type(first))
    reached, todo = {first}, [first]
    while todo:
        after = set(table[todo.pop()].values()) - reached
        reached |= after
        todo += after
    assert reached == set(type(first))
    assert [state for state, row in table.items() if not row] == [last]


def test_nothing_may_come_over_a_closed_link() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        advance(State.CLOSED, Idle())
    assert caught.value.fault is Fault.UNEXPECTED
