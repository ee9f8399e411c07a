"""Matching within one segment: from its messages to one row for each operation, and from such rows to calls.

What one segment cannot know is put together by `silver.calls`, with `merged`, and by `silver.orphans`.
"""

import numpy as np
import pyarrow as pa

from fiveways.pipeline.pieces import roles
from fiveways.pipeline.pieces.assemble import Rows
from fiveways.pipeline.pieces.calls import calls_of
from fiveways.pipeline.pieces.columns import Columns, Flags, Longs
from fiveways.pipeline.pieces.keys import by_identifier, by_operation
from fiveways.pipeline.pieces.merging import merged
from fiveways.pipeline.pieces.orphans import orphans_of
from fiveways.pipeline.pieces.schema import MERGED, PIECES

__all__ = ["MERGED", "PIECES", "calls_of", "merged", "orphans_of", "pieces_of"]


def pieces_of(messages: pa.Table) -> pa.Table:
    """Return one row for each operation that has a message here; where none is known, for each use of an identifier.

    The columns are those of `PIECES`; texts of few values may be in dictionaries, as they are in `messages`.
    """
    columns = Columns(messages)
    role = roles.roles(columns.coded("kind"), columns.coded("direction"), columns.coded("protocol"))
    rows = columns.in_order(np.flatnonzero(role))
    if not len(rows):
        return PIECES.empty_table()
    role = role[rows]
    has_op = _have_ops(columns, rows, role)
    if has_op.all():
        return Rows(columns, by_operation(columns, rows, role), has_op=True).table()
    tables = []
    if has_op.any():
        tables.append(Rows(columns, by_operation(columns, rows[has_op], role[has_op]), has_op=True).table())
    rows, role = _with_key(columns, rows[~has_op], role[~has_op])
    if len(rows):
        tables.append(Rows(columns, by_identifier(columns, rows, role), has_op=False).table())
    return pa.concat_tables(tables) if tables else PIECES.empty_table()


def _have_ops(columns: Columns, rows: Longs, role: Longs) -> Flags:
    """Return which messages are matched by their operation.

    A publication is one operation for all its subscribers, so that it tells none of their answers from another's: what
    passes between hub and subscriber is matched by identifiers.
    """
    ops = columns.coded("op")
    known = ops.codes[rows] >= 0
    if len(ops.values):
        is_publication = np.asarray(pa.compute.starts_with(ops.values, "p").to_numpy(zero_copy_only=False))
        known &= ~(is_publication[ops.codes[rows]] & roles.CALLEES[role])
    return np.asarray(known)


def _with_key(columns: Columns, rows: Longs, role: Longs) -> tuple[Longs, Longs]:
    """Leave out what has neither operation nor identifier, as has a cancellation in NQ that names a backchannel only.

    Requests and answers stay: they are calls and orphans whatever they lack.
    """
    known = (columns.coded("id").codes[rows] >= 0) | roles.OPENING[role] | roles.FINAL[role]
    return rows[known], role[known]
