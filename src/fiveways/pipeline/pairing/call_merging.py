"""Pieces of several segments put together: taken apart into messages, and matched like those of one."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.pairing import grouping, roles
from fiveways.pipeline.pairing.message_columns import Int64Array, MessageColumns
from fiveways.pipeline.pairing.row_builder import COUNT_COLUMNS, FIRST_MESSAGE_COLUMNS, POSITION_COLUMNS, RowBuilder
from fiveways.pipeline.pairing.schema import MERGED_CALLS, MESSAGE_STRUCT

_KEY: Final = ("run", "op", "leg", "scope", "id")
_MESSAGE_FIELDS: Final = [
    MESSAGE_STRUCT.field(name)
    for name in (
        *POSITION_COLUMNS,
        "session",
        "peer",
        "protocol",
        "target",
        "method",
        "status",
        "reason",
        "code",
        "size",
    )
]
_SCHEMA: Final = pa.schema([("piece", pa.int64()), ("role", pa.int64()), *_MESSAGE_FIELDS])
_COUNTED_ROLES: Final = (roles.PART, roles.PROGRESS, roles.OTHER_IN, roles.OTHER_OUT)
"""Roles whose first message no column tells."""


def merge_partial_calls(pieces: pa.Table) -> pa.Table:
    """Return one row for each operation, or use of an identifier, from all pieces of all that is in them."""
    told = _expand_messages(pieces)
    columns = MessageColumns(told)
    role, rows = columns.int64("role"), columns.sorted_by_seq(np.arange(len(told)))
    has_op = columns.array("op").is_valid().to_numpy(zero_copy_only=False)[rows]
    tables = [MERGED_CALLS.empty_table()]
    if has_op.any():
        grouped = grouping.group_by_operation(columns, rows[has_op], role[rows[has_op]])
        tables.append(RowBuilder(columns, grouped, has_op=True).build_merged())
    if not has_op.all():
        rows = rows[~has_op]
        grouped = grouping.group_by_use(columns, rows, role[rows], *_number_keys(columns, rows))
        tables.append(RowBuilder(columns, grouped, has_op=False).build_merged())
    return pa.concat_tables(tables)


def _number_keys(columns: MessageColumns, rows: Int64Array) -> tuple[Int64Array, int]:
    """Number the keys of messages without an operation."""
    key, bound = np.zeros(len(rows), np.int64), 1
    for name in _KEY:
        coded = columns.dictionary(name)
        size = len(coded.values) + 1
        key, bound = grouping.renumber(key * size + coded.codes[rows] + 1, bound * size)
    return key, bound


def _expand_messages(pieces: pa.Table) -> pa.Table:
    """Return the messages of pieces; where columns have only their number, so many that are alike."""
    has_op = pieces["op"].is_valid().to_numpy()
    counts = {role: pieces[name].to_numpy() for name, role in COUNT_COLUMNS.items()}
    tables = [_listed_messages(pieces)]
    for role, (prefix, further) in FIRST_MESSAGE_COLUMNS.items():
        sources = {name: f"{prefix}_{name}" for name in (*POSITION_COLUMNS, "target")}
        sources |= {source: name for name, source in further.items()}
        # Of an operation, requests are told one by one; of all else the first is as good as any.
        alike = has_op & (role != roles.ATTEMPT)
        times = np.where(alike, counts.get(role, 1), 1) * pieces[f"{prefix}_at"].is_valid().to_numpy()
        tables.append(_repeat_messages(pieces, role, times, sources))
    tables += [_repeat_messages(pieces, role, counts[role] * has_op, {}) for role in _COUNTED_ROLES]
    told = pa.concat_tables(tables).combine_chunks()
    for name in _KEY:
        told = told.append_column(name, pieces[name].take(told["piece"]))
    # The scope knows it of answers too, whose protocol has no column.
    is_nq = pc.or_(*(pc.fill_null(pc.starts_with(told["scope"], f"{name} "), False) for name in grouping.NQ_SCOPES))
    protocol = pc.if_else(is_nq, grouping.NQ, told["protocol"])
    return told.set_column(told.schema.get_field_index("protocol"), "protocol", protocol)


def _repeat_messages(pieces: pa.Table, role: int, times: Int64Array, sources: dict[str, str]) -> pa.Table:
    """Return one message of each piece, so many times, from the columns that it has there."""
    which = np.repeat(np.arange(len(pieces)), times)
    made = [pa.array(which), pa.array(np.full(len(which), role))]
    for field in _MESSAGE_FIELDS:
        if field.name in sources:
            made.append(pieces[sources[field.name]].take(pa.array(which)).combine_chunks())
        elif field.name in POSITION_COLUMNS:
            made.append(pa.array(np.zeros(len(which), np.int64)).cast(field.type))  # nobody asks for it
        else:
            made.append(pa.nulls(len(which), field.type))
    return pa.table(made, schema=_SCHEMA)


def _listed_messages(pieces: pa.Table) -> pa.Table:
    """Return the messages that are told one by one."""
    lists = pieces["more"].combine_chunks()
    each = pc.list_flatten(lists)
    role = pc.index_in(pc.struct_field(each, "what"), pa.array(roles.ROLE_NAMES)).cast(pa.int64())
    which = pc.list_parent_indices(lists).cast(pa.int64())
    return pa.table([which, role, *(pc.struct_field(each, field.name) for field in _MESSAGE_FIELDS)], schema=_SCHEMA)
