"""Merging of partial calls from several segments: they are expanded into messages and matched again."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.pipeline.arrays import Int64Array
from fiveways.pipeline.pairing import grouping, roles
from fiveways.pipeline.pairing.message_columns import MessageColumns
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
_SCHEMA: Final = pa.schema([("partial_call", pa.int64()), ("role", pa.int64()), *_MESSAGE_FIELDS])
_COUNTED_ROLES: Final = (roles.PART, roles.PROGRESS, roles.OTHER_IN, roles.OTHER_OUT)
"""Roles of which partial calls have only a count."""


def merge_partial_calls(partial_calls: pa.Table) -> pa.Table:
    """Return one row per operation or use of an identifier, from the partial calls of all segments."""
    messages = _expand_messages(partial_calls)
    columns = MessageColumns(messages)
    role, rows = columns.int64("role"), columns.sorted_by_seq(np.arange(len(messages)))
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
    """Number the keys of messages without an operation id."""
    key, bound = np.zeros(len(rows), np.int64), 1
    for name in _KEY:
        coded = columns.dictionary(name)
        size = len(coded.values) + 1
        key, bound = grouping.renumber(key * size + coded.codes[rows] + 1, bound * size)
    return key, bound


def _expand_messages(partial_calls: pa.Table) -> pa.Table:
    """Return the messages of partial calls; a column with a count becomes that number of equal messages."""
    has_op = partial_calls["op"].is_valid().to_numpy()
    counts = {role: partial_calls[name].to_numpy() for name, role in COUNT_COLUMNS.items()}
    tables = [_listed_messages(partial_calls)]
    for role, (prefix, columns) in FIRST_MESSAGE_COLUMNS.items():
        sources = {name: f"{prefix}_{name}" for name in (*POSITION_COLUMNS, "target")}
        sources |= {source: name for name, source in columns.items()}
        # With an operation id, repeated requests are listed one by one; copies of the first stand for the others.
        is_counted = has_op & (role != roles.ATTEMPT)
        times = np.where(is_counted, counts.get(role, 1), 1) * partial_calls[f"{prefix}_at"].is_valid().to_numpy()
        tables.append(_repeat_messages(partial_calls, role, times, sources))
    tables += [_repeat_messages(partial_calls, role, counts[role] * has_op, {}) for role in _COUNTED_ROLES]
    messages = pa.concat_tables(tables).combine_chunks()
    for name in _KEY:
        messages = messages.append_column(name, partial_calls[name].take(messages["partial_call"]))
    # Responses have no protocol column; their scope identifies NQ.
    is_nq = pc.or_(*(pc.fill_null(pc.starts_with(messages["scope"], f"{name} "), False) for name in grouping.NQ_SCOPES))
    protocol = pc.if_else(is_nq, grouping.NQ, messages["protocol"])
    return messages.set_column(messages.schema.get_field_index("protocol"), "protocol", protocol)


def _repeat_messages(partial_calls: pa.Table, role: int, times: Int64Array, sources: dict[str, str]) -> pa.Table:
    """Return the message of a role in each partial call, repeated, with the fields for which it has a column."""
    indexes = np.repeat(np.arange(len(partial_calls)), times)
    arrays = [pa.array(indexes), pa.array(np.full(len(indexes), role))]
    for field in _MESSAGE_FIELDS:
        if field.name in sources:
            arrays.append(partial_calls[sources[field.name]].take(pa.array(indexes)).combine_chunks())
        elif field.name in POSITION_COLUMNS:
            arrays.append(pa.array(np.zeros(len(indexes), np.int64)).cast(field.type))  # unused for counted messages
        else:
            arrays.append(pa.nulls(len(indexes), field.type))
    return pa.table(arrays, schema=_SCHEMA)


def _listed_messages(partial_calls: pa.Table) -> pa.Table:
    """Return the messages that partial calls list one by one."""
    lists = partial_calls["more"].combine_chunks()
    messages = pc.list_flatten(lists)
    role = pc.index_in(pc.struct_field(messages, "what"), pa.array(roles.ROLE_NAMES)).cast(pa.int64())
    indexes = pc.list_parent_indices(lists).cast(pa.int64())
    fields = (pc.struct_field(messages, field.name) for field in _MESSAGE_FIELDS)
    return pa.table([indexes, role, *fields], schema=_SCHEMA)
