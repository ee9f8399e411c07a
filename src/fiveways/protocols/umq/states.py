"""The states of a UMQ conversation, with the two request messages of this dialect."""

from typing import Final

from fiveways.protocols.umq.messages import Call, Discover
from fiveways.protocols.umq_family.messages import Hello
from fiveways.protocols.umq_family.states import State, own_transitions, transitions

__all__ = ["OWN_TRANSITIONS", "TRANSITIONS", "State"]

# UMQ1-a11: a hello after the handshake is an unknown type, not an unexpected message; the conversation checks this.
TRANSITIONS: Final = transitions(Call, Discover, Hello)
OWN_TRANSITIONS: Final = own_transitions(Call, Discover)
