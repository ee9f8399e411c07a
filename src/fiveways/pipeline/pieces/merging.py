"""Pieces of several segments put together: taken apart into messages, and matched like those of one."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.pieces import keys, roles
from fiveways.pipeline.pieces.assemble import COUNTS, FIRSTS, PLACE, Rows
from fiveways.pipeline.pieces.columns import Columns, Longs
from fiveways.pipeline.pieces.schema import MERGED, MESSAGE

_KEY: Final = ("run", "op", "leg", "scope", "id")
_FIELDS: Final = [
    MESSAGE.field(name)
    for name in (*PLACE, "session", "peer", "protocol", "target", "method", "status", "reason", "code", "size")
]
_SCHEMA: Final = pa.schema([("piece", pa.int64()), ("role", pa.int64()), *_FIELDS])
_UNTOLD: Final = (roles.PART, roles.PROGRESS, roles.OTHER_IN, roles.OTHER_OUT)
"""Roles whose first message no column tells."""


def merged(pieces: pa.Table) -> pa.Table:
    """Return one row for each operation, or use of an identifier, from all pieces of all that is in them."""
    told = _taken_apart(pieces)
    columns = Columns(told)
    role, rows = columns.longs("role"), columns.in_order(np.arange(len(told)))
    has_op = columns.array("op").is_valid().to_numpy(zero_copy_only=False)[rows]
    tables = [MERGED.empty_table()]
    if has_op.any():
        grouped = keys.by_operation(columns, rows[has_op], role[rows[has_op]])
        tables.append(Rows(columns, grouped, has_op=True).merged())
    if not has_op.all():
        rows = rows[~has_op]
        grouped = keys.by_use(columns, rows, role[rows], *_keys(columns, rows))
        tables.append(Rows(columns, grouped, has_op=False).merged())
    return pa.concat_tables(tables)


def _keys(columns: Columns, rows: Longs) -> tuple[Longs, int]:
    """Number the keys of messages without an operation."""
    key, bound = np.zeros(len(rows), np.int64), 1
    for name in _KEY:
        coded = columns.coded(name)
        size = len(coded.values) + 1
        key, bound = keys.dense(key * size + coded.codes[rows] + 1, bound * size)
    return key, bound


def _taken_apart(pieces: pa.Table) -> pa.Table:
    """Return the messages of pieces; where columns have only their number, so many that are alike."""
    has_op = pieces["op"].is_valid().to_numpy()
    counts = {role: pieces[name].to_numpy() for name, role in COUNTS.items()}
    tables = [_further(pieces)]
    for role, (prefix, further) in FIRSTS.items():
        sources = {name: f"{prefix}_{name}" for name in (*PLACE, "target")}
        sources |= {source: name for name, source in further.items()}
        # Of an operation, requests are told one by one; of all else the first is as good as any.
        alike = has_op & (role != roles.ATTEMPT)
        times = np.where(alike, counts.get(role, 1), 1) * pieces[f"{prefix}_at"].is_valid().to_numpy()
        tables.append(_messages(pieces, role, times, sources))
    tables += [_messages(pieces, role, counts[role] * has_op, {}) for role in _UNTOLD]
    told = pa.concat_tables(tables).combine_chunks()
    for name in _KEY:
        told = told.append_column(name, pieces[name].take(told["piece"]))
    # The scope knows it of answers too, whose protocol has no column.
    is_nq = pc.or_(*(pc.fill_null(pc.starts_with(told["scope"], f"{name} "), False) for name in keys.NQ_SCOPES))
    protocol = pc.if_else(is_nq, keys.NQ, told["protocol"])
    return told.set_column(told.schema.get_field_index("protocol"), "protocol", protocol)


def _messages(pieces: pa.Table, role: int, times: Longs, sources: dict[str, str]) -> pa.Table:
    """Return one message of each piece, so many times, from the columns that it has there."""
    which = np.repeat(np.arange(len(pieces)), times)
    made = [pa.array(which), pa.array(np.full(len(which), role))]
    for field in _FIELDS:
        if field.name in sources:
            made.append(pieces[sources[field.name]].take(pa.array(which)).combine_chunks())
        elif field.name in PLACE:
            made.append(pa.array(np.zeros(len(which), np.int64)).cast(field.type))  # nobody asks for it
        else:
            made.append(pa.nulls(len(which), field.type))
    return pa.table(made, schema=_SCHEMA)


def _further(pieces: pa.Table) -> pa.Table:
    """Return the messages that are told one by one."""
    lists = pieces["more"].combine_chunks()
    each = pc.list_flatten(lists)
    role = pc.index_in(pc.struct_field(each, "what"), pa.array(roles.WORDS)).cast(pa.int64())
    which = pc.list_parent_indices(lists).cast(pa.int64())
    return pa.table([which, role, *(pc.struct_field(each, field.name) for field in _FIELDS)], schema=_SCHEMA)
