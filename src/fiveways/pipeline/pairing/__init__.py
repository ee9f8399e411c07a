"""Matching of requests and responses: one row per operation of a segment, and calls from complete rows.

Operations with messages in several segments are merged by `silver.calls`, with `merge_partial_calls`, and checked for
missing requests by `silver.orphans`.
"""

import numpy as np
import pyarrow as pa

from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.pairing import roles
from fiveways.pipeline.pairing.call_merging import merge_partial_calls
from fiveways.pipeline.pairing.calls import build_calls
from fiveways.pipeline.pairing.grouping import group_by_identifier, group_by_operation
from fiveways.pipeline.pairing.message_columns import MessageColumns
from fiveways.pipeline.pairing.orphans import build_orphans
from fiveways.pipeline.pairing.row_builder import RowBuilder
from fiveways.pipeline.pairing.schema import MERGED_CALLS, PARTIAL_CALLS

__all__ = ["MERGED_CALLS", "PARTIAL_CALLS", "build_calls", "build_orphans", "merge_partial_calls", "pair_messages"]


def pair_messages(messages: pa.Table) -> pa.Table:
    """Return one row per operation of a segment; without an operation id, one per use of an identifier.

    The columns are those of `PARTIAL_CALLS`; text columns may be dictionary-encoded, as in `messages`.
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

    A publication is one operation for all its subscribers, so it does not separate their responses. Messages between
    hub and subscriber are therefore matched by identifier.
    """
    ops = columns.dictionary("op")
    known = ops.codes[rows] >= 0
    if len(ops.values):
        is_publication = np.asarray(pa.compute.starts_with(ops.values, "p").to_numpy(zero_copy_only=False))
        known &= ~(is_publication[ops.codes[rows]] & roles.CALLEES[role])
    return np.asarray(known)


def _drop_unkeyed(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Drop messages with neither operation nor identifier, such as an NQ cancellation that names only a backchannel.

    Requests and final responses stay: they are calls and orphans in any case.
    """
    known = (columns.dictionary("id").codes[rows] >= 0) | roles.OPENING[role] | roles.FINAL[role]
    return rows[known], role[known]
