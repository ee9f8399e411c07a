"""Messages for tests of matching, and a simple reference implementation of it with dictionaries and loops."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from fiveways.pipeline import spark_schemas

Row = dict[str, Any]
NOON = 1_700_049_600_000_000_000
"""2023-11-15 12:00 in UTC."""
DAY = "2023-11-15"
OTHERS = {
    "umq36": {"callback"},
    "umq": {"callback", "discover"},
    "lrpm-json": {"callback", "publish", "subscribe", "unsubscribe"},
    "lrpm-cbor": {"callback", "publish", "subscribe", "unsubscribe"},
    "mqtt-rpc": {"callback"},
    "nq": {"callback", "event", "topic_closed"},
}


def message(seq: int, direction: str, kind: str, **more: object) -> Row:
    """Return a message at time `seq`, unless `at` is set."""
    row: Row = dict.fromkeys(spark_schemas.MESSAGES.fieldNames(), None)
    row |= {"run": "r", "seq": seq, "part": 0, "at": seq, "node": "n", "session": "s", "protocol": "umq"}
    row |= {"transport": "ws", "direction": direction, "kind": kind, "size": 100 + seq, "body_size": 1}
    if kind == "result":
        row["status"] = "result"
    if kind == "call":
        row["method"] = row["target"] = "math.add"
    row |= more
    row["at"] += NOON
    return row


def table(rows: Iterable[Row], *, coded: Sequence[str] = ()) -> pa.Table:
    """Return messages as a table with some columns dictionary-encoded."""
    messages = pa.Table.from_pylist(list(rows), spark_schemas.to_arrow(spark_schemas.MESSAGES))
    for name in coded:
        index = messages.schema.get_field_index(name)
        messages = messages.set_column(index, name, messages.column(name).dictionary_encode())
    return messages


EMPTY_CALL: Row = dict.fromkeys(spark_schemas.CALLS.fieldNames(), None)
EMPTY_CALL |= dict.fromkeys(("attempts", "answers", "forwards", "returns", "parts", "progress", "useless"), 0)
EMPTY_CALL["negative_durations"] = 0


def call_row(**values: object) -> Row:
    """Return a row of calls; missing values are null or zero, and times are relative to noon."""
    row: Row = EMPTY_CALL | {"date": DAY, "run": "r", "method": "math.add"} | values
    return row | {name: NOON + row[name] for name in row if name.endswith("_at") and row[name] is not None}


class Case:
    """Messages, the expected calls, and the numbers of the expected orphans."""

    def __init__(self, messages: list[Row], calls: list[Row], orphans: tuple[int, ...] = ()) -> None:
        self.messages, self.calls, self.orphans = messages, calls, orphans

    def with_run(self, run: str) -> "Case":
        rows = [row | {"run": run} for row in self.messages]
        return Case(rows, [row | {"run": run} for row in self.calls], self.orphans)


def caller_row(at: int, **values: object) -> Row:
    """Return the row of a call with the caller's side only."""
    row: Row = {"caller_session": "s", "caller_protocol": "umq", "attempts": 1, "outcome": "unanswered"}
    return call_row(requested_at=at, **({"request_size": 100 + at} | row | values))


def answered_row(at: int, until: int, **values: object) -> Row:
    """Return the row of a call with the caller's side only and a response."""
    row: Row = {"outcome": "result", "answers": 1, "answer_size": 100 + until, "latency_ns": until - at}
    return caller_row(at, answered_at=until, **(row | values))


def position(row: Row) -> tuple[int, int]:
    return row["seq"], row["part"]


