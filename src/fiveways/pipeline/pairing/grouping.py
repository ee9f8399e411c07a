"""Which messages belong together: by operation, and where none is known by the identifier that peer and hub gave them.

An identifier means one thing within its scope: a session, in NQ a peer over all its sessions, in MQTT a topic. It may
be used again there. The n-th use and the n-th answer are one call; what else the hub says belongs to the answer that it
will say next. In NQ a second request to the same target is no second use but a repeat, and answers on the same
backchannel, which is their target, are one answer and its repeats. Answers beyond the last use repeat the last one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.pairing import roles
from fiveways.pipeline.pairing.message_columns import BoolArray, Int64Array, MessageColumns

NQ: Final = "nq"
SCOPES: Final = (("session", "session"), ("peer", "peer"), ("channel", "channel"), ("link", "session"))
"""What an identifier may belong to, by number: how it is called in the name of a scope, and the column that has it."""
_SESSION, _PEER, _CHANNEL, _LINK = range(4)
NQ_SCOPES: Final = ("peer", "link")


@dataclass(frozen=True)
class GroupedMessages:
    """Messages in the order of (seq, part), each with the number of its group."""

    rows: Int64Array
    """Their rows in the table."""
    role: Int64Array
    group: Int64Array
    size: int
    """How many groups there are."""
    is_first_use: BoolArray
    """Of each group, whether it is the first, or the only one, under its key."""


def renumber(values: Int64Array, bound: int) -> tuple[Int64Array, int]:
    """Number the values, which are below the bound, without gaps; return the numbers and how many there are."""
    if bound > 4 * len(values) + 1024:
        coded = pa.array(values).dictionary_encode()
        return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    present = np.zeros(bound, np.int64)
    present[values] = 1
    numbers = np.cumsum(present) - 1
    return numbers[values], int(numbers[-1]) + 1 if bound else 0


def group_by_operation(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> GroupedMessages:
    """Group messages that have an operation."""
    runs, ops = columns.dictionary("run"), columns.dictionary("op")
    values, bound = ops.codes[rows], len(ops.values)
    if len(runs.values) > 1:
        values, bound = runs.codes[rows] * bound + values, len(runs.values) * bound
    group, size = renumber(values, bound)
    return GroupedMessages(rows, role, group, size, np.ones(size, np.bool_))


def group_by_identifier(columns: MessageColumns, rows: Int64Array, role: Int64Array) -> GroupedMessages:
    """Group messages without an operation, those of each use of an identifier together."""
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
    """Group messages whose keys are numbered, those of each use together."""
    use, uses = _assign_uses(columns, rows, role, key, keys)
    first = np.cumsum(uses) - uses
    heads = np.zeros(int(uses.sum()), np.bool_)
    heads[first] = True
    return GroupedMessages(rows, role, first[key] + use, len(heads), heads)


def _scope_numbers(columns: MessageColumns, rows: Int64Array) -> tuple[Int64Array, int]:
    """Return a number for each message's scope, and what all of them are below."""
    kind = _scope_kinds(columns, rows)
    scope = columns.dictionary("session").codes[rows]
    for number in (_PEER, _CHANNEL):
        mine = kind == number
        scope[mine] = columns.dictionary(SCOPES[number][1]).codes[rows[mine]]
    bound = 1 + max(len(columns.dictionary(name).values) for _, name in SCOPES)
    return kind * bound + scope + 1, len(SCOPES) * bound


def _scope_kinds(columns: MessageColumns, rows: Int64Array) -> Int64Array:
    """Return the number of what each message's identifier belongs to; an NQ peer that is nobody is its link."""
    protocols = columns.dictionary("protocol")
    scopes = {NQ: _PEER, "mqtt-rpc": _CHANNEL}
    kind = np.array([scopes.get(name, _SESSION) for name in protocols.texts], np.int64)[protocols.codes[rows]]
    kind[(kind == _PEER) & (columns.dictionary("peer").codes[rows] < 0)] = _LINK
    kind[(kind == _CHANNEL) & (columns.dictionary("channel").codes[rows] < 0)] = _SESSION
    return kind


def scope_names(columns: MessageColumns, rows: Int64Array) -> pa.DictionaryArray:
    """Return the scope of each message as a text."""
    kind, code = _scope_kinds(columns, rows), np.zeros(len(rows), np.int32)
    texts: list[str] = []
    for number, (name, column) in enumerate(SCOPES):
        mine = kind == number
        if mine.any():
            coded = columns.dictionary(column)
            code[mine] = coded.codes[rows[mine]] + len(texts)
            texts += [f"{name} {value}" for value in coded.texts]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(texts, pa.string()))


def is_repeatable(columns: MessageColumns, rows: Int64Array) -> BoolArray:
    """Return of which messages a second one with the same identifier and target is a repeat."""
    protocols = columns.dictionary("protocol")
    is_nq = np.array([*(name == NQ for name in protocols.texts), False], np.bool_)  # the last one is for null, -1
    return np.asarray(is_nq[protocols.codes[rows]])


def _assign_uses(
    columns: MessageColumns, rows: Int64Array, role: Int64Array, key: Int64Array, keys: int
) -> tuple[Int64Array, Int64Array]:
    """Return to which use of its key each message belongs, and how many uses each key has, at least one."""
    asks = roles.OPENING[role]
    use = np.zeros(len(rows), np.int64)
    uses = np.bincount(key[asks], minlength=keys)
    many = uses[key] > 1
    if not many.any():
        return use, np.maximum(uses, 1)
    place = np.flatnonzero(many)
    place = place[np.argsort(key[place], kind="stable")]
    here, asking = key[place], asks[place]
    start = np.flatnonzero(np.r_[True, here[1:] != here[:-1]])
    cancels = role[place] == roles.CANCEL
    first = _first_occurrences(columns, rows[place], here * 3 + asking + 2 * cancels)
    begins = first == np.arange(len(place))
    opened = _running_count(begins & asking, start)
    uses[here[start]] = np.add.reduceat((begins & asking).astype(np.int64), start)
    ended = _running_count(roles.FINAL[role[place]], start)
    # Of a request, how many uses were begun when its own was; of a cancellation, until now.
    mine = np.where(asking, opened[first], opened) - 1
    mine = np.where(roles.FINAL[role[place]], ended - 1, np.where(roles.INTERMEDIATE[role[place]], ended, mine))
    said = ~asking & ~cancels & is_repeatable(columns, rows[place])
    mine = np.where(said, _running_count(begins & said, start)[first] - 1, mine)
    use[place] = np.clip(mine, 0, np.maximum(uses[here] - 1, 0))
    return use, np.maximum(uses, 1)


def _first_occurrences(columns: MessageColumns, rows: Int64Array, side: Int64Array) -> Int64Array:
    """Return for each message the place of the first one that it repeats or goes on with, which may be itself.

    It is among those of the same side: of the requests, answers or cancellations of one key.
    """
    first = np.arange(len(rows))
    alike = np.flatnonzero(is_repeatable(columns, rows))
    if len(alike):
        targets = columns.dictionary("target")
        series = side[alike] * (len(targets.values) + 1) + targets.codes[rows[alike]] + 1
        _, begin, which = np.unique(series, return_index=True, return_inverse=True)
        first[alike] = alike[begin[which]]
    return first


def _running_count(flags: BoolArray, start: Int64Array) -> Int64Array:
    """Count the flags up to each place and in it, anew from each start."""
    total = np.cumsum(flags)
    before: Int64Array = total[start] - flags[start]
    return np.asarray(total - np.repeat(before, np.diff(np.r_[start, len(flags)])))
