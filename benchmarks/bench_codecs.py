"""What it costs to read and write a typical call and its answer, in every protocol.

    python benchmarks/bench_codecs.py [--rounds 15] [--calls 1000]

Absolute times move with the machine, and on a shared one from second to second. So each row is also given as a
multiple of one `msgspec.json.decode` of a call, which is measured right before it every time. All rows are measured in
turn, round after round; the table shows medians and, as spread, the distance between the quartiles of the multiple.

"Parse and serialise" is the codec alone: a frame becomes a message, its body checked and not decoded, and a frame
again. "Routed call" is what a hub does with it but for the routing: the caller's conversation receives it, the callee's
conversation sends it.
"""

import argparse
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import median, quantiles
from time import process_time_ns

import cbor2
import msgspec

from fiveways.model import messages as words
from fiveways.protocols import registry
from fiveways.protocols.base import Conversation, ConversationSetup, ProtocolSpec, Role
from fiveways.wire import base91
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload, Value

REFERENCE = b'[40,13,"account.get_balance",{"user":"alice","n":5},{}]'
BODY = {"user": "alice", "n": 5, "since": "2024-01-31", "tags": ["a", "b"]}
METHOD = "account.get_balance"
GOALS = {"umq36": 3, "umq": 3, "lrpm-json": 3, "nq": 3, "lrpm-cbor": 6, "mqtt-rpc": 6}
"""Microseconds to parse and serialise a routed call on a machine where the reference takes 0.36 us."""
GOAL_REFERENCE_US = 0.36
OPTIONS = {"mqtt-rpc": {"serve": {"/account": {"get_balance": "unary"}}}}
LIMITS = Limits(max_pending=1 << 20)


