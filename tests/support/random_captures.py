"""Random captures, split at random into segments."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from tests.support.matching_cases import FAILED
from tests.support.reference_matching import Row, message

SPLITS = ("one segment", "many segments", "one message in each")
PROTOCOLS = ("umq", "umq36", "lrpm-json", "lrpm-cbor", "nq", "mqtt-rpc")
REQUEST_KINDS = ("call", "callback", "publish", "cancel")
KINDS = ("call", "result", "failure", "part", "progress", "accepted", "cancel", "callback", "publish", "event", "ack")


def random_rows(run: str, chance: Random) -> list[Row]:
    """Return messages with few sessions, identifiers and operations, so that these often coincide, sensibly or not."""

    def some(*values: str | None) -> tuple[str | None, ...]:
        return values[: chance.randint(1, len(values))]

    choices: dict[str, tuple[str | None, ...]] = {
        "session": some("s1", "s2"),
        "peer": some("p1", None, "p2"),
        "protocol": tuple(chance.sample(PROTOCOLS, chance.choice((1, 1, 2)))),
        "channel": some("/a", None),
        "op": some(None, "1", "p1", "2"),
        "id": some("1", "2", None),
        "target": some("x", "y", None),
        "method": ("m", "n", None),
    }
    kinds = [*KINDS, *["call", "result"] * chance.choice((2, 5, 10))]
    is_callers = chance.choice((0.0, 0.5, 1.0))
    rows = []
    for seq in range(chance.randint(4, 30)):
        kind = chance.choice(kinds)
        is_in = (kind in REQUEST_KINDS) == (chance.random() < is_callers)
        values: Row = {name: chance.choice(options) for name, options in choices.items()}
        values |= {"at": chance.choice((seq, chance.randint(0, 12))), "part": chance.randint(0, 2)}
        row = message(seq, "in" if is_in else "out", kind, run=run, **values)
        rows.append(row | (FAILED if kind == "failure" else {}))
    return rows


def split_rows(rows: list[Row], split: str, chance: Random) -> list[list[Row]]:
    """Split a capture into segments, which may overlap in time."""
    if split == SPLITS[0]:
        return [chance.sample(rows, len(rows))]
    if split == SPLITS[2]:
        return [[row] for row in rows]
    segments: list[list[Row]] = [[] for _ in range(chance.randint(2, 7))]
    for row in rows:
        chance.choice(segments).append(row)
    return segments


def row_counts(rows: Iterable[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Return rows in a form that can be compared independently of their order."""
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)
