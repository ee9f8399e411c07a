"""What one segment says about the operations whose messages are in it: the columns between messages and calls."""

from typing import Final

import pyarrow as pa

_STRING, _LONG, _INT, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.bool_()

# One message that the columns of its row do not hold. `what` is one of the words of `roles`.
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
    """Return the columns that say where a message stands among all others.

    The target is there in NQ, where there is no operation: it tells a repeat from another message.
    """
    return [(f"{name}_at", _LONG), (f"{name}_seq", _LONG), (f"{name}_part", _INT), (f"{name}_target", _STRING)]


# One row per operation of a segment; where no operation is known, one per use of an identifier on one leg. The columns
# of a message (requested, forwarded, ...) are those of the first one by (seq, part).
PARTIAL_CALLS: Final = pa.schema(
    [
        ("run", _STRING),
        ("op", _STRING),  # null: the row is known by leg, scope and id, and `head` is true for the first of such rows
        ("leg", _STRING),  # caller, callee
        ("scope", _STRING),  # within which an identifier means one thing
        ("id", _STRING),
        ("head", _BOOL),
        ("bucket", _LONG),  # rows of one key are in one bucket; most buckets have rows of one segment only
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
        ("others_in", _INT),  # requests that are no calls, but are answered like them
        ("others_out", _INT),
        # With an operation: repeated requests. Without one: all messages that the columns above do not hold, since
        # their order decides to which use of the identifier they belong, and only all segments together know it.
        ("more", pa.list_(MESSAGE_STRUCT)),
        ("strays", pa.list_(MESSAGE_STRUCT)),  # final answers on a leg that has no request in this segment
    ]
)

_PARTIAL_ONLY_COLUMNS = ("scope", "id", "head", "bucket", "more", "strays")
# One row per operation, or use of an identifier, of all segments: what is known when nothing is left to be merged.
MERGED_CALLS: Final = pa.schema(
    [
        field
        for field in PARTIAL_CALLS
        if field.name not in _PARTIAL_ONLY_COLUMNS and not field.name.endswith(("_seq", "_part", "_target"))
    ]
)
