"""Grouping of messages by operation, or without an operation id by the identifier on the wire.

An identifier is valid within its scope: a session, in NQ a peer over all its connections, in MQTT a topic. It may be
used again there. The n-th use and the n-th final response are one call; other messages of the hub belong to its next
final response. In NQ a second request to the same target is a repeat, not a second use, and responses on the same
backchannel, which is their target, are one response and its repeats. Responses beyond the last use repeat the last one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.pairing import roles
from fiveways.pipeline.pairing.message_columns import MessageColumns

NQ: Final = "nq"
SCOPES: Final = (("session", "session"), ("peer", "peer"), ("channel", "channel"), ("link", "session"))
"""Kinds of scopes, in the order of their numbers: the prefix of the scope's name, and the column with its value."""
_SESSION, _PEER, _CHANNEL, _LINK = range(4)
NQ_SCOPES: Final = ("peer", "link")


@dataclass(frozen=True)
class GroupedMessages:
    """Messages ordered by (seq, part), each with the number of its group."""

    rows: Int64Array
    """Row numbers in the table of messages."""
    role: Int64Array
    group: Int64Array
    size: int
    """Number of groups."""
    is_first_use: BoolArray
    """For each group, True if it is the first or only use of its key."""


def renumber(values: Int64Array, bound: int) -> tuple[Int64Array, int]:
    """Renumber values below `bound` without gaps; return the numbers and their count."""
    if bound > 4 * len(values) + 1024:
        coded = pa.array(values).dictionary_encode()
        return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    present = np.zeros(bound, np.int64)
    present[values] = 1
    numbers = np.cumsum(present) - 1
    return numbers[values], int(numbers[-1]) + 1 if bound else 0


