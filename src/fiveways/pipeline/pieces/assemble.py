"""From groups of messages to rows: the first message of each role, how many there are, and what columns cannot hold."""

from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.pieces import buckets, keys, roles
from fiveways.pipeline.pieces.columns import Columns, Flags, Longs
from fiveways.pipeline.pieces.keys import Grouped
from fiveways.pipeline.pieces.schema import MERGED, MESSAGE, PIECES

PLACE: Final = ("at", "seq", "part")
_STATUS: Final = ("status", "reason", "code")
# By the role whose first message it is: prefix of the columns that say its place; further columns and their sources.
FIRSTS: Final[dict[int, tuple[str, dict[str, str]]]] = {
    roles.ATTEMPT: (
        "requested",
        {
            "request_size": "size",
            "method": "method",
            "caller_session": "session",
            "caller_peer": "peer",
            "caller_protocol": "protocol",
        },
    ),
    roles.FORWARD: (
        "forwarded",
        {
            "callee_method": "method",
            "callee_session": "session",
            "callee_peer": "peer",
            "callee_protocol": "protocol",
        },
    ),
    roles.RETURN: ("returned", {f"returned_{name}": name for name in _STATUS}),
    roles.ANSWER: ("answered", {**{name: name for name in _STATUS}, "answer_size": "size"}),
    roles.ACCEPTED: ("accepted", {}),
    roles.CANCEL: ("cancelled", {}),
}
COUNTS: Final = {
    "attempts": roles.ATTEMPT,
    "answers": roles.ANSWER,
    "forwards": roles.FORWARD,
    "returns": roles.RETURN,
    "parts": roles.PART,
    "progress": roles.PROGRESS,
    "others_in": roles.OTHER_IN,
    "others_out": roles.OTHER_OUT,
}
"""Columns that count the messages of a role."""
_TEXTS: Final = pa.dictionary(pa.int32(), pa.string())