@dataclass
class Row:
    """One thing that is measured, in nanoseconds a piece."""

    label: str
    run: Callable[[int], int]
    """Does it so many times; the nanoseconds that it took."""
    nanoseconds: list[float] = field(default_factory=list)
    multiples: list[float] = field(default_factory=list)

    def measure(self, times: int) -> None:
        """One round: the reference, then this."""
        reference = REFERENCE_RUN(times) / times
        self.nanoseconds.append(self.run(times) / times)
        self.multiples.append(self.nanoseconds[-1] / reference)

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the multiple."""
        low, _, high = quantiles(self.multiples, n=4)
        return high - low


def timed(function: Callable[..., object], *arguments: object) -> Callable[[int], int]:
    """Call it again and again."""

    def run(times: int) -> int:
        start = process_time_ns()
        for _ in range(times):
            function(*arguments)
        return process_time_ns() - start

    return run


REFERENCE_RUN = timed(msgspec.json.decode, REFERENCE)


def body(spec: ProtocolSpec) -> Payload:
    """About a hundred bytes of frame in every protocol; MQTT without a schema takes bytes."""
    return Value(msgspec.json.encode(BODY) if spec.name == "mqtt-rpc" else BODY)


def opened(spec: ProtocolSpec, role: Role) -> Conversation:
    """A conversation behind its handshake."""
    ends = {
        each: spec.create_conversation(ConversationSetup("peer", each, Random(7), LIMITS, OPTIONS.get(spec.name)))
        for each in (Role.CLIENT, Role.SERVER)
    }
    if words.Hello in spec.sendable_messages:
        ends[Role.CLIENT].send(words.Hello(), 0.0)
        carry(ends[Role.CLIENT], ends[Role.SERVER])
        ends[Role.SERVER].send(words.Welcome(), 0.0)
        carry(ends[Role.SERVER], ends[Role.CLIENT])
    return ends[role]


def carry(source: Conversation, target: Conversation) -> None:
    """What one has to say, the other hears."""
    for packet in source.take_packets():
        target.receive(packet, 0.0)


def calls(spec: ProtocolSpec, times: int) -> list[Packet]:
    """So many calls, as a client sends them one by one."""
    client = opened(spec, Role.CLIENT)
    packets = []
    for number in range(times):
        client.send(words.Call(f"c{number}", METHOD, body(spec)), 0.0)
        packets += client.take_packets()
    return packets


def routed(spec: ProtocolSpec) -> Callable[[int], int]:
    """The caller's frame in, checked, and the callee's frame out: what a hub does with a call, but for the routing."""

    def run(times: int) -> int:
        packets = calls(spec, times)
        caller, callee = opened(spec, Role.SERVER), opened(spec, Role.SERVER)
        start = process_time_ns()
        for number, packet in enumerate(packets):
            (call,) = caller.receive(packet, 0.0)
            callee.send(words.Call(f"h{number}", call.method, call.body), 0.0)  # type: ignore[attr-defined]
            callee.take_packets()
        return process_time_ns() - start

    return run


def rows_of(spec: ProtocolSpec) -> Iterator[Row]:
    """What is measured of one protocol."""
    (call,) = calls(spec, 1)
    server = opened(spec, Role.SERVER)
    (heard,) = server.receive(call, 0.0)
    server.send(words.Result(heard.id, body(spec)), 0.0)  # type: ignore[attr-defined]
    answer = server.take_packets()[-1]
    for kind, packet in (("call", call), ("answer", answer)):
        (message,) = spec.decode(packet, LIMITS)
        size = len(packet.payload)
        yield Row(f"{spec.name}: decode {kind} ({size} bytes)", timed(spec.decode, packet, LIMITS))
        yield Row(f"{spec.name}: encode {kind}", timed(spec.encode, message))
    yield Row(f"{spec.name}: parse and serialise", timed(lambda: spec.encode(spec.decode(call, LIMITS)[0])))
    yield Row(f"{spec.name}: routed call", routed(spec))


def peers() -> Iterator[Row]:
    """What others take for the like; the first row is the reference."""
    value = json.loads(REFERENCE)
    packed = cbor2.dumps(value)
    blob = Random(7).randbytes(1024)
    text91, text64 = base91.encode(blob), base64.b64encode(blob)
    yield Row("msgspec.json decode", timed(msgspec.json.decode, REFERENCE))
    yield Row("msgspec.json encode", timed(msgspec.json.encode, value))
    yield Row("json (standard library) decode", timed(json.loads, REFERENCE))
    yield Row("json (standard library) encode", timed(json.dumps, value))
    yield Row("cbor2 decode", timed(cbor2.loads, packed))
    yield Row("cbor2 encode", timed(cbor2.dumps, value))
    yield Row(f"base91 encode 1 KiB ({len(text91)} characters)", timed(base91.encode, blob))
    yield Row("base91 decode 1 KiB", timed(base91.decode, text91))
    yield Row(f"base64 encode 1 KiB ({len(text64)} characters)", timed(base64.b64encode, blob))
    yield Row("base64 decode 1 KiB", timed(base64.b64decode, text64))


def main() -> None:
    """Measure all rows in turn, then print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000, help="of each row in each round")
    options = parser.parse_args()
    rows = [*peers(), *(row for spec in registry.all_specs() for row in rows_of(spec))]
    for _ in range(options.rounds):
        for row in rows:
            row.measure(options.calls)
    print(f"{'':42} {'ns':>8} {'x reference':>12} {'spread':>8}")
    for row in rows:
        print(
            f"{row.label:42} {median(row.nanoseconds):8.0f} {median(row.multiples):12.1f} {row.spread:8.1f}{goal(row)}"
        )
    print(f"\nx reference: multiples of the first row, msgspec.json decode of {len(REFERENCE)} bytes")


def goal(row: Row) -> str:
    """What the codec should cost, as a multiple of the reference."""
    name, _, what = row.label.partition(": ")
    return f"   goal {GOALS[name] / GOAL_REFERENCE_US:.1f}" if what == "parse and serialise" else ""


if __name__ == "__main__":
    main()