def date_text(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at // 1000)).date().isoformat()


@dataclass
class Group:
    """Messages of one operation, or of one use of an identifier, by role."""

    rows_by_role: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def first(self, role: str, name: str) -> Any:  # noqa: ANN401  of any column
        return min(self.rows_by_role[role], key=position)[name] if self.rows_by_role.get(role) else None

    def count_behind(self, role: str, first: str) -> int:
        """Count the messages after the first one of another role."""
        if not self.rows_by_role.get(first):
            return 0
        begin = min(map(position, self.rows_by_role[first]))
        return sum(position(row) > begin for row in self.rows_by_role.get(role, ()))

    def count(self, *roles: str) -> int:
        return sum(len(self.rows_by_role.get(role, ())) for role in roles)


def non_negative(duration: int | None) -> int | None:
    """Return a duration, or None if it is negative."""
    return duration if duration is not None and duration >= 0 else None


def reference_role(row: Row) -> str | None:
    is_in = row["direction"] == "in"
    match row["kind"]:
        case kind if kind in OTHERS[row["protocol"]]:
            return "other_in" if is_in else "other_out"
        case "call":
            return "attempt" if is_in else "forward"
        case "result" | "failure":
            return "return" if is_in else "answer"
        case "cancel":
            return "cancel" if is_in else None
        case "accepted" | "part" | "progress":
            return None if is_in else str(row["kind"])
        case _:
            return None


REQUESTS = ("attempt", "forward", "other_in", "other_out")
FINAL = ("answer", "return")
CALLEES = ("forward", "other_out", "return")


def matching_key(row: Row, role: str) -> tuple[Any, ...]:
    op = row["op"]
    if op is not None and not (op.startswith("p") and role in CALLEES):
        return row["run"], op
    match row["protocol"]:
        case "nq" if row["peer"] is not None:
            scope = "peer", row["peer"]
        case "nq":
            scope = "link", row["session"]
        case "mqtt-rpc" if row["channel"] is not None:
            scope = "channel", row["channel"]
        case _:
            scope = "session", row["session"]
    return row["run"], None, "callee" if role in CALLEES else "caller", scope, row["id"]


def group_rows(rows: list[Row]) -> dict[tuple[Any, ...], list[Group]]:
    keyed: dict[tuple[Any, ...], list[tuple[str, Row]]] = defaultdict(list)
    for row in sorted(rows, key=position):
        role = reference_role(row)
        if role is None:
            continue
        key = matching_key(row, role)
        if len(key) == 2 or row["id"] is not None or role in REQUESTS or role in FINAL:
            keyed[key].append((role, row))
    return {
        key: _single_group(messages) if len(key) == 2 else _groups_by_use(messages) for key, messages in keyed.items()
    }


def _single_group(messages: list[tuple[str, Row]]) -> list[Group]:
    group = Group()
    for role, row in messages:
        group.rows_by_role[role].append(row)
    return [group]


def _groups_by_use(messages: list[tuple[str, Row]]) -> list[Group]:
    """Group messages by use: the n-th request and the n-th response are one; in NQ, targets identify repeats."""
    targets: list[Any] = []
    backchannels: list[Any] = []
    opened = ended = 0
    placed: list[tuple[int, str, Row]] = []
    for role, row in messages:
        is_nq = row["protocol"] == "nq"
        if role in REQUESTS:
            is_repeat = is_nq and row["target"] in targets
            use = targets.index(row["target"]) if is_repeat else opened
            if not is_repeat:
                opened += 1
                targets.append(row["target"])
        elif role == "cancel":
            use = opened - 1
        elif is_nq:
            if row["target"] not in backchannels:
                backchannels.append(row["target"])
            use = backchannels.index(row["target"])
        else:
            use = ended
            ended += role in FINAL
        placed.append((use, role, row))
    groups = [Group() for _ in range(max(opened, 1))]
    for use, role, row in placed:
        groups[max(0, min(use, len(groups) - 1))].rows_by_role[role].append(row)
    return groups


def reference_calls(rows: list[Row]) -> list[Row]:
    return [
        _call(key, group)
        for key, groups in group_rows(rows).items()
        for group in groups
        if group.count("attempt") or (group.count("forward") and not group.count("other_in"))
    ]


def _call(key: tuple[Any, ...], group: Group) -> Row:
    first, is_forwarded = group.first, group.count("forward") > 0
    requested, answered = first("attempt", "at"), first("answer", "at")
    forwarded, returned = first("forward", "at"), first("return", "at") if is_forwarded else None
    latency = answered - requested if None not in (answered, requested) else None
    callee = returned - forwarded if returned is not None else None
    durations = [latency, callee]
    latency, callee = map(non_negative, durations)
    durations.append(None if latency is None or callee is None else latency - callee)
    role = "return" if len(key) > 2 and key[2] == "callee" else "answer"
    cancelled = first("cancel", "at")
    ended = "cancelled" if cancelled is not None and role == "answer" else "unanswered"
    return {
        "date": date_text(requested if requested is not None else forwarded),
        "run": key[0],
        "op": key[1],
        "method": first("attempt", "method") or first("forward", "method"),
        "caller_session": first("attempt", "session"),
        "caller_peer": first("attempt", "peer"),
        "caller_protocol": first("attempt", "protocol"),
        "callee_session": first("forward", "session"),
        "callee_peer": first("forward", "peer"),
        "callee_protocol": first("forward", "protocol"),
        "requested_at": requested,
        "accepted_at": first("accepted", "at"),
        "forwarded_at": forwarded,
        "returned_at": returned,
        "answered_at": answered,
        "cancelled_at": cancelled,
        "outcome": first(role, "status") or ended,
        "reason": first(role, "reason"),
        "code": first(role, "code"),
        "attempts": group.count("attempt"),
        "answers": group.count("answer"),
        "forwards": group.count("forward"),
        "returns": group.count("return") if is_forwarded else 0,
        "parts": group.count("part"),
        "progress": group.count("progress"),
        "useless": group.count_behind("attempt", "answer"),
        "request_size": first("attempt", "size"),
        "answer_size": first("answer", "size"),
        "latency_ns": latency,
        "callee_ns": callee,
        "hub_ns": non_negative(durations[2]),
        "negative_durations": sum(spent is not None and spent < 0 for spent in durations),
    }


def reference_orphans(rows: list[Row]) -> list[Row]:
    orphans = []
    for groups in group_rows(rows).values():
        for role, requests in (("answer", ("attempt", "other_in")), ("return", ("forward", "other_out"))):
            if not any(group.count(*requests) for group in groups):
                orphans += [row for group in groups for row in group.rows_by_role.get(role, ())]
    names = [name for name in spark_schemas.ORPHANS.fieldNames() if name != "date"]
    return [{"date": date_text(row["at"])} | {name: row[name] for name in names} for row in orphans]
