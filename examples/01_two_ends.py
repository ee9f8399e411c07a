"""A call and its response in each protocol, frame by frame, without a network.

python examples/01_two_ends.py            in all protocols python examples/01_two_ends.py lrpm-json  in one protocol
"""

import sys
from random import Random

from fiveways.model.messages import Accepted, Call, Hello, HubMessage, Result, Welcome
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, Role
from fiveways.wire.payload import Value


def carry(source: Conversation, target: Conversation, arrow: str) -> list[HubMessage]:
    """Print the packets of one conversation, and pass them to the other one."""
    messages: list[HubMessage] = []
    for packet in source.take_packets():
        text = repr(packet.payload.decode()) if packet.is_text else packet.payload.hex(" ")
        print(f"  {arrow} {packet.channel} {text}")
        messages += target.receive(packet, 0.0)
    return messages


def converse(name: str) -> None:
    """Open a conversation, call `math.add`, answer it."""
    print(name)
    spec = registry.load(name)
    client, server = (
        spec.create_conversation(ConversationSetup("peer", role, Random())) for role in (Role.CLIENT, Role.SERVER)
    )
    if Hello in spec.sendable_messages:
        client.send(Hello(), 0.0)
        carry(client, server, "►")
        server.send(Welcome(), 0.0)
        carry(server, client, "◄")
    # A payload in MQTT is protobuf, or bytes if there is no schema; in the other protocols it is a value.
    numbers, total = (b"2 3", b"5") if name == "mqtt-rpc" else ([2, 3], 5)
    client.send(Call("my call", "math.add", Value(numbers)), 0.0)
    (call,) = carry(client, server, "►")
    assert isinstance(call, Call)
    if name == "nq":
        server.send(Accepted(call.id), 0.0)
    server.send(Result(call.id, Value(total)), 0.0)
    for message in carry(server, client, "◄"):
        if isinstance(message, Result) and message.body is not None:
            print(f"  {message.id}: {message.body.value()!r}")
    carry(client, server, "►")


if unknown := set(sys.argv[1:]) - set(registry.PROTOCOLS):
    sys.exit(f"unknown protocol {', '.join(sorted(unknown))}: choose from {', '.join(registry.PROTOCOLS)}")
for chosen in sys.argv[1:] or registry.PROTOCOLS:
    converse(chosen)
