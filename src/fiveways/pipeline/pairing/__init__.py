"""Matching within one segment: from its messages to one row for each operation, and from such rows to calls.

What one segment cannot know is put together by `silver.calls`, with `merged`, and by `silver.orphans`.
"""

import numpy as np
import pyarrow as pa

from fiveways.pipeline.pairing import roles
from fiveways.pipeline.pairing.call_merging import merge_partial_calls
from fiveways.pipeline.pairing.calls import build_calls
from fiveways.pipeline.pairing.grouping import group_by_identifier, group_by_operation
from fiveways.pipeline.pairing.message_columns import BoolArray, Int64Array, MessageColumns
from fiveways.pipeline.pairing.orphans import build_orphans
from fiveways.pipeline.pairing.row_builder import RowBuilder
from fiveways.pipeline.pairing.schema import MERGED_CALLS, PARTIAL_CALLS

__all__ = ["MERGED_CALLS", "PARTIAL_CALLS", "build_calls", "build_orphans", "merge_partial_calls", "pair_messages"]


def pair_messages(messages: pa.Table) -> pa.Table:
    """Return one row for each operation that has a message here; where none is known, for each use of an identifier.

    The columns are those of `PIECES`; texts of few values may be in dictionaries, as they are in `messages`.
    """
    columns = MessageColumns(messages)
    role = roles.message_roles(
        columns.dictionary("kind"), columns.dictionary("direction"), columns.dictionary("protocol")
    )
    rows = columns.sorted_by_seq(np.flatnonzero(role))
    if not len(rows):
        return PARTIAL_CALLS.empty_table()
    role = role[rows]
    has_op = _matched_by_operation(columns, rows, role)
    if has_op.all():
        return RowBuilder(columns, group_by_operation(columns, rows, role), has_op=True).build_partial()
    tables = []
    if has_op.any():
        tables.append(
            RowBuilder(columns, group_by_operation(columns, rows[has_op], role[has_op]), has_op=True).build_partial()
        )
    rows, role = _drop_unkeyed(columns, rows[~has_op], role[~has_op])
    if len(rows):
        tables.append(RowBuilder(columns, group_by_identifier(columns, rows, role), has_op=False).build_partial())
    return pa.concat_tables(tables) if tables else PARTIAL_CALLS.empty_table()


def _matched_by_operation(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> BoolArray:
    """Return which messages are matched by their operation.

    A publication is one operation for all its subscribers, so that it tells none of their answers from another's: what
    passes between hub and subscriber is matched by identifiers.
    """
    ops = columns.dictionary("op")
    known = ops.codes[rows] >= 0
    if len(ops.values):
        is_publication = np.asarray(pa.compute.starts_with(ops.values, "p").to_numpy(zero_copy_only=False))
        known &= ~(is_publication[ops.codes[rows]] & roles.CALLEES[role])
    return np.asarray(known)


def _drop_unkeyed(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Leave out what has neither operation nor identifier, as has a cancellation in NQ that names a backchannel only.

    Requests and answers stay: they are calls and orphans whatever they lack.
    """
    known = (columns.dictionary("id").codes[rows] >= 0) | roles.OPENING[role] | roles.FINAL[role]
    return rows[known], role[known]