def group_by_operation(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> GroupedMessages:
    """Group messages that have an operation id."""
    runs, ops = columns.dictionary("run"), columns.dictionary("op")
    values, bound = ops.codes[rows], len(ops.values)
    if len(runs.values) > 1:
        values, bound = runs.codes[rows] * bound + values, len(runs.values) * bound
    group, size = renumber(values, bound)
    return GroupedMessages(rows, role, group, size, np.ones(size, np.bool_))


def group_by_identifier(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> GroupedMessages:
    """Group messages without an operation id by identifier, one group per use."""
    runs, ids = columns.dictionary("run"), columns.dictionary("id")
    scope, bound = _scope_numbers(columns, rows)
    scope = (scope * 2 + roles.CALLEES[role]) * len(runs.values) + runs.codes[rows]
    scope, bound = renumber(scope, bound * 2 * len(runs.values))
    # A null identifier, -1, becomes 0.
    key, keys = renumber(scope * (len(ids.values) + 1) + ids.codes[rows] + 1, bound * (len(ids.values) + 1))
    return group_by_use(columns, rows, role, key, keys)


def group_by_use(
    columns: MessageColumns, rows: Int64Array, role: Int64Array, key: Int64Array, keys: int
) -> GroupedMessages:
    """Group messages with numbered keys, one group per use of a key."""
    use, uses = _assign_uses(columns, rows, role, key, keys)
    first = np.cumsum(uses) - uses
    heads = np.zeros(int(uses.sum()), np.bool_)
    heads[first] = True
    return GroupedMessages(rows, role, first[key] + use, len(heads), heads)


def _scope_numbers(columns: MessageColumns, rows: Int64Array) -> tuple[Int64Array, int]:
    """Return the number of each message's scope, and an upper bound of all numbers."""
    kind = _scope_kinds(columns, rows)
    scope = columns.dictionary("session").codes[rows]
    for number in (_PEER, _CHANNEL):
        matching = kind == number
        scope[matching] = columns.dictionary(SCOPES[number][1]).codes[rows[matching]]
    bound = 1 + max(len(columns.dictionary(name).values) for _, name in SCOPES)
    return kind * bound + scope + 1, len(SCOPES) * bound


def _scope_kinds(columns: MessageColumns, rows: Int64Array) -> Int64Array:
    """Return the kind of each message's scope; an NQ peer without an id is known by its connection."""
    protocols = columns.dictionary("protocol")
    scopes = {NQ: _PEER, "mqtt-rpc": _CHANNEL}
    kind = np.array([scopes.get(name, _SESSION) for name in protocols.texts], np.int64)[protocols.codes[rows]]
    kind[(kind == _PEER) & (columns.dictionary("peer").codes[rows] < 0)] = _LINK
    kind[(kind == _CHANNEL) & (columns.dictionary("channel").codes[rows] < 0)] = _SESSION
    return kind


def scope_names(columns: MessageColumns, rows: Int64Array) -> pa.DictionaryArray:
    """Return the scope of each message as text."""
    kind, code = _scope_kinds(columns, rows), np.zeros(len(rows), np.int32)
    texts: list[str] = []
    for number, (name, column) in enumerate(SCOPES):
        matching = kind == number
        if matching.any():
            coded = columns.dictionary(column)
            code[matching] = coded.codes[rows[matching]] + len(texts)
            texts += [f"{name} {value}" for value in coded.texts]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(texts, pa.string()))


def is_repeatable(columns: MessageColumns, rows: Int64Array) -> BoolArray:
    """Return for which messages a second one with the same identifier and target is a repeat."""
    protocols = columns.dictionary("protocol")
    is_nq = np.array([*(name == NQ for name in protocols.texts), False], np.bool_)  # the last one is for null, -1
    return np.asarray(is_nq[protocols.codes[rows]])


def _assign_uses(
    columns: MessageColumns, rows: Int64Array, role: Int64Array, key: Int64Array, keys: int
) -> tuple[Int64Array, Int64Array]:
    """Return the use of its key to which each message belongs, and the number of uses of each key, at least 1."""
    opens = roles.OPENING[role]
    use = np.zeros(len(rows), np.int64)
    uses = np.bincount(key[opens], minlength=keys)
    has_several = uses[key] > 1
    if not has_several.any():
        return use, np.maximum(uses, 1)
    index = np.flatnonzero(has_several)
    index = index[np.argsort(key[index], kind="stable")]
    sorted_key, is_request = key[index], opens[index]
    start = np.flatnonzero(np.r_[True, sorted_key[1:] != sorted_key[:-1]])
    is_cancel = role[index] == roles.CANCEL
    first = _first_occurrences(columns, rows[index], sorted_key * 3 + is_request + 2 * is_cancel)
    is_first = first == np.arange(len(index))
    opened = _running_count(is_first & is_request, start)
    uses[sorted_key[start]] = np.add.reduceat((is_first & is_request).astype(np.int64), start)
    ended = _running_count(roles.FINAL[role[index]], start)
    # A request has the number of uses opened by its first copy; a cancellation belongs to the newest use.
    own_use = np.where(is_request, opened[first], opened) - 1
    own_use = np.where(roles.FINAL[role[index]], ended - 1, np.where(roles.INTERMEDIATE[role[index]], ended, own_use))
    is_response = ~is_request & ~is_cancel & is_repeatable(columns, rows[index])
    own_use = np.where(is_response, _running_count(is_first & is_response, start)[first] - 1, own_use)
    use[index] = np.clip(own_use, 0, np.maximum(uses[sorted_key] - 1, 0))
    return use, np.maximum(uses, 1)


def _first_occurrences(columns: MessageColumns, rows: Int64Array, side: Int64Array) -> Int64Array:
    """Return for each message the index of the first one that it repeats or continues, possibly itself.

    Both are on the same side: requests, responses or cancellations of one key.
    """
    first = np.arange(len(rows))
    repeatable = np.flatnonzero(is_repeatable(columns, rows))
    if len(repeatable):
        targets = columns.dictionary("target")
        series = side[repeatable] * (len(targets.values) + 1) + targets.codes[rows[repeatable]] + 1
        _, begin, inverse = np.unique(series, return_index=True, return_inverse=True)
        first[repeatable] = repeatable[begin[inverse]]
    return first


def _running_count(flags: BoolArray, start: Int64Array) -> Int64Array:
    """Return the number of flags set up to each position, restarting at each start."""
    total = np.cumsum(flags)
    before: Int64Array = total[start] - flags[start]
    return np.asarray(total - np.repeat(before, np.diff(np.r_[start, len(flags)])))
