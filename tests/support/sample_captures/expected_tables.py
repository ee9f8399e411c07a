"""The tables that a correct pipeline run produces, computed from the plan without reading a payload."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.errors import Reason
from fiveways.model import topics
from fiveways.pipeline import spark_schemas
from tests.support.sample_captures.calls import LRPM, UMQS
from tests.support.sample_captures.options import DAY, ENCODINGS, Options
from tests.support.sample_captures.script import CALLER, FINAL, NO_OP, REQUESTS, TOPIC_OP, WRONG_OP, Column, LineKind
from tests.support.sample_captures.vocabulary import BY_REASON, FAILURES, METHODS, TOPICS, wire_code
from tests.support.sample_captures.world import World

LEG_COUNT: Final = 3
_ASKS_TO_PUBLISH: Final = tuple(ENCODINGS.index(each) for each in ("umq", "umq36", "nq"))
_CANONICAL: Final = [topics.spell(topic, topics.LRPM) for topic in TOPICS]
NONE: Final = -1
DELIVERIES: Final = pa.schema(
    field
    for field in spark_schemas.to_arrow(spark_schemas.DELIVERIES)
    if field.name not in {"published_seq", "first_seq"}
)
"""The columns that can be compared: a plan does not know the record numbers."""


def utc_dates(at: Column) -> pa.Array:
    """Return the dates in UTC."""
    return pa.array(np.datetime_as_string((at // DAY).astype("datetime64[D]")), pa.string())


@dataclass
class FirstLines:
    """For each key, the index of the first matching line and the number of matching lines."""

    line: Column
    count: Column

    @property
    def missing(self) -> Column:
        """Whether a key has no line."""
        return np.asarray(self.line == NONE)

    def take(self, values: Column) -> Column:
        """Return the values of the first lines; keys without a line get an arbitrary value."""
        taken: Column = values[np.maximum(self.line, 0)]
        return taken

    def numbers(self, values: Column) -> pa.Array:
        """Return the values of the first lines as nullable numbers."""
        return pa.array(self.take(values), mask=self.missing)


def first_lines(chosen: Column, key: Column, order: Column, keys: int) -> FirstLines:
    """Find the first line of each key, in the order of recording."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((order[rows], key[rows]))]
    line = np.full(keys, NONE)
    heads = np.flatnonzero(np.diff(key[rows], prepend=-1)) if len(rows) else rows
    line[key[rows[heads]]] = rows[heads]
    return FirstLines(line, np.bincount(key[rows], minlength=keys))


