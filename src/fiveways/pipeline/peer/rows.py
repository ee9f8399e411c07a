"""Row of a publication, and the encoding of rows for the way from the driver to Spark's workers."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from fiveways.wire.payload import Value

SCHEMA: Final = "topic string, data string, at long, missed long, gap boolean, reader string, seq long"
"""One row per received publication. Columns: https://github.com/fiveways/fiveways/blob/main/docs/spark-peer.md"""
ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("data", pa.string()),
        ("at", pa.int64()),
        ("missed", pa.int64()),
        ("gap", pa.bool_()),
        ("reader", pa.string()),
        ("seq", pa.int64()),
    ]
)
_ROW_OVERHEAD: Final = 200
"""Approximate bytes of a row in memory besides its texts."""


class TopicRow(NamedTuple):
    """Row that Spark reads."""

    topic: str
    """Segments joined by dots; a dot within a segment is `%2E`."""
    data: str
    """JSON, in the form that JSON peers receive."""
    at: int
    """Unix time in nanoseconds at which the reader received it."""
    missed: int
    """Publications before this one that were lost because a queue was full."""
    gap: bool
    """True after a reconnect: publications before this row may be missing."""
    reader: str
    """Random id of the reader; together with `seq` the key of a row."""
    seq: int
    """Number of the row of this reader, from 1 without gaps."""

    @property
    def memory_size(self) -> int:
        """Approximate size in memory in bytes."""
        return _ROW_OVERHEAD + len(self.topic) + len(self.data)


def to_json(data: object) -> str:
    """Return a value as JSON; bytes and numbers that JSON cannot represent become markers."""
    return Value(data).json().decode()


def encode_rows(rows: Sequence[TopicRow]) -> bytes:
    """Encode rows as Arrow's stream format, one opaque value for Spark."""
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ARROW, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW) as stream:
        stream.write_batch(pa.record_batch(columns, schema=ARROW))
    return bytes(sink.getvalue())


def decode_rows(data: bytes) -> Iterator[pa.RecordBatch]:
    """Decode rows."""
    with pa.ipc.open_stream(data) as stream:
        yield from stream
