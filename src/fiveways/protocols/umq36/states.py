"""The states of a UMQ36 conversation, with the request message of this dialect."""

from typing import Final

from fiveways.protocols.umq36.messages import Call
from fiveways.protocols.umq_family.states import State, own_transitions, transitions

__all__ = ["OWN_TRANSITIONS", "TRANSITIONS", "State"]

TRANSITIONS: Final = transitions(Call)
OWN_TRANSITIONS: Final = own_transitions(Call)
