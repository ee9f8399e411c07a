"""Messages for tests of the matching, and the matching told in the plainest way: one dictionary, one loop."""

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
    """Return a message; it is later than those with a smaller number, unless `at` says otherwise."""
    told: Row = dict.fromkeys(spark_schemas.MESSAGES.fieldNames(), None)
    told |= {"run": "r", "seq": seq, "part": 0, "at": seq, "node": "n", "session": "s", "protocol": "umq"}
    told |= {"transport": "ws", "direction": direction, "kind": kind, "size": 100 + seq, "body_size": 1}
    if kind == "result":
        told["status"] = "result"
    if kind == "call":
        told["method"] = told["target"] = "math.add"
    told |= more
    told["at"] += NOON
    return told


def table(rows: Iterable[Row], *, coded: Sequence[str] = ()) -> pa.Table:
    """Return messages as a table, some of its columns as dictionaries."""
    made = pa.Table.from_pylist(list(rows), spark_schemas.to_arrow(spark_schemas.MESSAGES))
    for name in coded:
        made = made.set_column(made.schema.get_field_index(name), name, made.column(name).dictionary_encode())
    return made


NOTHING: Row = dict.fromkeys(spark_schemas.CALLS.fieldNames(), None)
NOTHING |= dict.fromkeys(("attempts", "answers", "forwards", "returns", "parts", "progress", "useless"), 0)
NOTHING["negative_durations"] = 0


def call(**known: object) -> Row:
    """Return a row of calls: what is not said is null, or zero."""
    told: Row = NOTHING | {"date": DAY, "run": "r", "method": "math.add"} | known
    return told | {name: NOON + told[name] for name in told if name.endswith("_at") and told[name] is not None}


class Case:
    """Messages, the calls they make, and the numbers of those that are orphans."""

    def __init__(self, messages: list[Row], calls: list[Row], orphans: tuple[int, ...] = ()) -> None:
        self.messages, self.calls, self.orphans = messages, calls, orphans

    def of(self, run: str) -> "Case":
        rows = [row | {"run": run} for row in self.messages]
        return Case(rows, [row | {"run": run} for row in self.calls], self.orphans)


def asked(at: int, **known: object) -> Row:
    """Return a call of the caller's leg alone."""
    told: Row = {"caller_session": "s", "caller_protocol": "umq", "attempts": 1, "outcome": "unanswered"}
    return call(requested_at=at, **({"request_size": 100 + at} | told | known))


def answered(at: int, until: int, **known: object) -> Row:
    """Return the same with an answer."""
    told: Row = {"outcome": "result", "answers": 1, "answer_size": 100 + until, "latency_ns": until - at}
    return asked(at, answered_at=until, **(told | known))


def order(row: Row) -> tuple[int, int]:
    return row["seq"], row["part"]


def date_of(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at // 1000)).date().isoformat()


@dataclass
class Group:
    """The messages of one operation, or of one use of an identifier, by role."""

    said: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def first(self, role: str, name: str) -> Any:  # noqa: ANN401  of any column
        return min(self.said[role], key=order)[name] if self.said.get(role) else None

    def count_behind(self, role: str, first: str) -> int:
        """Count the messages that stand behind the first one of another role."""
        if not self.said.get(first):
            return 0
        begin = min(map(order, self.said[first]))
        return sum(order(row) > begin for row in self.said.get(role, ()))

    def count(self, *which: str) -> int:
        return sum(len(self.said.get(role, ())) for role in which)


def known(spent: int | None) -> int | None:
    """Return a duration, unless it is negative."""
    return spent if spent is not None and spent >= 0 else None


def role_of(row: Row) -> str | None:
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


ASKING = ("attempt", "forward", "other_in", "other_out")
FINAL = ("answer", "return")
CALLEES = ("forward", "other_out", "return")


def key_of(row: Row, role: str) -> tuple[Any, ...]:
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


def groups_of(rows: list[Row]) -> dict[tuple[Any, ...], list[Group]]:
    keyed: dict[tuple[Any, ...], list[tuple[str, Row]]] = defaultdict(list)
    for row in sorted(rows, key=order):
        role = role_of(row)
        if role is None:
            continue
        key = key_of(row, role)
        if len(key) == 2 or row["id"] is not None or role in ASKING or role in FINAL:
            keyed[key].append((role, row))
    return {key: _one(said) if len(key) == 2 else _uses(said) for key, said in keyed.items()}


def _one(said: list[tuple[str, Row]]) -> list[Group]:
    group = Group()
    for role, row in said:
        group.said[role].append(row)
    return [group]


def _uses(said: list[tuple[str, Row]]) -> list[Group]:
    """Give each message its use: the n-th request and the n-th answer are one, but in NQ targets tell repeats."""
    targets: list[Any] = []
    backchannels: list[Any] = []
    opened = ended = 0
    placed: list[tuple[int, str, Row]] = []
    for role, row in said:
        is_nq = row["protocol"] == "nq"
        if role in ASKING:
            known = is_nq and row["target"] in targets
            use = targets.index(row["target"]) if known else opened
            if not known:
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
        groups[max(0, min(use, len(groups) - 1))].said[role].append(row)
    return groups


def calls_of(rows: list[Row]) -> list[Row]:
    return [
        _call(key, group)
        for key, groups in groups_of(rows).items()
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
    latency, callee = map(known, durations)
    durations.append(None if latency is None or callee is None else latency - callee)
    told = "return" if len(key) > 2 and key[2] == "callee" else "answer"
    cancelled = first("cancel", "at")
    ended = "cancelled" if cancelled is not None and told == "answer" else "unanswered"
    return {
        "date": date_of(requested if requested is not None else forwarded),
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
        "outcome": first(told, "status") or ended,
        "reason": first(told, "reason"),
        "code": first(told, "code"),
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
        "hub_ns": known(durations[2]),
        "negative_durations": sum(spent is not None and spent < 0 for spent in durations),
    }


def orphans_of(rows: list[Row]) -> list[Row]:
    found = []
    for groups in groups_of(rows).values():
        for role, asking in (("answer", ("attempt", "other_in")), ("return", ("forward", "other_out"))):
            if not any(group.count(*asking) for group in groups):
                found += [row for group in groups for row in group.said.get(role, ())]
    names = [name for name in spark_schemas.ORPHANS.fieldNames() if name != "date"]
    return [{"date": date_of(row["at"])} | {name: row[name] for name in names} for row in found]
