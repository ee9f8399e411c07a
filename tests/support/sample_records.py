"""Records to be decoded: made from frames as the protocols' own vectors have them, and from damaged ones."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from fiveways.journal import schema
from fiveways.pipeline.decode import DecodedTables
from fiveways.pipeline.decode.batches import decode_general
from fiveways.pipeline.decode.fastpath import decode_batch
from fiveways.protocols import registry
from fiveways.wire.packet import Packet
from tests.support import paths, vectors

FINDS = paths.ROOT / "fuzz" / "finds"
BINARY = ("lrpm-cbor", "mqtt-rpc")
ROOT: dict[str, Any] = {
    "seq": 0,
    "at": 1_000,
    "node": "n",
    "run": "r",
    "session": "s",
    "peer": None,
    "protocol": "umq",
    "transport": "ws",
    "direction": "in",
    "kind": "text",
    "channel": None,
    "op": None,
    "payload": None,
    "size": None,
    "reason": None,
    "queued_ns": None,
}


def row(protocol: str, payload: bytes | None, direction: str = "in", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    kind = "binary" if protocol in BINARY else "text"
    size = None if payload is None else len(payload)
    return {**ROOT, "protocol": protocol, "payload": payload, "direction": direction, "kind": kind, "size": size} | more


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    numbered = [{**each, "seq": number} for number, each in enumerate(rows)]
    return pa.RecordBatch.from_pylist(numbered, schema.SCHEMA)


@cache
def packets(protocol: str) -> list[Packet]:
    """Every packet that the protocol's vectors let come in, good or bad, but for those that lie on disk."""
    found: list[Packet] = []
    for vector in vectors.load(registry.load(protocol)):
        entry = vector.entry
        steps = [step["recv"] for step in entry["steps"] if "recv" in step] if vector.is_dialogue else [entry["packet"]]
        found += [vectors.packet(step) for step in steps]
    return [each for each in found if each.blob is None]


@cache
def from_vectors() -> list[dict[str, Any]]:
    """Each of them in both directions, as part of a call, of a publication, and of nothing."""
    return [
        row(
            protocol,
            packet.payload,
            direction,
            kind="text" if packet.is_text else "binary",
            channel=packet.channel or None,
            op=op,
        )
        for protocol in registry.PROTOCOLS
        for packet in packets(protocol)
        for direction in ("in", "out")
        for op in (None, "12", "p7")
    ]


def from_finds() -> Iterator[dict[str, Any]]:
    """What a fuzzer once found, whatever protocol it was found in."""
    for path in sorted(FINDS.glob("*.bin")):
        for payload in (path.read_bytes(), path.read_bytes()[1:]):
            for protocol in registry.PROTOCOLS:
                yield row(protocol, payload, channel="/a")


def assert_alike(rows: Iterable[dict[str, Any]]) -> DecodedTables:
    """Check that both ways tell the same, however few frames there are; return it."""
    records = batch(rows)
    plainly, quickly = decode_general(records), decode_batch(records, min_frames=1)
    for name in DecodedTables._fields:
        expected, found = getattr(plainly, name), getattr(quickly, name)
        found.validate(full=True)
        assert found.schema == expected.schema
        for one, other in zip(expected.to_pylist(), found.to_pylist(), strict=False):
            assert one == other, f"{name}: {records['payload'][one['seq']]} {records['protocol'][one['seq']]}"
        assert len(found) == len(expected), name
    return quickly
