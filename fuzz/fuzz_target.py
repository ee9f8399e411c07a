"""The target of the protocol fuzzers: try an input, and check the properties that hold for every input."""

from collections.abc import Iterator
from enum import Enum
from functools import cache

from fiveways.errors import LocalProtocolError, RemoteProtocolError
from fiveways.model import messages as msgs
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value
from tests.support import conversations, vectors

SMALL = {"max_text": 2048, "max_attachments": 4, "max_expected_attachments": 8, "max_pending": 4, "max_variables": 4}
SPLIT = b"\xfe\xfe"
"""Separates the packets of one input; it is not UTF-8, and rare in CBOR and protobuf."""
MAX_RESPONSE = 8192
CLIENT, BINARY = 1, 2
"""Bits of the first byte of an input: the tested role, and whether the packets are binary."""


class PropertyViolated(AssertionError):
    """An input violated a property that must hold for every input."""


def try_input(spec: ProtocolSpec, data: bytes) -> None:
    """Feed one input to the codec and to a conversation.

    Raises:
        PropertyViolated: A property does not hold.
    """
    flags, packets = data[:1] or b"\0", data[1:].split(SPLIT)
    role = Role.CLIENT if flags[0] & CLIENT else Role.SERVER
    conversation = conversations.create_conversation(spec, role, SMALL)
    conversations.complete_handshake(conversation, spec, role)
    now = 0.0
    for payload in packets[:16]:
        packet = Packet(payload, not flags[0] & BINARY, conversations.CHANNEL.get(spec.name, ""))
        _try_codec(spec, packet)
        _try_conversation(conversation, packet, now)
        now += 10.0
        if (deadline := conversation.deadline()) is not None and deadline <= now:
            conversation.wake(now)
            conversation.take_packets()


def _try_codec(spec: ProtocolSpec, packet: Packet) -> None:
    try:
        messages = spec.decode(packet, Limits())
    except RemoteProtocolError:
        return
    for message in messages:
        try:
            encoded = spec.encode(message)
        except LocalProtocolError:
            continue
        decoded = list(spec.decode(encoded, Limits()))
        # Compare the repr too: NaN does not equal itself.
        if decoded != [message] and repr(decoded) != repr([message]):
            raise PropertyViolated(f"{message} was written as {encoded.payload!r} and read back as {decoded}")


def _try_conversation(conversation: Conversation, packet: Packet, now: float) -> None:
    messages = conversation.receive(packet, now)
    for message in messages:
        _read_bodies(message)
        _answer(conversation, message, now)
    size = sum(len(reply.payload) for reply in conversation.take_packets())
    if size > MAX_RESPONSE + 2 * len(packet.payload):
        raise PropertyViolated(f"{size} bytes in response to {len(packet.payload)}")
    if conversation.error is not None and not conversation.closed:
        raise PropertyViolated("a protocol error left the conversation open")


def _read_bodies(message: msgs.HubMessage) -> None:
    """Check that a received body can be read in every encoding, or raises LocalProtocolError."""
    for field in message.__struct_fields__:
        body = getattr(message, field)
        if isinstance(body, Payload):
            for encode in (body.value, body.text, body.json, body.nq, body.cbor, body.binary):
                try:
                    encode()
                except LocalProtocolError:
                    continue


def _answer(conversation: Conversation, message: msgs.HubMessage, now: float) -> None:
    if (
        isinstance(message, msgs.Call | msgs.Publish | msgs.Subscribe)
        and message.id is not None
        and not conversation.closed
    ):
        try:
            conversation.send(msgs.Result(message.id, Value(None)), now)
        except LocalProtocolError:
            return


@cache
def seeds(spec: ProtocolSpec) -> tuple[bytes, ...]:
    """Return the vectors as inputs: each packet, and each dialogue as a whole."""
    inputs = []
    for vector in vectors.load(spec):
        if vector.is_dialogue:
            packets = [vectors.packet(step["recv"]) for step in vector.entry["steps"] if "recv" in step]
        else:
            packets = [vectors.packet(vector.entry["packet"])]
        client = CLIENT if vector.entry.get("role") == "client" else 0
        inputs += [as_input(run, client) for run in _runs(packets)]
    return tuple(dict.fromkeys(inputs))


def _runs(packets: list[Packet]) -> Iterator[list[Packet]]:
    """Yield the text packets, then the binary packets; an input has only one kind."""
    for kind in (True, False):
        if run := [packet for packet in packets if packet.is_text is kind]:
            yield run


def as_input(packets: list[Packet], client: int) -> bytes:
    """Return packets of one kind as one input."""
    flags = client | (0 if packets[0].is_text else BINARY)
    return bytes([flags]) + SPLIT.join(packet.payload for packet in packets)


class Engine(Enum):
    """The source of the inputs."""

    ATHERIS = "atheris"
    """Guided by coverage, on platforms that have atheris."""
    PLAIN = "plain"
    """Random damage to the seeds; on every platform, and reproducible."""
