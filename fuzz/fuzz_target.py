"""What a fuzzer tries, and what must hold whatever it comes up with."""

from collections.abc import Iterator
from enum import Enum
from functools import cache

from fiveways.errors import LocalProtocolError, RemoteProtocolError
from fiveways.model import messages as words
from fiveways.protocols.base import Conversation, ProtocolSpec, Role
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value
from tests.support import conversations as talks
from tests.support import vectors

SMALL = {"max_text": 2048, "max_attachments": 4, "max_expected_attachments": 8, "max_pending": 4, "max_variables": 4}
SPLIT = b"\xfe\xfe"
"""Stands between the packets of one input: no UTF-8 and hardly any CBOR or protobuf holds it."""
LONGEST_ANSWER = 8192
CLIENT, BINARY = 1, 2
"""Bits of the first byte of an input: which end is under test, and whether the packets are binary."""


class PropertyViolated(AssertionError):
    """An input did what no input may do."""


def try_input(spec: ProtocolSpec, data: bytes) -> None:
    """Feed one input to the codec and to a conversation.

    Raises:
        Broken: something that must hold did not.
    """
    flags, packets = data[:1] or b"\0", data[1:].split(SPLIT)
    role = Role.CLIENT if flags[0] & CLIENT else Role.SERVER
    talk = talks.converse(spec, role, SMALL)
    talks.open_up(talk, spec, role)
    now = 0.0
    for payload in packets[:16]:
        packet = Packet(payload, not flags[0] & BINARY, talks.CHANNEL.get(spec.name, ""))
        _try_codec(spec, packet)
        _try_conversation(talk, packet, now)
        now += 10.0
        if (deadline := talk.deadline()) is not None and deadline <= now:
            talk.wake(now)
            talk.take_packets()


def _try_codec(spec: ProtocolSpec, packet: Packet) -> None:
    try:
        messages = spec.decode(packet, Limits())
    except RemoteProtocolError:
        return
    for message in messages:
        try:
            written = spec.encode(message)
        except LocalProtocolError:
            continue
        again = list(spec.decode(written, Limits()))
        # By how they look, too: NaN equals nothing, itself included.
        if again != [message] and repr(again) != repr([message]):
            raise PropertyViolated(f"{message} was written as {written.payload!r} and read back as {again}")


def _try_conversation(talk: Conversation, packet: Packet, now: float) -> None:
    heard = talk.receive(packet, now)
    for word in heard:
        _read_bodies(word)
        _answer(talk, word, now)
    answer = sum(len(each.payload) for each in talk.take_packets())
    if answer > LONGEST_ANSWER + 2 * len(packet.payload):
        raise PropertyViolated(f"{answer} bytes answer {len(packet.payload)}")
    if talk.error is not None and not talk.closed:
        raise PropertyViolated("a broken protocol leaves the conversation open")


def _read_bodies(word: words.HubMessage) -> None:
    """What was passed up as well-formed must be readable in every encoding, or be refused in the documented way."""
    for field in word.__struct_fields__:
        body = getattr(word, field)
        if isinstance(body, Payload):
            for written in (body.value, body.text, body.json, body.nq, body.cbor, body.binary):
                try:
                    written()
                except LocalProtocolError:
                    continue


def _answer(talk: Conversation, word: words.HubMessage, now: float) -> None:
    if isinstance(word, words.Call | words.Publish | words.Subscribe) and word.id is not None and not talk.closed:
        try:
            talk.send(words.Result(word.id, Value(None)), now)
        except LocalProtocolError:
            return


@cache
def seeds(spec: ProtocolSpec) -> tuple[bytes, ...]:
    """The vectors as inputs: each packet alone, and each dialogue whole."""
    found = []
    for vector in vectors.load(spec):
        if vector.is_dialogue:
            packets = [vectors.packet(step["recv"]) for step in vector.entry["steps"] if "recv" in step]
        else:
            packets = [vectors.packet(vector.entry["packet"])]
        client = CLIENT if vector.entry.get("role") == "client" else 0
        found += [as_input(run, client) for run in _runs(packets)]
    return tuple(dict.fromkeys(found))


def _runs(packets: list[Packet]) -> Iterator[list[Packet]]:
    """The packets of one kind, text or binary, since an input is of one kind."""
    for kind in (True, False):
        if run := [packet for packet in packets if packet.is_text is kind]:
            yield run


def as_input(packets: list[Packet], client: int) -> bytes:
    """Packets of one kind as one input."""
    flags = client | (0 if packets[0].is_text else BINARY)
    return bytes([flags]) + SPLIT.join(packet.payload for packet in packets)


class Engine(Enum):
    """Who makes up the inputs."""

    ATHERIS = "atheris"
    """Guided by coverage; where it can be had."""
    PLAIN = "plain"
    """Random damage to the seeds; everywhere, and repeatable."""
