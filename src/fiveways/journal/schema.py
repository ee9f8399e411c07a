"""What is written down of every frame: the columns that the hub writes and the pipeline reads.

One record stands for one frame, or for a session that was opened or closed, a message that was dropped, a request that
was refused.
"""

from typing import Final

import pyarrow as pa

from fiveways.wire.packet import NO_OPERATION

SCHEMA_VERSION: Final = 1
"""Grows when a column changes its meaning; readers of this version ignore columns that they do not know."""

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),  # rises by one for each record of a run
        pa.field("at", pa.int64(), nullable=False),  # ns since 1970; of an out frame, when the socket got it
        pa.field("node", pa.string()),  # the machine, or whatever the operator calls it
        pa.field("run", pa.string(), nullable=False),  # one life of a hub, from start to end
        pa.field("session", pa.string(), nullable=False),  # one link
        pa.field("peer", pa.string()),  # NQ: the conversation, over all its links; else whose it is
        pa.field("protocol", pa.string(), nullable=False),  # umq36, umq, lrpm-json, lrpm-cbor, mqtt-rpc, nq
        pa.field("transport", pa.string()),  # ws, http, zmq, mqtt, memory
        pa.field("direction", pa.string(), nullable=False),  # in: to the hub; out: from it
        pa.field("kind", pa.string(), nullable=False),  # text, binary, open, close, drop, deny
        pa.field("channel", pa.string()),  # MQTT's topic, HTTP's path
        pa.field("op", pa.string()),  # the routed call or publication it belongs to, the same on both legs
        pa.field("payload", pa.binary()),  # as on the wire, but for what the policy cuts
        pa.field("size", pa.int32()),  # bytes of the whole payload
        pa.field("reason", pa.string()),  # of a close, a drop, a denial
        pa.field("queued_ns", pa.int64()),  # how long an out frame waited in the hub
    ],
    metadata={"fiveways.journal": str(SCHEMA_VERSION)},
)
OPTIONAL_COLUMNS: Final = frozenset({"queued_ns"})
"""Columns that another's capture may lack."""
FRAME_KINDS: Final = frozenset({"text", "binary"})
"""Kinds that have a payload."""
MARKER_KINDS: Final = frozenset({"open", "close", "drop", "deny"})
"""Kinds that say what happened, and have none."""


def split_ops(op: str | None, messages: int) -> list[str | None]:
    """Return the operation of each of a frame's messages, as `wire.packet.join_ops` wrote them.

    None belongs to any, if their number is another.
    """
    ops = op.split(" ") if op else []
    if len(ops) != messages:
        return [None] * messages
    return [None if each == NO_OPERATION else each for each in ops]
