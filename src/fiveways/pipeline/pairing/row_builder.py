"""From groups of messages to rows: the first message of each role, how many there are, and what columns cannot hold."""

from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.pairing import buckets, grouping, roles
from fiveways.pipeline.pairing.grouping import GroupedMessages
from fiveways.pipeline.pairing.message_columns import BoolArray, Int64Array, MessageColumns
from fiveways.pipeline.pairing.schema import MERGED_CALLS, MESSAGE_STRUCT, PARTIAL_CALLS

POSITION_COLUMNS: Final = ("at", "seq", "part")
_STATUS: Final = ("status", "reason", "code")
# By the role whose first message it is: prefix of the columns that say its place; further columns and their sources.
FIRST_MESSAGE_COLUMNS: Final[dict[int, tuple[str, dict[str, str]]]] = {
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
COUNT_COLUMNS: Final = {
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
_TEXT_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


class RowBuilder:
    """The rows that groups of messages make."""

    def __init__(self, columns: MessageColumns, grouped: GroupedMessages, *, has_op: bool) -> None:
        self._columns, self._grouped, self._has_op = columns, grouped, has_op
        self._counts = self._count_roles()
        self._columns_by_name: dict[str, pa.Array] = {}

    def build_partial(self) -> pa.Table:
        """Return them as a table of pieces; texts may be in dictionaries."""
        made = self._columns_by_name
        held = self._fill_first_messages()
        self._fill_counts()
        made["head"] = pa.array(self._grouped.is_first_use)
        self._fill_keys()
        made["more"] = self._message_lists(self._is_listed_singly(held))
        made["strays"] = self._message_lists(self._is_stray())
        return pa.table([made[field.name] for field in PARTIAL_CALLS], names=PARTIAL_CALLS.names)

    def build_merged(self) -> pa.Table:
        """Return them as rows that know all there is to know."""
        self._fill_first_messages()
        self._fill_counts()
        rows = self._grouped.rows[self._any_message_of_group()]
        self._columns_by_name.update({name: self._columns.take(name, rows) for name in ("run", "op", "leg")})
        return pa.table([self._columns_by_name[field.name] for field in MERGED_CALLS], names=MERGED_CALLS.names).cast(
            MERGED_CALLS
        )

    def _fill_counts(self) -> None:
        for name, role in COUNT_COLUMNS.items():
            self._columns_by_name[name] = pa.array(self._counts[role].astype(np.int32))
        self._columns_by_name["useless"] = pa.array(self._count_useless_requests().astype(np.int32))

    def _any_message_of_group(self) -> Int64Array:
        """Return the place of one message of each group."""
        place = np.zeros(self._grouped.size, np.int64)
        place[self._grouped.group] = np.arange(len(self._grouped.rows))
        return place

    def _count_roles(self) -> list[Int64Array]:
        """Return, for each role, how many messages of it each group has."""
        grouped, number = self._grouped, len(roles.ROLE_NAMES)
        flat = np.bincount(grouped.group * number + grouped.role, minlength=grouped.size * number)
        return list(np.ascontiguousarray(flat.reshape(grouped.size, number).T))

    def _fill_first_messages(self) -> BoolArray:
        """Fill the columns of first messages; return which messages they hold."""
        grouped = self._grouped
        held = np.zeros(len(grouped.rows), np.bool_)
        for role, (prefix, further) in FIRST_MESSAGE_COLUMNS.items():
            places = np.flatnonzero(grouped.role == role)[::-1]
            first = np.full(grouped.size, -1, np.int64)
            first[grouped.group[places]] = places  # of those of one group the last one written stays: the earliest
            held[first[first >= 0]] = True
            rows = np.where(first >= 0, grouped.rows[first], -1) if len(places) else first
            for name in POSITION_COLUMNS:
                self._columns_by_name[f"{prefix}_{name}"] = self._columns.take(name, rows)
            self._columns_by_name[f"{prefix}_target"] = self._columns.take("target", self._repeatable_rows(rows))
            for name, source in further.items():
                self._columns_by_name[name] = self._columns.take(source, rows)
        return held

    def _repeatable_rows(self, rows: Int64Array) -> Int64Array:
        """Return the rows whose target tells to which use they belong, -1 for all others."""
        if self._has_op:
            return np.full(len(rows), -1, np.int64)
        return np.where((rows >= 0) & grouping.is_repeatable(self._columns, rows), rows, -1)

    def _legs_with_request(self) -> tuple[BoolArray, BoolArray]:
        """Whether the caller's leg of each group has a request, and whether the callee's has."""
        count = self._counts
        return count[roles.ATTEMPT] + count[roles.OTHER_IN] > 0, count[roles.FORWARD] + count[roles.OTHER_OUT] > 0

    def _count_useless_requests(self) -> Int64Array:
        """Count the requests that came when the answer had gone."""
        grouped, size = self._grouped, self._grouped.size
        places = np.flatnonzero((grouped.role == roles.ATTEMPT) & (self._counts[roles.ANSWER] > 0)[grouped.group])
        group = grouped.group[places]
        seq, part = (self._columns.int64(name)[grouped.rows[places]] for name in ("seq", "part"))
        answered_seq, answered_part = (self._first_position("answered", name)[group] for name in ("seq", "part"))
        late = (seq > answered_seq) | ((seq == answered_seq) & (part > answered_part))
        return np.bincount(group[late], minlength=size)

    def _first_position(self, prefix: str, name: str) -> Int64Array:
        """Return where the first message of a role stands; anything where there is none."""
        return np.asarray(self._columns_by_name[f"{prefix}_{name}"].fill_null(0).to_numpy(zero_copy_only=False))

    def _fill_keys(self) -> None:
        """Fill the columns by which a row is known."""
        columns, grouped, made = self._columns, self._grouped, self._columns_by_name
        any_place = self._any_message_of_group()
        rows = grouped.rows[any_place]
        none = np.full(grouped.size, -1, np.int64)
        made["run"] = columns.take("run", rows)
        made["op"] = columns.take("op", rows if self._has_op else none)
        made["id"] = columns.take("id", none if self._has_op else rows)
        if self._has_op:
            made["leg"] = made["scope"] = pa.nulls(grouped.size, _TEXT_DICTIONARY)
            made["bucket"] = pa.array(buckets.operation_buckets(_dictionary_encoded(made["run"]), made["op"]))
            return
        leg = roles.CALLEES[grouped.role[any_place]].astype(np.int32)
        made["leg"] = pa.DictionaryArray.from_arrays(pa.array(leg), pa.array(["caller", "callee"]))
        made["scope"] = grouping.scope_names(columns, rows)
        made["bucket"] = pa.array(
            buckets.identifier_buckets(_dictionary_encoded(made["run"]), made["scope"], made["id"])
        )

    def _is_listed_singly(self, held: BoolArray) -> BoolArray:
        """Which messages must be told one by one, beside those that the columns hold."""
        return ~held & (self._grouped.role == roles.ATTEMPT) if self._has_op else ~held

    def _is_stray(self) -> BoolArray:
        """Which messages are final answers on a leg without a request."""
        grouped = self._grouped
        asked, forwarded = self._legs_with_request()
        unasked = (grouped.role == roles.ANSWER) & ~asked[grouped.group]
        return np.asarray(unasked | ((grouped.role == roles.RETURN) & ~forwarded[grouped.group]))

    def _message_lists(self, which: BoolArray) -> pa.Array:
        """Return these messages as one list for each group, null where there is none."""
        grouped = self._grouped
        places = np.flatnonzero(which)
        if not len(places):
            return pa.nulls(grouped.size, PARTIAL_CALLS.field("more").type)
        places = places[np.argsort(grouped.group[places], kind="stable")]
        rows = grouped.rows[places]
        words = [roles.ROLE_NAMES[role] for role in grouped.role[places].tolist()]
        taken = {field.name: self._columns.take(field.name, rows) for field in MESSAGE_STRUCT if field.name != "what"}
        taken["what"] = pa.array(words)
        values = pa.StructArray.from_arrays(
            [_cast_if_needed(taken[each.name], each.type) for each in MESSAGE_STRUCT], fields=MESSAGE_STRUCT
        )
        counts = np.bincount(grouped.group[places], minlength=grouped.size)
        ends = np.r_[0, np.cumsum(counts)].astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends, mask=np.r_[counts == 0, False]), values)


def _cast_if_needed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _dictionary_encoded(array: pa.Array) -> pa.DictionaryArray:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
