"""Records for tests of decoding: frames of the protocols' test vectors, and finds of the fuzzer."""

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
RECORD: dict[str, Any] = {
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
    values = {"protocol": protocol, "payload": payload, "direction": direction, "kind": kind, "size": size}
    return RECORD | values | more


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    numbered = [{**record, "seq": number} for number, record in enumerate(rows)]
    return pa.RecordBatch.from_pylist(numbered, schema.SCHEMA)


@cache
def packets(protocol: str) -> list[Packet]:
    """Return every packet that the protocol's vectors receive, valid or not, except those stored as files."""
    received: list[Packet] = []
    for vector in vectors.load(registry.load(protocol)):
        entry = vector.entry
        steps = [step["recv"] for step in entry["steps"] if "recv" in step] if vector.is_dialogue else [entry["packet"]]
        received += [vectors.packet(step) for step in steps]
    return [packet for packet in received if packet.blob is None]


@cache
def vector_rows() -> list[dict[str, Any]]:
    """Return each of these packets in both directions, as part of a call, a publication, and neither."""
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


def fuzzer_find_rows() -> Iterator[dict[str, Any]]:
    """Yield the finds of the fuzzer as frames of every protocol."""
    for path in sorted(FINDS.glob("*.bin")):
        for payload in (path.read_bytes(), path.read_bytes()[1:]):
            for protocol in registry.PROTOCOLS:
                yield row(protocol, payload, channel="/a")


def assert_paths_agree(rows: Iterable[dict[str, Any]]) -> DecodedTables:
    """Check that the fast path and the general path give the same tables; return them."""
    records = batch(rows)
    general, fast = decode_general(records), decode_batch(records, min_frames=1)
    for name in DecodedTables._fields:
        expected, decoded = getattr(general, name), getattr(fast, name)
        decoded.validate(full=True)
        assert decoded.schema == expected.schema
        for general_row, fast_row in zip(expected.to_pylist(), decoded.to_pylist(), strict=False):
            seq = general_row["seq"]
            assert general_row == fast_row, f"{name}: {records['payload'][seq]} {records['protocol'][seq]}"
        assert len(decoded) == len(expected), name
    return fast
