"""Schemas of partial calls, the rows between messages and calls."""

from typing import Final

import pyarrow as pa

_STRING, _LONG, _INT, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.bool_()

# One message that no column of its row contains. `what` is the name of a role.
MESSAGE_STRUCT: Final = pa.struct(
    [
        ("what", _STRING),
        ("at", _LONG),
        ("seq", _LONG),
        ("part", _INT),
        ("session", _STRING),
        ("peer", _STRING),
        ("protocol", _STRING),
        ("transport", _STRING),
        ("op", _STRING),
        ("id", _STRING),
        ("target", _STRING),
        ("method", _STRING),
        ("status", _STRING),
        ("reason", _STRING),
        ("code", _STRING),
        ("size", _INT),
    ]
)


def _position_columns(name: str) -> list[tuple[str, pa.DataType]]:
    """Return the columns with the position of a message.

    The target is filled in NQ without an operation id, where it distinguishes a repeat from another message.
    """
    return [(f"{name}_at", _LONG), (f"{name}_seq", _LONG), (f"{name}_part", _INT), (f"{name}_target", _STRING)]


# One row per operation of a segment; without an operation id, one per use of an identifier on one side of a call. The
# columns of a message (requested, forwarded, ...) are those of the first one by (seq, part).
PARTIAL_CALLS: Final = pa.schema(
    [
        ("run", _STRING),
        ("op", _STRING),  # null: leg, scope and id identify the row, and `head` is true for the first use
        ("leg", _STRING),  # side of the call: caller, callee
        ("scope", _STRING),  # validity of the identifier
        ("id", _STRING),
        ("head", _BOOL),
        ("bucket", _LONG),  # rows of one key share a bucket; most buckets have rows of one segment only
        *_position_columns("requested"),
        ("request_size", _INT),
        ("method", _STRING),
        ("caller_session", _STRING),
        ("caller_peer", _STRING),
        ("caller_protocol", _STRING),
        *_position_columns("forwarded"),
        ("callee_method", _STRING),
        ("callee_session", _STRING),
        ("callee_peer", _STRING),
        ("callee_protocol", _STRING),
        *_position_columns("returned"),
        ("returned_status", _STRING),
        ("returned_reason", _STRING),
        ("returned_code", _STRING),
        *_position_columns("answered"),
        ("status", _STRING),
        ("reason", _STRING),
        ("code", _STRING),
        ("answer_size", _INT),
        *_position_columns("accepted"),
        *_position_columns("cancelled"),
        ("attempts", _INT),
        ("answers", _INT),
        ("forwards", _INT),
        ("returns", _INT),
        ("parts", _INT),
        ("progress", _INT),
        ("useless", _INT),
        ("others_in", _INT),  # requests that are not calls but have responses
        ("others_out", _INT),
        # With an operation id: repeated requests. Without one: all messages that no column contains, because their
        # order across all segments decides to which use of the identifier they belong.
        ("more", pa.list_(MESSAGE_STRUCT)),
        ("strays", pa.list_(MESSAGE_STRUCT)),  # final responses on a side without a request in this segment
    ]
)

_PARTIAL_ONLY_COLUMNS = ("scope", "id", "head", "bucket", "more", "strays")
# One row per operation, or use of an identifier, with the messages of all segments.
MERGED_CALLS: Final = pa.schema(
    [
        field
        for field in PARTIAL_CALLS
        if field.name not in _PARTIAL_ONLY_COLUMNS and not field.name.endswith(("_seq", "_part", "_target"))
    ]
)
