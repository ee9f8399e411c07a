"""What a store holds when it is opened."""

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field

from fiveways.model.records import BuryItem, Forget, PutAnswer, PutItem, PutPeer, PutRequest, PutRetained
from fiveways.store import schema


@dataclass(frozen=True)
class Loaded:
    """The records that would make the store what it is."""

    peers: list[PutPeer] = field(default_factory=list)
    requests: list[PutRequest] = field(default_factory=list)
    """In the order in which they came; so are the answers."""
    answers: list[PutAnswer] = field(default_factory=list)
    tombs: list[Forget] = field(default_factory=list)
    """Those that are over first come first."""
    items: list[PutItem] = field(default_factory=list)
    """Queue by queue, in the order of their numbers; so are the dead ones."""
    dead: list[tuple[PutItem, BuryItem]] = field(default_factory=list)
    retained: list[PutRetained] = field(default_factory=list)
    expired: int = 0
    """Requests, answers and tombs whose time was over, and that are not kept any more."""


def load(connection: sqlite3.Connection, now: float) -> Loaded:
    """Read everything whose time is not over; the rest goes from the file as well, if that can be written."""
    requests: list[PutRequest] = []
    answers: list[PutAnswer] = []
    late: list[int] = []
    rows = connection.execute("SELECT id, peer, key, word, expires_at, state FROM request ORDER BY id")
    for number, peer, key, word, expires_at, state in rows:
        if expires_at <= now:
            late.append(number)
        elif state == schema.ANSWER:
            answers.append(PutAnswer(peer, key, word, expires_at))
        else:
            requests.append(PutRequest(peer, key, word, expires_at))
    tombs, useless, forgotten = _tombs(connection, now)
    items, dead = _items(connection)
    with suppress(sqlite3.Error):
        _drop(connection, late, useless)
    return Loaded(
        peers=[PutPeer(*row) for row in connection.execute("SELECT peer, identity, seen_at FROM peer ORDER BY peer")],
        requests=requests,
        answers=answers,
        tombs=tombs,
        items=items,
        dead=dead,
        retained=[
            PutRetained(*row)
            for row in connection.execute("SELECT topic, word, publication FROM retained ORDER BY topic")
        ],
        expired=len(late) + forgotten,
    )


def _tombs(connection: sqlite3.Connection, now: float) -> tuple[list[Forget], list[int], int]:
    """Return the keys that are over, the lines of the log that say nothing any more, and how many of them ran out."""
    last: dict[str, dict[str, tuple[int, float]]] = {}
    lines: set[int] = set()
    for number, peer, key, until in connection.execute("SELECT id, peer, key, until FROM tomb ORDER BY id"):
        lines.add(number)
        if key is None:
            last.pop(peer, None)
        else:
            last.setdefault(peer, {})[key] = number, until
    for peer, key in connection.execute("SELECT peer, key FROM request"):
        last.get(peer, {}).pop(key, None)
    found = [(until, number, peer, key) for peer, keys in last.items() for key, (number, until) in keys.items()]
    alive = sorted(each for each in found if each[0] > now)
    forgotten = sum(0 < each[0] <= now for each in found)
    lines.difference_update(number for _, number, _, _ in alive)
    return [Forget(peer, key, until) for until, _, peer, key in alive], sorted(lines), forgotten


def _items(connection: sqlite3.Connection) -> tuple[list[PutItem], list[tuple[PutItem, BuryItem]]]:
    items: list[PutItem] = []
    dead: list[tuple[PutItem, BuryItem]] = []
    rows = connection.execute("SELECT queue, number, word, tries, why, at FROM item ORDER BY queue, number")
    for queue, number, word, tries, why, at in rows:
        item = PutItem(queue, number, word, tries)
        if why is None:
            items.append(item)
        else:
            dead.append((item, BuryItem(queue, number, why, at)))
    return items, dead


def _drop(connection: sqlite3.Connection, requests: list[int], tombs: list[int]) -> None:
    if not (requests or tombs):
        return
    connection.execute("BEGIN")
    try:
        connection.executemany("DELETE FROM request WHERE id = ?", ((number,) for number in requests))
        connection.executemany("DELETE FROM tomb WHERE id = ?", ((number,) for number in tombs))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
