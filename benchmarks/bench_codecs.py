"""The cost of decoding and encoding a typical call and its response, in every protocol.

    python benchmarks/bench_codecs.py [--rounds 15] [--calls 1000]

Absolute times depend on the machine, and on a shared one they change from second to second. So each row is also a
multiple of one `msgspec.json.decode` of a call, measured right before it. All rows are measured in turn, round after
round; the table has medians and, as spread, the interquartile range of the multiple.

"Parse and serialise" is the codec alone: a frame becomes a message, with its body checked and not decoded, and a frame
again. "Routed call" is the work of a hub without routing: the caller's conversation receives the call, the callee's
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

from fiveways.model import messages as msgs
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
"""Target in microseconds for parsing and serialising a call, on a machine where the reference takes 0.36 us."""
GOAL_REFERENCE_US = 0.36
OPTIONS = {"mqtt-rpc": {"serve": {"/account": {"get_balance": "unary"}}}}
LIMITS = Limits(max_pending=1 << 20)


@dataclass
class Row:
    """One measured operation, in nanoseconds per call."""

    label: str
    run: Callable[[int], int]
    """Perform the operation that many times; return the nanoseconds."""
    nanoseconds: list[float] = field(default_factory=list)
    multiples: list[float] = field(default_factory=list)

    def measure(self, times: int) -> None:
        """Measure the reference, then this operation."""
        reference = REFERENCE_RUN(times) / times
        self.nanoseconds.append(self.run(times) / times)
        self.multiples.append(self.nanoseconds[-1] / reference)

    @property
    def spread(self) -> float:
        """The interquartile range of the multiple."""
        low, _, high = quantiles(self.multiples, n=4)
        return high - low


def time_calls(function: Callable[..., object], *arguments: object) -> Callable[[int], int]:
    """Return a function that calls `function` repeatedly and returns the nanoseconds."""

    def run(times: int) -> int:
        start = process_time_ns()
        for _ in range(times):
            function(*arguments)
        return process_time_ns() - start

    return run


REFERENCE_RUN = time_calls(msgspec.json.decode, REFERENCE)


def body(spec: ProtocolSpec) -> Payload:
    """Return a body for about a hundred bytes of frame; MQTT without a schema takes bytes."""
    return Value(msgspec.json.encode(BODY) if spec.name == "mqtt-rpc" else BODY)


def open_conversation(spec: ProtocolSpec, role: Role) -> Conversation:
    """Return a conversation after its handshake."""
    ends = {
        end_role: spec.create_conversation(
            ConversationSetup("peer", end_role, Random(7), LIMITS, OPTIONS.get(spec.name))
        )
        for end_role in (Role.CLIENT, Role.SERVER)
    }
    if msgs.Hello in spec.sendable_messages:
        ends[Role.CLIENT].send(msgs.Hello(), 0.0)
        carry(ends[Role.CLIENT], ends[Role.SERVER])
        ends[Role.SERVER].send(msgs.Welcome(), 0.0)
        carry(ends[Role.SERVER], ends[Role.CLIENT])
    return ends[role]


def carry(source: Conversation, target: Conversation) -> None:
    """Pass the packets of one conversation to the other."""
    for packet in source.take_packets():
        target.receive(packet, 0.0)


def calls(spec: ProtocolSpec, times: int) -> list[Packet]:
    """Return calls as a client sends them one by one."""
    client = open_conversation(spec, Role.CLIENT)
    packets = []
    for number in range(times):
        client.send(msgs.Call(f"c{number}", METHOD, body(spec)), 0.0)
        packets += client.take_packets()
    return packets


def routed_call(spec: ProtocolSpec) -> Callable[[int], int]:
    """Return the measurement of a routed call: decode and check the caller's frame, encode the callee's."""

    def run(times: int) -> int:
        packets = calls(spec, times)
        caller, callee = open_conversation(spec, Role.SERVER), open_conversation(spec, Role.SERVER)
        start = process_time_ns()
        for number, packet in enumerate(packets):
            (call,) = caller.receive(packet, 0.0)
            callee.send(msgs.Call(f"h{number}", call.method, call.body), 0.0)  # type: ignore[attr-defined]
            callee.take_packets()
        return process_time_ns() - start

    return run


def rows_of(spec: ProtocolSpec) -> Iterator[Row]:
    """Return the measured operations of one protocol."""
    (call,) = calls(spec, 1)
    server = open_conversation(spec, Role.SERVER)
    (received,) = server.receive(call, 0.0)
    server.send(msgs.Result(received.id, body(spec)), 0.0)  # type: ignore[attr-defined]
    answer = server.take_packets()[-1]
    for kind, packet in (("call", call), ("answer", answer)):
        (message,) = spec.decode(packet, LIMITS)
        size = len(packet.payload)
        yield Row(f"{spec.name}: decode {kind} ({size} bytes)", time_calls(spec.decode, packet, LIMITS))
        yield Row(f"{spec.name}: encode {kind}", time_calls(spec.encode, message))
    yield Row(f"{spec.name}: parse and serialise", time_calls(lambda: spec.encode(spec.decode(call, LIMITS)[0])))
    yield Row(f"{spec.name}: routed call", routed_call(spec))


def reference_rows() -> Iterator[Row]:
    """Return the same operations of other libraries; the first row is the reference."""
    value = json.loads(REFERENCE)
    packed = cbor2.dumps(value)
    blob = Random(7).randbytes(1024)
    text91, text64 = base91.encode(blob), base64.b64encode(blob)
    yield Row("msgspec.json decode", time_calls(msgspec.json.decode, REFERENCE))
    yield Row("msgspec.json encode", time_calls(msgspec.json.encode, value))
    yield Row("json (standard library) decode", time_calls(json.loads, REFERENCE))
    yield Row("json (standard library) encode", time_calls(json.dumps, value))
    yield Row("cbor2 decode", time_calls(cbor2.loads, packed))
    yield Row("cbor2 encode", time_calls(cbor2.dumps, value))
    yield Row(f"base91 encode 1 KiB ({len(text91)} characters)", time_calls(base91.encode, blob))
    yield Row("base91 decode 1 KiB", time_calls(base91.decode, text91))
    yield Row(f"base64 encode 1 KiB ({len(text64)} characters)", time_calls(base64.b64encode, blob))
    yield Row("base64 decode 1 KiB", time_calls(base64.b64decode, text64))


def main() -> None:
    """Measure all rows in turn, then print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000, help="calls per row and round")
    options = parser.parse_args()
    rows = [*reference_rows(), *(row for spec in registry.all_specs() for row in rows_of(spec))]
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
    """Return the target of the codec as a multiple of the reference."""
    name, _, operation = row.label.partition(": ")
    return f"   goal {GOALS[name] / GOAL_REFERENCE_US:.1f}" if operation == "parse and serialise" else ""


if __name__ == "__main__":
    main()