class Rows:
    """The rows that groups of messages make."""

    def __init__(self, columns: Columns, grouped: Grouped, *, has_op: bool) -> None:
        self._columns, self._grouped, self._has_op = columns, grouped, has_op
        self._counts = self._count()
        self._made: dict[str, pa.Array] = {}

    def table(self) -> pa.Table:
        """Return them as a table of pieces; texts may be in dictionaries."""
        made = self._made
        held = self._firsts()
        self._numbers()
        made["head"] = pa.array(self._grouped.heads)
        self._name()
        made["more"] = self._messages(self._is_more(held))
        made["strays"] = self._messages(self._is_stray())
        return pa.table([made[field.name] for field in PIECES], names=PIECES.names)

    def merged(self) -> pa.Table:
        """Return them as rows that know all there is to know."""
        self._firsts()
        self._numbers()
        rows = self._grouped.rows[self._any_place()]
        self._made.update({name: self._columns.take(name, rows) for name in ("run", "op", "leg")})
        return pa.table([self._made[field.name] for field in MERGED], names=MERGED.names).cast(MERGED)

    def _numbers(self) -> None:
        for name, role in COUNTS.items():
            self._made[name] = pa.array(self._counts[role].astype(np.int32))
        self._made["useless"] = pa.array(self._useless().astype(np.int32))

    def _any_place(self) -> Longs:
        """Return the place of one message of each group."""
        place = np.zeros(self._grouped.size, np.int64)
        place[self._grouped.group] = np.arange(len(self._grouped.rows))
        return place

    def _count(self) -> list[Longs]:
        """Return, for each role, how many messages of it each group has."""
        grouped, number = self._grouped, len(roles.WORDS)
        flat = np.bincount(grouped.group * number + grouped.role, minlength=grouped.size * number)
        return list(np.ascontiguousarray(flat.reshape(grouped.size, number).T))

    def _firsts(self) -> Flags:
        """Fill the columns of first messages; return which messages they hold."""
        grouped = self._grouped
        held = np.zeros(len(grouped.rows), np.bool_)
        for role, (prefix, further) in FIRSTS.items():
            places = np.flatnonzero(grouped.role == role)[::-1]
            first = np.full(grouped.size, -1, np.int64)
            first[grouped.group[places]] = places  # of those of one group the last one written stays: the earliest
            held[first[first >= 0]] = True
            rows = np.where(first >= 0, grouped.rows[first], -1) if len(places) else first
            for name in PLACE:
                self._made[f"{prefix}_{name}"] = self._columns.take(name, rows)
            self._made[f"{prefix}_target"] = self._columns.take("target", self._telling(rows))
            for name, source in further.items():
                self._made[name] = self._columns.take(source, rows)
        return held

    def _telling(self, rows: Longs) -> Longs:
        """Return the rows whose target tells to which use they belong, -1 for all others."""
        if self._has_op:
            return np.full(len(rows), -1, np.int64)
        return np.where((rows >= 0) & keys.are_repeatable(self._columns, rows), rows, -1)

    def _asked(self) -> tuple[Flags, Flags]:
        """Whether the caller's leg of each group has a request, and whether the callee's has."""
        count = self._counts
        return count[roles.ATTEMPT] + count[roles.OTHER_IN] > 0, count[roles.FORWARD] + count[roles.OTHER_OUT] > 0

    def _useless(self) -> Longs:
        """Count the requests that came when the answer had gone."""
        grouped, size = self._grouped, self._grouped.size
        places = np.flatnonzero((grouped.role == roles.ATTEMPT) & (self._counts[roles.ANSWER] > 0)[grouped.group])
        group = grouped.group[places]
        seq, part = (self._columns.longs(name)[grouped.rows[places]] for name in ("seq", "part"))
        answered_seq, answered_part = (self._place_of("answered", name)[group] for name in ("seq", "part"))
        late = (seq > answered_seq) | ((seq == answered_seq) & (part > answered_part))
        return np.bincount(group[late], minlength=size)

    def _place_of(self, prefix: str, name: str) -> Longs:
        """Return where the first message of a role stands; anything where there is none."""
        return np.asarray(self._made[f"{prefix}_{name}"].fill_null(0).to_numpy(zero_copy_only=False))

    def _name(self) -> None:
        """Fill the columns by which a row is known."""
        columns, grouped, made = self._columns, self._grouped, self._made
        any_place = self._any_place()
        rows = grouped.rows[any_place]
        none = np.full(grouped.size, -1, np.int64)
        made["run"] = columns.take("run", rows)
        made["op"] = columns.take("op", rows if self._has_op else none)
        made["id"] = columns.take("id", none if self._has_op else rows)
        if self._has_op:
            made["leg"] = made["scope"] = pa.nulls(grouped.size, _TEXTS)
            made["bucket"] = pa.array(buckets.by_operation(_coded(made["run"]), made["op"]))
            return
        leg = roles.CALLEES[grouped.role[any_place]].astype(np.int32)
        made["leg"] = pa.DictionaryArray.from_arrays(pa.array(leg), pa.array(["caller", "callee"]))
        made["scope"] = keys.names_of_scopes(columns, rows)
        made["bucket"] = pa.array(buckets.by_identifier(_coded(made["run"]), made["scope"], made["id"]))

    def _is_more(self, held: Flags) -> Flags:
        """Which messages must be told one by one, beside those that the columns hold."""
        return ~held & (self._grouped.role == roles.ATTEMPT) if self._has_op else ~held

    def _is_stray(self) -> Flags:
        """Which messages are final answers on a leg without a request."""
        grouped = self._grouped
        asked, forwarded = self._asked()
        unasked = (grouped.role == roles.ANSWER) & ~asked[grouped.group]
        return np.asarray(unasked | ((grouped.role == roles.RETURN) & ~forwarded[grouped.group]))

    def _messages(self, which: Flags) -> pa.Array:
        """Return these messages as one list for each group, null where there is none."""
        grouped = self._grouped
        places = np.flatnonzero(which)
        if not len(places):
            return pa.nulls(grouped.size, PIECES.field("more").type)
        places = places[np.argsort(grouped.group[places], kind="stable")]
        rows = grouped.rows[places]
        words = [roles.WORDS[role] for role in grouped.role[places].tolist()]
        taken = {field.name: self._columns.take(field.name, rows) for field in MESSAGE if field.name != "what"}
        taken["what"] = pa.array(words)
        values = pa.StructArray.from_arrays([_plain(taken[each.name], each.type) for each in MESSAGE], fields=MESSAGE)
        counts = np.bincount(grouped.group[places], minlength=grouped.size)
        ends = np.r_[0, np.cumsum(counts)].astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends, mask=np.r_[counts == 0, False]), values)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _coded(array: pa.Array) -> pa.DictionaryArray:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
