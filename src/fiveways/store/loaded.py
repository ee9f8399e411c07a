"""What a store holds when it is opened."""

import sqlite3
from dataclasses import dataclass, field

from fiveways.model.records import BuryItem, Forget, PutAnswer, PutItem, PutPeer, PutRequest, PutRetained
from fiveways.store.log import Log


@dataclass(frozen=True)
class Loaded:
    """The records that would make the store what it is."""

    peers: list[PutPeer] = field(default_factory=list)
    requests: list[PutRequest] = field(default_factory=list)
    """In the order in which they were last put down; so are the answers."""
    late: list[PutRequest] = field(default_factory=list)
    """Requests whose time was over before they were answered."""
    answers: list[PutAnswer] = field(default_factory=list)
    tombs: list[Forget] = field(default_factory=list)
    """Those that are over first come first."""
    items: list[PutItem] = field(default_factory=list)
    """Queue by queue, in the order of their numbers; so are the dead ones."""
    dead: list[tuple[PutItem, BuryItem]] = field(default_factory=list)
    retained: list[PutRetained] = field(default_factory=list)
    expired: int = 0
    """Answers and tombs whose time was over, and that are not kept any more."""


def load(connection: sqlite3.Connection, log: Log, now: float) -> Loaded:
    """Read everything whose time is not over; the rest goes from the file as well, if that can be written."""
    requests, answers, tombs, expired = log.load(now)
    items, dead = _items(connection)
    return Loaded(
        peers=[
            PutPeer(*row)
            for row in connection.execute("SELECT peer, identity, seen_at, remote FROM peer ORDER BY peer")
        ],
        requests=[each for each in requests if each.expires_at > now],
        late=[each for each in requests if each.expires_at <= now],
        answers=answers,
        tombs=tombs,
        items=items,
        dead=dead,
        retained=[
            PutRetained(*row)
            for row in connection.execute("SELECT topic, word, publication, owner FROM retained ORDER BY topic")
        ],
        expired=expired,
    )


def _items(connection: sqlite3.Connection) -> tuple[list[PutItem], list[tuple[PutItem, BuryItem]]]:
    items: list[PutItem] = []
    dead: list[tuple[PutItem, BuryItem]] = []
    rows = connection.execute("SELECT queue, number, word, tries, owner, why, at FROM item ORDER BY queue, number")
    for queue, number, word, tries, owner, why, at in rows:
        item = PutItem(queue, number, word, tries, owner)
        if why is None:
            items.append(item)
        else:
            dead.append((item, BuryItem(queue, number, why, at)))
    return items, dead
