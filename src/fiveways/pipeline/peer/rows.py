"""A publication as a row, and rows on their way from the driver to Spark's workers."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from fiveways.wire.payload import Value

SCHEMA: Final = "topic string, data string, at long, missed long, gap boolean, reader string, seq long"
"""One row per publication that came. Columns: https://github.com/fiveways/fiveways/blob/main/docs/spark-peer.md"""
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
"""Bytes of a row in memory besides its texts, about."""


class TopicRow(NamedTuple):
    """What Spark gets."""

    topic: str
    """Segments joined by dots; a dot within a segment is `%2E`."""
    data: str
    """JSON, as every peer that speaks JSON would get it."""
    at: int
    """Nanoseconds since 1970 when it came to the reader."""
    missed: int
    """Publications before this one that are known to be lost: a queue on the way was full."""
    gap: bool
    """Whether the connection was new here: nobody knows what was published meanwhile."""
    reader: str
    """Whoever read it, by a name of its own; together with `seq` the key of a row."""
    seq: int
    """Counts the rows of one reader from 1, without holes."""

    @property
    def memory_size(self) -> int:
        """Bytes that it takes while it waits, about."""
        return _ROW_OVERHEAD + len(self.topic) + len(self.data)


def to_json(data: object) -> str:
    """Return a value as JSON; bytes and numbers that JSON has no word for become markers, as everywhere."""
    return Value(data).json().decode()


def encode_rows(rows: Sequence[TopicRow]) -> bytes:
    """Return rows as Arrow's stream format, which goes through Spark's plan as one value."""
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ARROW, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW) as stream:
        stream.write_batch(pa.record_batch(columns, schema=ARROW))
    return bytes(sink.getvalue())


def decode_rows(data: bytes) -> Iterator[pa.RecordBatch]:
    """Return them again."""
    with pa.ipc.open_stream(data) as stream:
        yield from stream
