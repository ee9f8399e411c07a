"""A call and its answer in any of the protocols, frame by frame, without a network.

python examples/01_two_ends.py            in all of them
python examples/01_two_ends.py lrpm-json  in one
"""

import sys
from random import Random

from fiveways.model.messages import Accepted, Call, Hello, HubMessage, Result, Welcome
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, Role
from fiveways.wire.payload import Value


def carry(source: Conversation, target: Conversation, arrow: str) -> list[HubMessage]:
    """Show what one end has to say, and give what the other hears."""
    heard: list[HubMessage] = []
    for packet in source.take_packets():
        shown = repr(packet.payload.decode()) if packet.is_text else packet.payload.hex(" ")
        print(f"  {arrow} {packet.channel} {shown}")
        heard += target.receive(packet, 0.0)
    return heard


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
    # MQTT carries protobuf, or without a schema bytes; the others carry values.
    numbers, total = (b"2 3", b"5") if name == "mqtt-rpc" else ([2, 3], 5)
    client.send(Call("my call", "math.add", Value(numbers)), 0.0)
    (call,) = carry(client, server, "►")
    assert isinstance(call, Call)
    if name == "nq":
        server.send(Accepted(call.id), 0.0)
    server.send(Result(call.id, Value(total)), 0.0)
    for word in carry(server, client, "◄"):
        if isinstance(word, Result) and word.body is not None:
            print(f"  {word.id}: {word.body.value()!r}")
    carry(client, server, "►")


if unknown := set(sys.argv[1:]) - set(registry.PROTOCOLS):
    sys.exit(f"there is no protocol {', '.join(sorted(unknown))}: choose of {', '.join(registry.PROTOCOLS)}")
for chosen in sys.argv[1:] or registry.PROTOCOLS:
    converse(chosen)