@dataclass
class ExpectedTables:
    """The expected tables of one block of the plan."""

    lines: dict[str, Column]
    sizes: Column
    world: World
    options: Options
    first_call: int
    calls_planned: int

    def calls(self) -> pa.Table:
        """Return the table calls: one row per operation, or per leg if the capture has no operation ids."""
        lines, at, order = self.lines, self.lines["at"], self.lines["order"]
        what, leg = lines["what"], lines["leg"]
        mine = (lines["call"] >= 0) & ~lines["orphan"]
        caller = leg == CALLER
        routed = ~caller & (lines["op"] != TOPIC_OP)
        asks, final = self._is_request(), np.isin(what, FINAL)
        key, keys = self._keys()

        def first(chosen: Column) -> FirstLines:
            return first_lines(mine & chosen, key, order, keys)

        asked, accepted = first(asks & caller), first((what == LineKind.ACCEPTED) & caller)
        forwarded, returned = first(asks & routed), first(final & routed)
        answered, stopped = first(final & caller), first((what == LineKind.CANCEL) & caller)
        parts, notes = first((what == LineKind.PART) & caller), first((what == LineKind.NOTE) & caller)
        answer = np.where(answered.missing, np.iinfo(np.int64).max, answered.take(order))
        late = first(asks & caller & (order > answer[np.maximum(key, 0)]))
        either = FirstLines(np.where(asked.missing, forwarded.line, asked.line), asked.count)
        rows = np.flatnonzero(~either.missing)
        durations = [_difference(answered, asked, at), _difference(returned, forwarded, at)]
        durations.append(pc.subtract(*map(_null_if_negative, durations)))
        latency, callee_ns, hub_ns = map(_null_if_negative, durations)
        columns = {
            "date": utc_dates(either.take(at)),
            "run": pa.repeat(self.options.run, keys),
            "op": self._op(either),
            "method": _folded(either, lines["method"]),
            **self._participant_columns("caller", asked),
            **self._participant_columns("callee", forwarded),
            "requested_at": asked.numbers(at),
            "accepted_at": accepted.numbers(at),
            "forwarded_at": forwarded.numbers(at),
            "returned_at": returned.numbers(at),
            "answered_at": answered.numbers(at),
            "cancelled_at": stopped.numbers(at),
            **self._outcome(self._outcome_messages(answered, returned), stopped),
            "attempts": asked.count,
            "answers": answered.count,
            "forwards": forwarded.count,
            "returns": returned.count,
            "parts": parts.count,
            "progress": notes.count,
            "useless": late.count,
            "request_size": asked.numbers(self.sizes),
            "answer_size": answered.numbers(self.sizes),
            "latency_ns": latency,
            "callee_ns": callee_ns,
            "hub_ns": hub_ns,
            "negative_durations": sum(map(_are_negative, durations)),
        }
        schema = spark_schemas.to_arrow(spark_schemas.CALLS)
        whole = pa.table(
            {name: pa.array(value) if isinstance(value, np.ndarray) else value for name, value in columns.items()}
        )
        return whole.take(pa.array(rows)).cast(schema)

    def _is_request(self) -> Column:
        """Return a mask of the lines that request a method."""
        what = self.lines["what"]
        asks = np.isin(what, REQUESTS) | ((what == LineKind.CALL_PART) & (self.lines["nth"] == 1))
        protocol = self.world.protocol_of(self.lines["session"])
        return np.asarray(asks | ((what == LineKind.PUBLISH) & np.isin(protocol, _ASKS_TO_PUBLISH)))

    def _keys(self) -> tuple[Column, int]:
        """Return the key of each call: the operation, or the operation and the leg."""
        call = self.lines["call"] - self.first_call
        call = np.where(self.lines["call"] >= 0, call, 0)
        if self.options.ops:
            return call, self.calls_planned
        return call * LEG_COUNT + self.lines["leg"], self.calls_planned * LEG_COUNT

    def _op(self, either: FirstLines) -> pa.Array:
        op, call = either.take(self.lines["op"]), either.take(self.lines["call"]) + 1
        texts = np.where(op == TOPIC_OP, np.char.add("p", call.astype(str)), call.astype(str))
        return pa.array(texts, pa.string(), mask=np.isin(op, (NO_OP, WRONG_OP)) | (not self.options.ops))

    def _participant_columns(self, side: str, first: FirstLines) -> dict[str, pa.Array]:
        session = first.take(self.lines["session"])
        index = pa.array(session, mask=first.missing)
        return {
            f"{side}_session": pa.array(self.world.names, pa.string()).take(index),
            f"{side}_peer": pa.array(self.world.peers, pa.string()).take(index),
            f"{side}_protocol": pa.array(ENCODINGS, pa.string()).take(
                pa.array(self.world.protocol_of(session), mask=first.missing)
            ),
        }

    def _outcome_messages(self, answered: FirstLines, returned: FirstLines) -> FirstLines:
        """Return the lines with the outcome: the hub's response, or on a callee's leg the callee's response."""
        if self.options.ops:
            return answered
        return FirstLines(np.where(answered.missing, returned.line, answered.line), answered.count)

    def _outcome(self, answered: FirstLines, stopped: FirstLines) -> dict[str, pa.Array]:
        """Return the outcome columns of the first final response."""
        protocol = self.world.protocol_of(answered.take(self.lines["session"]))
        failed = ~answered.missing & (answered.take(self.lines["what"]) == LineKind.FAILURE)
        detail = answered.take(self.lines["detail"])
        count = len(FAILURES)
        names = [failure.status for failure in FAILURES] + ["result", "cancelled", "unanswered"]
        silent = np.where(stopped.missing, count + 2, count + 1)
        which = np.where(answered.missing, silent, np.where(failed, detail, count))
        reasons = [failure.reason.value for failure in FAILURES]
        codes = [wire_code(failure, name) for name in ENCODINGS for failure in FAILURES]
        coded = protocol.astype(np.int64) * count + detail
        # An error text of a UMQ callee is its own, even if it begins with a number; only its refusals have a code.
        own = np.isin(protocol, UMQS) & ~answered.take(self.lines["out"]) & (detail != BY_REASON[Reason.NO_SUCH_METHOD])
        return {
            "outcome": pa.array(names).take(pa.array(which)),
            "reason": pa.array(reasons).take(pa.array(detail, mask=~failed)),
            "code": pa.array(codes, pa.string()).take(pa.array(coded, mask=~failed | own)),
        }

    def deliveries(self, queued: Column) -> pa.Table:
        """Return the table deliveries: one row per publication and subscriber."""
        lines, at, order = self.lines, self.lines["at"], self.lines["order"]
        event, drop = lines["what"] == LineKind.EVENT, lines["what"] == LineKind.DROP
        rows = np.flatnonzero(event | drop)
        which = np.stack([lines["call"][rows], lines["session"][rows].astype(np.int64)])
        if not self.options.ops:
            # Without operation ids, events cannot be matched: each event is a row.
            which = np.stack([np.arange(len(rows)), which[1]])
        pairs, key_of_row = np.unique(which, axis=1, return_inverse=True)
        key = np.zeros(len(at), np.int64)
        key[rows] = key_of_row
        keys = pairs.shape[1]
        came, dropped = first_lines(event, key, order, keys), first_lines(drop, key, order, keys)
        either = FirstLines(np.where(came.missing, dropped.line, came.line), came.count)
        columns = {
            **(self._publication(either) if self.options.ops else self._unmatched_publication(either)),
            "run": pa.repeat(self.options.run, keys),
            **self._participant_columns("subscriber", either),
            "first_at": came.numbers(at),
            "copies": pa.array(came.count),
            "dropped": pa.array(dropped.count),
            "outcome": pa.array(["delivered", "dropped"]).take(pa.array(came.missing.astype(np.int8))),
            "queued_ns": came.numbers(queued),
            "size": came.numbers(self.sizes),
        }
        latency = pc.subtract(columns["first_at"], columns["published_at"])
        columns |= {"latency_ns": _null_if_negative(latency), "negative_durations": pa.array(_are_negative(latency))}
        schema = DELIVERIES
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _publication(self, event: FirstLines) -> dict[str, pa.Array]:
        """Return the columns of the publication of each event."""
        lines, at = self.lines, self.lines["at"]
        line_of = np.zeros(self.calls_planned, np.int64)
        published = np.flatnonzero(lines["what"] == LineKind.PUBLISH)
        line_of[lines["call"][published] - self.first_call] = published
        source = FirstLines(line_of[event.take(lines["call"]) - self.first_call], event.count)
        publisher = self._participant_columns("publisher", source)
        return {
            "date": utc_dates(source.take(at)),
            "op": pa.array(np.char.add("p", (event.take(lines["call"]) + 1).astype(str)), pa.string()),
            "topic": pa.array(_CANONICAL).take(pa.array(source.take(lines["detail"]))),
            "publisher_session": publisher["publisher_session"],
            "publisher_protocol": publisher["publisher_protocol"],
            "published_at": source.numbers(at),
        }

    def _unmatched_publication(self, event: FirstLines) -> dict[str, pa.Array]:
        """Return the same columns for a capture without operation ids.

        Only LRPM events and drops name their topic.
        """
        lines, count = self.lines, len(event.line)
        protocol = self.world.protocol_of(event.take(lines["session"]))
        named = (event.take(lines["what"]) == LineKind.DROP) | np.isin(protocol, LRPM)
        return {
            "date": utc_dates(event.take(lines["at"])),
            "topic": pa.array(_CANONICAL).take(pa.array(event.take(lines["detail"]), mask=~named)),
            **dict.fromkeys(("op", "publisher_session", "publisher_protocol"), pa.nulls(count, pa.string())),
            "published_at": pa.nulls(count, pa.int64()),
        }


def _folded(either: FirstLines, methods: Column) -> pa.Array:
    which = either.take(methods)
    return pa.array([method.folded for method in METHODS]).take(pa.array(which, mask=which < 0))


def _difference(later: FirstLines, earlier: FirstLines, at: Column) -> pa.Array:
    return pa.array(later.take(at) - earlier.take(at), mask=later.missing | earlier.missing)


def _are_negative(durations: pa.Array) -> Column:
    """Return 1 for each negative duration, which a clock that was set back produces."""
    return np.asarray(pc.fill_null(pc.less(durations, 0), False).to_numpy(zero_copy_only=False), np.int32)


def _null_if_negative(durations: pa.Array) -> pa.Array:
    return pc.if_else(pc.less(durations, 0), pa.scalar(None, pa.int64()), durations)
