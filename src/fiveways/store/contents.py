"""Contents of a store when it is opened."""

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
    """Records that would recreate the store."""

    peers: list[PutPeer] = field(default_factory=list)
    requests: list[PutRequest] = field(default_factory=list)
    """In the order of their last change; so are the responses."""
    expired_requests: list[PutRequest] = field(default_factory=list)
    """Requests that expired before they were answered."""
    answers: list[PutAnswer] = field(default_factory=list)
    tombstones: list[PutTombstone] = field(default_factory=list)
    """In the order of their end."""
    jobs: list[PutJob] = field(default_factory=list)
    """In the order of queue and number; so are the dead jobs."""
    dead_jobs: list[tuple[PutJob, PutDeadLetter]] = field(default_factory=list)
    retained: list[PutRetained] = field(default_factory=list)
    expired_count: int = 0
    """Number of expired responses and tombstones, which are deleted."""


def load(connection: sqlite3.Connection, log: RequestLog, now: float) -> StoreContents:
    """Read all records that have not expired. Expired ones are deleted if the file is writable."""
    requests, answers, tombstones, expired = log.load(now)
    jobs, dead_jobs = _load_jobs(connection)
    return StoreContents(
        peers=[
            PutPeer(*row)
            for row in connection.execute("SELECT peer, identity, seen_at, remote FROM peer ORDER BY peer")
        ],
        requests=[request for request in requests if request.expires_at > now],
        expired_requests=[request for request in requests if request.expires_at <= now],
        answers=answers,
        tombstones=tombstones,
        jobs=jobs,
        dead_jobs=dead_jobs,
        retained=[
            PutRetained(*row)
            for row in connection.execute("SELECT topic, word, publication, owner FROM retained ORDER BY topic")
        ],
        expired_count=expired,
    )


def _load_jobs(connection: sqlite3.Connection) -> tuple[list[PutJob], list[tuple[PutJob, PutDeadLetter]]]:
    jobs: list[PutJob] = []
    dead_jobs: list[tuple[PutJob, PutDeadLetter]] = []
    rows = connection.execute("SELECT queue, number, word, tries, owner, why, at FROM item ORDER BY queue, number")
    for queue, number, payload, tries, owner, error, at in rows:
        job = PutJob(queue, number, payload, tries, owner)
        if error is None:
            jobs.append(job)
        else:
            dead_jobs.append((job, PutDeadLetter(queue, number, error, at)))
    return jobs, dead_jobs
