"""What a store holds when it is opened."""

import sqlite3
from dataclasses import dataclass, field

from fiveways.model.store_changes import (
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutPeer,
    PutRequest,
    PutRetained,
    PutTombstone,
)
from fiveways.store.request_log import RequestLog


@dataclass(frozen=True)
class StoreContents:
    """The records that would make the store what it is."""

    peers: list[PutPeer] = field(default_factory=list)
    requests: list[PutRequest] = field(default_factory=list)
    """In the order in which they were last put down; so are the answers."""
    expired_requests: list[PutRequest] = field(default_factory=list)
    """Requests whose time was over before they were answered."""
    answers: list[PutAnswer] = field(default_factory=list)
    tombstones: list[PutTombstone] = field(default_factory=list)
    """Those that are over first come first."""
    jobs: list[PutJob] = field(default_factory=list)
    """Queue by queue, in the order of their numbers; so are the dead ones."""
    dead_jobs: list[tuple[PutJob, PutDeadLetter]] = field(default_factory=list)
    retained: list[PutRetained] = field(default_factory=list)
    expired_count: int = 0
    """Answers and tombs whose time was over, and that are not kept any more."""


def load(connection: sqlite3.Connection, log: RequestLog, now: float) -> StoreContents:
    """Read everything whose time is not over; the rest goes from the file as well, if that can be written."""
    requests, answers, tombs, expired = log.load(now)
    items, dead = _load_jobs(connection)
    return StoreContents(
        peers=[
            PutPeer(*row)
            for row in connection.execute("SELECT peer, identity, seen_at, remote FROM peer ORDER BY peer")
        ],
        requests=[each for each in requests if each.expires_at > now],
        expired_requests=[each for each in requests if each.expires_at <= now],
        answers=answers,
        tombstones=tombs,
        jobs=items,
        dead_jobs=dead,
        retained=[
            PutRetained(*row)
            for row in connection.execute("SELECT topic, word, publication, owner FROM retained ORDER BY topic")
        ],
        expired_count=expired,
    )


def _load_jobs(connection: sqlite3.Connection) -> tuple[list[PutJob], list[tuple[PutJob, PutDeadLetter]]]:
    items: list[PutJob] = []
    dead: list[tuple[PutJob, PutDeadLetter]] = []
    rows = connection.execute("SELECT queue, number, word, tries, owner, why, at FROM item ORDER BY queue, number")
    for queue, number, word, tries, owner, why, at in rows:
        item = PutJob(queue, number, word, tries, owner)
        if why is None:
            items.append(item)
        else:
            dead.append((item, PutDeadLetter(queue, number, why, at)))
    return items, dead
