"""Schema of the journal: the columns that the hub writes and the pipeline reads.

A record is a frame or a marker: a session that was opened or closed, a dropped message, or a denied request.
"""

from typing import Final

import pyarrow as pa

from fiveways.wire.packet import NO_OPERATION

SCHEMA_VERSION: Final = 1
"""Incremented when the meaning of a column changes; readers ignore unknown columns."""

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),  # increments by one per record of a run
        pa.field(
            "at", pa.int64(), nullable=False
        ),  # ns since 1970; for an outbound frame, the time of the write to the socket
        pa.field("node", pa.string()),  # name of the node: host name or journal.node
        pa.field("run", pa.string(), nullable=False),  # id of one hub process, from start to stop
        pa.field("session", pa.string(), nullable=False),  # one connection
        pa.field("peer", pa.string()),  # NQ: the conversation, over all its connections; else the identity
        pa.field("protocol", pa.string(), nullable=False),  # umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc, nq
        pa.field("transport", pa.string()),  # ws, http, zmq, mqtt, memory
        pa.field("direction", pa.string(), nullable=False),  # in: to the hub; out: from the hub
        pa.field("kind", pa.string(), nullable=False),  # text, binary, open, close, drop, deny
        pa.field("channel", pa.string()),  # MQTT topic or HTTP path
        pa.field("op", pa.string()),  # the routed call or publication, the same on both sides of the hub
        pa.field("payload", pa.binary()),  # as on the wire, apart from redaction and truncation
        pa.field("size", pa.int32()),  # bytes of the complete payload
        pa.field("reason", pa.string()),  # reason of a close, a drop or a denial
        pa.field("queued_ns", pa.int64()),  # wait of an outbound frame in the hub
    ],
    metadata={"fiveways.journal": str(SCHEMA_VERSION)},
)
OPTIONAL_COLUMNS: Final = frozenset({"queued_ns"})
"""Columns that captures from other tools may lack."""
FRAME_KINDS: Final = frozenset({"text", "binary"})
"""Kinds with a payload."""
MARKER_KINDS: Final = frozenset({"open", "close", "drop", "deny"})
"""Kinds of markers, which have no payload."""


def split_ops(op: str | None, messages: int) -> list[str | None]:
    """Return the operation of each message of a frame, as written by `wire.packet.join_ops`.

    If their numbers differ, all operations are None.
    """
    ops = op.split(" ") if op else []
    if len(ops) != messages:
        return [None] * messages
    return [None if message_op == NO_OPERATION else message_op for message_op in ops]
