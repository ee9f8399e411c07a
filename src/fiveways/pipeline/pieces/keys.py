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

from fiveways.pipeline.pieces import roles
from fiveways.pipeline.pieces.columns import Columns, Flags, Longs

NQ: Final = "nq"
SCOPES: Final = (("session", "session"), ("peer", "peer"), ("channel", "channel"), ("link", "session"))
"""What an identifier may belong to, by number: how it is called in the name of a scope, and the column that has it."""
_SESSION, _PEER, _CHANNEL, _LINK = range(4)
NQ_SCOPES: Final = ("peer", "link")


@dataclass(frozen=True)
class Grouped:
    """Messages in the order of (seq, part), each with the number of its group."""

    rows: Longs
    """Their rows in the table."""
    role: Longs
    group: Longs
    size: int
    """How many groups there are."""
    heads: Flags
    """Of each group, whether it is the first, or the only one, under its key."""


def dense(values: Longs, bound: int) -> tuple[Longs, int]:
    """Number the values, which are below the bound, without gaps; return the numbers and how many there are."""
    if bound > 4 * len(values) + 1024:
        coded = pa.array(values).dictionary_encode()
        return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    present = np.zeros(bound, np.int64)
    present[values] = 1
    numbers = np.cumsum(present) - 1
    return numbers[values], int(numbers[-1]) + 1 if bound else 0


def by_operation(columns: Columns, rows: Longs, role: Longs) -> Grouped:
    """Group messages that have an operation."""
    runs, ops = columns.coded("run"), columns.coded("op")
    values, bound = ops.codes[rows], len(ops.values)
    if len(runs.values) > 1:
        values, bound = runs.codes[rows] * bound + values, len(runs.values) * bound
    group, size = dense(values, bound)
    return Grouped(rows, role, group, size, np.ones(size, np.bool_))


def by_identifier(columns: Columns, rows: Longs, role: Longs) -> Grouped:
    """Group messages without an operation, those of each use of an identifier together."""
    runs, ids = columns.coded("run"), columns.coded("id")
    scope, bound = _scopes(columns, rows)
    scope = (scope * 2 + roles.CALLEES[role]) * len(runs.values) + runs.codes[rows]
    scope, bound = dense(scope, bound * 2 * len(runs.values))
    # A null identifier, -1, becomes 0.
    key, keys = dense(scope * (len(ids.values) + 1) + ids.codes[rows] + 1, bound * (len(ids.values) + 1))
    return by_use(columns, rows, role, key, keys)


def by_use(columns: Columns, rows: Longs, role: Longs, key: Longs, keys: int) -> Grouped:
    """Group messages whose keys are numbered, those of each use together."""
    use, uses = _uses(columns, rows, role, key, keys)
    first = np.cumsum(uses) - uses
    heads = np.zeros(int(uses.sum()), np.bool_)
    heads[first] = True
    return Grouped(rows, role, first[key] + use, len(heads), heads)


def _scopes(columns: Columns, rows: Longs) -> tuple[Longs, int]:
    """Return a number for each message's scope, and what all of them are below."""
    kind = _kinds_of_scopes(columns, rows)
    scope = columns.coded("session").codes[rows]
    for number in (_PEER, _CHANNEL):
        mine = kind == number
        scope[mine] = columns.coded(SCOPES[number][1]).codes[rows[mine]]
    bound = 1 + max(len(columns.coded(name).values) for _, name in SCOPES)
    return kind * bound + scope + 1, len(SCOPES) * bound


def _kinds_of_scopes(columns: Columns, rows: Longs) -> Longs:
    """Return the number of what each message's identifier belongs to; an NQ peer that is nobody is its link."""
    protocols = columns.coded("protocol")
    scopes = {NQ: _PEER, "mqtt-rpc": _CHANNEL}
    kind = np.array([scopes.get(name, _SESSION) for name in protocols.names], np.int64)[protocols.codes[rows]]
    kind[(kind == _PEER) & (columns.coded("peer").codes[rows] < 0)] = _LINK
    kind[(kind == _CHANNEL) & (columns.coded("channel").codes[rows] < 0)] = _SESSION
    return kind


def names_of_scopes(columns: Columns, rows: Longs) -> pa.DictionaryArray:
    """Return the scope of each message as a text."""
    kind, code = _kinds_of_scopes(columns, rows), np.zeros(len(rows), np.int32)
    texts: list[str] = []
    for number, (name, column) in enumerate(SCOPES):
        mine = kind == number
        if mine.any():
            coded = columns.coded(column)
            code[mine] = coded.codes[rows[mine]] + len(texts)
            texts += [f"{name} {value}" for value in coded.names]
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(texts, pa.string()))


def are_repeatable(columns: Columns, rows: Longs) -> Flags:
    """Return of which messages a second one with the same identifier and target is a repeat."""
    protocols = columns.coded("protocol")
    is_nq = np.array([*(name == NQ for name in protocols.names), False], np.bool_)  # the last one is for null, -1
    return np.asarray(is_nq[protocols.codes[rows]])


def _uses(columns: Columns, rows: Longs, role: Longs, key: Longs, keys: int) -> tuple[Longs, Longs]:
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
    first = _firsts(columns, rows[place], here * 3 + asking + 2 * cancels)
    begins = first == np.arange(len(place))
    opened = _running(begins & asking, start)
    uses[here[start]] = np.add.reduceat((begins & asking).astype(np.int64), start)
    ended = _running(roles.FINAL[role[place]], start)
    # Of a request, how many uses were begun when its own was; of a cancellation, until now.
    mine = np.where(asking, opened[first], opened) - 1
    mine = np.where(roles.FINAL[role[place]], ended - 1, np.where(roles.SIDE[role[place]], ended, mine))
    said = ~asking & ~cancels & are_repeatable(columns, rows[place])
    mine = np.where(said, _running(begins & said, start)[first] - 1, mine)
    use[place] = np.clip(mine, 0, np.maximum(uses[here] - 1, 0))
    return use, np.maximum(uses, 1)


def _firsts(columns: Columns, rows: Longs, side: Longs) -> Longs:
    """Return for each message the place of the first one that it repeats or goes on with, which may be itself.

    It is among those of the same side: of the requests, answers or cancellations of one key.
    """
    first = np.arange(len(rows))
    alike = np.flatnonzero(are_repeatable(columns, rows))
    if len(alike):
        targets = columns.coded("target")
        series = side[alike] * (len(targets.values) + 1) + targets.codes[rows[alike]] + 1
        _, begin, which = np.unique(series, return_index=True, return_inverse=True)
        first[alike] = alike[begin[which]]
    return first


def _running(flags: Flags, start: Longs) -> Longs:
    """Count the flags up to each place and in it, anew from each start."""
    total = np.cumsum(flags)
    before: Longs = total[start] - flags[start]
    return np.asarray(total - np.repeat(before, np.diff(np.r_[start, len(flags)])))
