"""The states of a UMQ conversation: the family's, with two request messages of its own."""

from typing import Final

from fiveways.protocols.umq.messages import Call, Discover
from fiveways.protocols.umq_family.messages import Hello
from fiveways.protocols.umq_family.states import State, own_transitions, transitions

__all__ = ["OWN_TRANSITIONS", "TRANSITIONS", "State"]

# UMQ1-a11: a hello after the handshake is refused for what it is, not for when it comes; the conversation does so.
TRANSITIONS: Final = transitions(Call, Discover, Hello)
OWN_TRANSITIONS: Final = own_transitions(Call, Discover)
