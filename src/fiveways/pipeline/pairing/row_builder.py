"""Builder of rows from groups of messages: the first message of each role, counts, and lists of the other messages."""

from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode.batches import cast_if_needed
from fiveways.pipeline.pairing import buckets, grouping, roles
from fiveways.pipeline.pairing.grouping import GroupedMessages
from fiveways.pipeline.pairing.message_columns import MessageColumns
from fiveways.pipeline.pairing.schema import MERGED_CALLS, MESSAGE_STRUCT, PARTIAL_CALLS

POSITION_COLUMNS: Final = ("at", "seq", "part")
_STATUS: Final = ("status", "reason", "code")
# By role: prefix of the position columns of its first message; other columns filled from that message.
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
    """Rows of groups of messages."""

    def __init__(self, columns: MessageColumns, grouped: GroupedMessages, *, has_op: bool) -> None:
        self._columns, self._grouped, self._has_op = columns, grouped, has_op
        self._counts = self._count_roles()
        self._columns_by_name: dict[str, pa.Array] = {}

    def build_partial(self) -> pa.Table:
        """Return the rows as partial calls; texts may be dictionary-encoded."""
        built = self._columns_by_name
        held = self._fill_first_messages()
        self._fill_counts()
        built["head"] = pa.array(self._grouped.is_first_use)
        self._fill_keys()
        built["more"] = self._message_lists(self._is_listed_singly(held))
        built["strays"] = self._message_lists(self._is_stray())
        return pa.table([built[field.name] for field in PARTIAL_CALLS], names=PARTIAL_CALLS.names)

    def build_merged(self) -> pa.Table:
        """Return the rows as merged calls."""
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
        """Return the index of one message of each group."""
        index = np.zeros(self._grouped.size, np.int64)
        index[self._grouped.group] = np.arange(len(self._grouped.rows))
        return index

    def _count_roles(self) -> list[Int64Array]:
        """Return, for each role, the number of messages in each group."""
        grouped, number = self._grouped, len(roles.ROLE_NAMES)
        flat = np.bincount(grouped.group * number + grouped.role, minlength=grouped.size * number)
        return list(np.ascontiguousarray(flat.reshape(grouped.size, number).T))

    def _fill_first_messages(self) -> BoolArray:
        """Fill the columns of first messages; return which messages these are."""
        grouped = self._grouped
        held = np.zeros(len(grouped.rows), np.bool_)
        for role, (prefix, columns) in FIRST_MESSAGE_COLUMNS.items():
            indexes = np.flatnonzero(grouped.role == role)[::-1]
            first = np.full(grouped.size, -1, np.int64)
            first[grouped.group[indexes]] = indexes  # in reverse order, so the earliest message of a group stays
            held[first[first >= 0]] = True
            rows = np.where(first >= 0, grouped.rows[first], -1) if len(indexes) else first
            for name in POSITION_COLUMNS:
                self._columns_by_name[f"{prefix}_{name}"] = self._columns.take(name, rows)
            self._columns_by_name[f"{prefix}_target"] = self._columns.take("target", self._repeatable_rows(rows))
            for name, source in columns.items():
                self._columns_by_name[name] = self._columns.take(source, rows)
        return held

    def _repeatable_rows(self, rows: Int64Array) -> Int64Array:
        """Return rows with a target that identifies their use, -1 for the others."""
        if self._has_op:
            return np.full(len(rows), -1, np.int64)
        return np.where((rows >= 0) & grouping.is_repeatable(self._columns, rows), rows, -1)

    def _legs_with_request(self) -> tuple[BoolArray, BoolArray]:
        """Return which groups have a request on the caller's side, and which on the callee's."""
        count = self._counts
        return count[roles.ATTEMPT] + count[roles.OTHER_IN] > 0, count[roles.FORWARD] + count[roles.OTHER_OUT] > 0

    def _count_useless_requests(self) -> Int64Array:
        """Count the requests that arrived after the response was sent."""
        grouped, size = self._grouped, self._grouped.size
        indexes = np.flatnonzero((grouped.role == roles.ATTEMPT) & (self._counts[roles.ANSWER] > 0)[grouped.group])
        group = grouped.group[indexes]
        seq, part = (self._columns.int64(name)[grouped.rows[indexes]] for name in ("seq", "part"))
        answered_seq, answered_part = (self._first_position("answered", name)[group] for name in ("seq", "part"))
        late = (seq > answered_seq) | ((seq == answered_seq) & (part > answered_part))
        return np.bincount(group[late], minlength=size)

    def _first_position(self, prefix: str, name: str) -> Int64Array:
        """Return the position of the first message of a role; the value is arbitrary without such a message."""
        return np.asarray(self._columns_by_name[f"{prefix}_{name}"].fill_null(0).to_numpy(zero_copy_only=False))

    def _fill_keys(self) -> None:
        """Fill the key columns of the rows."""
        columns, grouped, built = self._columns, self._grouped, self._columns_by_name
        any_place = self._any_message_of_group()
        rows = grouped.rows[any_place]
        none = np.full(grouped.size, -1, np.int64)
        built["run"] = columns.take("run", rows)
        built["op"] = columns.take("op", rows if self._has_op else none)
        built["id"] = columns.take("id", none if self._has_op else rows)
        if self._has_op:
            built["leg"] = built["scope"] = pa.nulls(grouped.size, _TEXT_DICTIONARY)
            built["bucket"] = pa.array(buckets.operation_buckets(_dictionary_encoded(built["run"]), built["op"]))
            return
        leg = roles.CALLEES[grouped.role[any_place]].astype(np.int32)
        built["leg"] = pa.DictionaryArray.from_arrays(pa.array(leg), pa.array(["caller", "callee"]))
        built["scope"] = grouping.scope_names(columns, rows)
        built["bucket"] = pa.array(
            buckets.identifier_buckets(_dictionary_encoded(built["run"]), built["scope"], built["id"])
        )

    def _is_listed_singly(self, held: BoolArray) -> BoolArray:
        """Return which messages must be listed, because no column contains them."""
        return ~held & (self._grouped.role == roles.ATTEMPT) if self._has_op else ~held

    def _is_stray(self) -> BoolArray:
        """Return which messages are final responses on a side without a request."""
        grouped = self._grouped
        has_request, has_forward = self._legs_with_request()
        is_unrequested = (grouped.role == roles.ANSWER) & ~has_request[grouped.group]
        return np.asarray(is_unrequested | ((grouped.role == roles.RETURN) & ~has_forward[grouped.group]))

    def _message_lists(self, selected: BoolArray) -> pa.Array:
        """Return the selected messages as one list per group, null for an empty list."""
        grouped = self._grouped
        indexes = np.flatnonzero(selected)
        if not len(indexes):
            return pa.nulls(grouped.size, PARTIAL_CALLS.field("more").type)
        indexes = indexes[np.argsort(grouped.group[indexes], kind="stable")]
        rows = grouped.rows[indexes]
        names = [roles.ROLE_NAMES[role] for role in grouped.role[indexes].tolist()]
        fields = {field.name: self._columns.take(field.name, rows) for field in MESSAGE_STRUCT if field.name != "what"}
        fields["what"] = pa.array(names)
        values = pa.StructArray.from_arrays(
            [cast_if_needed(fields[field.name], field.type) for field in MESSAGE_STRUCT], fields=MESSAGE_STRUCT
        )
        counts = np.bincount(grouped.group[indexes], minlength=grouped.size)
        ends = np.r_[0, np.cumsum(counts)].astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends, mask=np.r_[counts == 0, False]), values)


def _dictionary_encoded(array: pa.Array) -> pa.DictionaryArray:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
