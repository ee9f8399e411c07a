"""Work queues: pushed jobs wait for workers, or pulls of workers wait for jobs."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from fiveways.errors import Reason, Unrepresentable
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.pending_kinds import JobAssignment, QueuedJob
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.session import Session, create_hub_session
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import LimitShares, Owner, Pool, owner_from_name
from fiveways.hub.sizes import size_of
from fiveways.hub.store_status import StoreStatus
from fiveways.hub.timers import WakeTime
from fiveways.model.messages import Call
from fiveways.model.store_changes import DropJob, PutDeadLetter, PutJob, StoreChange
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Json, Payload

_MAX_DOUBLINGS: Final = 32
_PULL_METHOD: Final = "hub.pull"
"""The method name under which assignments are counted."""


class Pull(msgspec.Struct, frozen=True):
    """A worker that waits for one job, as a call of this callback."""

    session: Session
    callback: str


class WorkQueue:
    """One work queue. Either jobs or pulls wait in it, except while the hub is closing."""

    __slots__ = ("dead_jobs", "delayed", "in_progress", "jobs", "name", "owner", "pool", "pulls")

    def __init__(self, name: str, owner: Owner, max_jobs: int, shares: LimitShares) -> None:
        self.name = name
        self.owner = owner
        """The owner of the peer that used it first."""
        self.pool = Pool(max_jobs, shares)
        """All jobs of the queue, dead ones included."""
        self.jobs: list[tuple[int, QueuedJob]] = []
        """A heap: a returned job goes back to its old position."""
        self.pulls: dict[int, Pull] = {}
        self.in_progress = 0
        """Number of jobs at workers."""
        self.delayed = 0
        """Number of jobs that wait for a retry; one heap holds those of all queues."""
        self.dead_jobs: dict[int, QueuedJob] = {}
        """The dead-letter queue: jobs without tries left, by number."""

    @property
    def waiting(self) -> int:
        """Number of jobs that no worker has."""
        return len(self.jobs) + self.delayed


class WorkQueues:
    """All work queues; an unused queue is removed."""

    def __init__(
        self,
        limits: Limits,
        settings: HubSettings,
        pending_calls: PendingCalls,
        alarm: WakeTime,
        epoch: float,
        store_status: StoreStatus,
    ) -> None:
        self._alarm = alarm
        self._delayed_jobs: list[tuple[float, int, str, QueuedJob]] = []
        """A heap of the jobs that wait for a retry: time, number, queue."""
        self._store_status, self._is_durable = store_status, store_status.is_durable
        self._epoch = epoch
        self._limits = limits
        self._settings = settings
        self._pending_calls = pending_calls
        self._hub_session = create_hub_session()
        """The caller of workers is the hub itself."""
        self._by_name: dict[str, WorkQueue] = {}
        self._pool = Pool(settings.max_queues, settings.shares)
        self._pulls_of: dict[str, dict[int, str]] = {}
        self._bytes = Pool(settings.max_queue_bytes, settings.shares)
        self._last_number = 0
        self._is_closed = False

    def configure(self, settings: HubSettings) -> None:
        """Apply new limits."""
        self._settings = settings
        self._pool.configure(settings.max_queues, settings.shares)
        self._bytes.configure(settings.max_queue_bytes, settings.shares)
        for queue in self._by_name.values():
            queue.pool.configure(settings.max_queue, settings.shares)

    def close(self) -> None:
        """Accept and assign no job any more."""
        self._is_closed = True

    def waiting(self) -> Mapping[str, int]:
        """Return the number of waiting jobs of each queue."""
        return {name: queue.waiting for name, queue in self._by_name.items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the numbers of waiting, assigned and dead jobs of each queue."""
        return {
            name: {"waiting": queue.waiting, "given": queue.in_progress, "dead": len(queue.dead_jobs)}
            for name, queue in self._by_name.items()
        }

    def push(self, owner: Owner, name: str, body: Payload, now: float) -> tuple[int, StoreChange | None, Deliveries]:
        """Add a job; return the number of waiting jobs, the record for the store, and the calls of workers."""
        self._store_status.check_available()
        queue = self._queue_with_room(name, owner)
        if excess := queue.pool.excess(owner):
            raise overloaded(f"too many jobs in {name}: {excess}")
        try:
            size = size_of(body)
            encoded = body.nq() if self._is_durable else b""
        except Unrepresentable as exc:
            raise bad_arguments(str(exc)) from exc
        if excess := self._bytes.excess(owner, size):
            raise overloaded(f"too many bytes in work queues: {excess}")
        job = QueuedJob(self._next_number(), body, size, owner=owner)
        self._add(queue, job)
        heappush(queue.jobs, (job.number, job))
        record = PutJob(name, job.number, encoded, 0, owner.name) if self._is_durable else None
        deliveries = self._assign_jobs(queue, now)
        return queue.waiting, record, deliveries

    def restore(self, jobs: Iterable[PutJob], dead_jobs: Iterable[tuple[PutJob, PutDeadLetter]]) -> None:
        """Restore the jobs of a previous hub process."""
        for record in jobs:
            queue, job = self._restore_job(record)
            heappush(queue.jobs, (job.number, job))
        for record, dead_letter in dead_jobs:
            queue, job = self._restore_job(record)
            job.error, job.died_at = dead_letter.why, dead_letter.at
            queue.dead_jobs[job.number] = job

    def _restore_job(self, record: PutJob) -> tuple[WorkQueue, QueuedJob]:
        owner = owner_from_name(record.owner)
        queue = self._by_name.get(record.queue) or self._new_queue(record.queue, owner)
        job = QueuedJob(record.number, Json(record.payload), len(record.payload), record.tries, owner=owner)
        self._add(queue, job)
        self._last_number = max(self._last_number, job.number)
        return queue, job

    def _add(self, queue: WorkQueue, job: QueuedJob) -> None:
        self._ensure_listed(queue)
        queue.pool.acquire(job.owner)
        self._bytes.acquire(job.owner, job.size)

    def _remove(self, queue: WorkQueue, job: QueuedJob) -> None:
        queue.pool.release(job.owner)
        self._bytes.release(job.owner, job.size)
        self._remove_if_empty(queue)

    def jobs(self) -> Iterator[tuple[str, QueuedJob, bool]]:
        """Yield each job with its queue, and whether a worker has it."""
        for name, queue in self._by_name.items():
            for job in (*(job for _, job in queue.jobs), *queue.dead_jobs.values()):
                yield name, job, False
        for _, _, name, job in self._delayed_jobs:
            yield name, job, False
        for pending in self._hub_session.calls_made.values():
            if isinstance(pending.kind, JobAssignment):
                yield pending.kind.queue, pending.kind.job, True

    def delete(self, name: str, numbers: AbstractSet[int]) -> list[StoreChange]:
        """Delete jobs that no worker has; return the changes for the store."""
        queue = self._by_name[name]
        deleted = [
            job
            for entry, job, is_assigned in self.jobs()
            if entry == name and job.number in numbers and not is_assigned
        ]
        delayed = [entry for entry in self._delayed_jobs if entry[2] != name or entry[1] not in numbers]
        queue.delayed -= len(self._delayed_jobs) - len(delayed)
        queue.jobs = [entry for entry in queue.jobs if entry[0] not in numbers]
        self._delayed_jobs = delayed
        heapify(queue.jobs)
        heapify(delayed)
        for job in deleted:
            queue.dead_jobs.pop(job.number, None)
            queue.pool.release(job.owner)
            self._bytes.release(job.owner, job.size)
        self._remove_if_empty(queue)
        return [DropJob(name, job.number) for job in deleted] if self._is_durable else []

    # The dead-letter queue.

    def dead_jobs(self, name: str, after: int, limit: int) -> tuple[list[QueuedJob], int]:
        """Return the first `limit` dead jobs of a queue after a number, and the number of further ones."""
        queue = self._by_name.get(name)
        jobs = [job for number, job in sorted(queue.dead_jobs.items()) if number > after] if queue is not None else []
        return jobs[:limit], max(0, len(jobs) - limit)

    def dead_job(self, name: str, number: int) -> QueuedJob:
        """Return a dead job; raise Refusal if there is none of that number."""
        queue = self._by_name.get(name)
        job = None if queue is None else queue.dead_jobs.get(number)
        if job is None:
            raise bad_arguments(f"there is no dead job {number} in {name}")
        return job

    def redrive(self, name: str, number: int | None, now: float) -> tuple[int, Deliveries]:
        """Return one dead job, or all of them, to their queue; return their number and the deliveries."""
        if number is not None:
            self.dead_job(name, number)
        queue = self._by_name.get(name)
        if queue is None or not queue.dead_jobs:
            return 0, []
        numbers = sorted(queue.dead_jobs) if number is None else [number]
        deliveries: Deliveries = []
        for job_number in numbers:
            job = queue.dead_jobs.pop(job_number)
            job.tries, job.died_at = 0, 0.0
            heappush(queue.jobs, (job.number, job))
            deliveries += self._persist(PutJob(name, job.number, job.body.nq(), 0, job.owner.name))
        return len(numbers), [*deliveries, *self._assign_jobs(queue, now)]

    def delete_dead_job(self, name: str, number: int) -> StoreChange | None:
        """Delete a dead job and return the change for the store; raise Refusal if there is no such job."""
        self._store_status.check_available()
        job = self.dead_job(name, number)
        queue = self._by_name[name]
        del queue.dead_jobs[number]
        self._remove(queue, job)
        return DropJob(name, number) if self._is_durable else None

    def _persist(self, record: StoreChange) -> Deliveries:
        return [Persist(record, [])] if self._is_durable else []

    def count_of(self, peer: str) -> int:
        """Return the number of pulls of a peer."""
        return len(self._pulls_of.get(peer, ()))

    def pull(self, session: Session, name: str, callback: str, now: float) -> Deliveries:
        """Assign a job to a callback of the worker, now or when there is one."""
        queue = self._queue_with_room(name, session.owner)
        pulls = self._pulls_of.get(session.peer, {})
        if len(pulls) + len(session.calls_served) >= self._limits.max_pending:
            raise overloaded("too many calls are open")
        self._ensure_listed(queue)
        number = self._next_number()
        queue.pulls[number] = Pull(session, callback)
        self._pulls_of.setdefault(session.peer, pulls)[number] = name
        return self._assign_jobs(queue, now)

    def complete(self, assignment: JobAssignment) -> Deliveries:
        """Delete a finished job."""
        queue = self._by_name[assignment.queue]
        queue.in_progress -= 1
        self._remove(queue, assignment.job)
        return self._persist(DropJob(assignment.queue, assignment.job.number))

    def return_job(self, assignment: JobAssignment, reason: Reason, text: str, now: float) -> Deliveries:
        """Return an unfinished job to its queue: after a delay if its worker failed, as dead after the last try."""
        queue, job = self._by_name[assignment.queue], assignment.job
        queue.in_progress -= 1
        if reason is Reason.NO_SUCH_CALLBACK:
            # A worker that stopped waiting while the job was in transit never had it: this does not count as a try.
            job.tries -= 1
        job.error = f"{reason.value}: {text}" if text else str(reason.value)
        if job.tries >= self._settings.max_tries:
            queue.dead_jobs[job.number] = job
            job.died_at = self._epoch + now
            return self._persist(PutDeadLetter(queue.name, job.number, job.error, job.died_at))
        deliveries: Deliveries = []
        if self._is_durable:
            deliveries = self._persist(PutJob(queue.name, job.number, job.body.nq(), job.tries, job.owner.name))
        delay = self._retry_delay(job) if reason is Reason.RAISED else 0.0
        if delay > 0:
            # A worker that fails at once would otherwise use up all tries within a second.
            heappush(self._delayed_jobs, (now + delay, job.number, queue.name, job))
            queue.delayed += 1
            self._alarm.set_latest(now + delay)
            return deliveries
        heappush(queue.jobs, (job.number, job))
        return [*deliveries, *self._assign_jobs(queue, now)]

    def _retry_delay(self, job: QueuedJob) -> float:
        doublings = min(job.tries - 1, _MAX_DOUBLINGS)
        return min(self._settings.retry_delay * (1 << doublings), self._settings.max_retry_delay)

    def deadline(self) -> float | None:
        """Return the time of the next retry."""
        return self._delayed_jobs[0][0] if self._delayed_jobs else None

    def expire(self, now: float) -> Deliveries:
        """Assign the jobs after their delay."""
        deliveries: Deliveries = []
        while self._delayed_jobs and self._delayed_jobs[0][0] <= now:
            _, number, name, job = heappop(self._delayed_jobs)
            queue = self._by_name[name]
            queue.delayed -= 1
            heappush(queue.jobs, (number, job))
            deliveries += self._assign_jobs(queue, now)
        return deliveries

    def leave(self, session: Session) -> None:
        """Delete the pulls of a peer; its jobs return to their queues when its calls end."""
        for number, name in self._pulls_of.pop(session.peer, {}).items():
            queue = self._by_name[name]
            del queue.pulls[number]
            self._remove_if_empty(queue)

    def cancel_pull(self, session: Session, callback: str) -> None:
        """Delete the waiting pulls of a peer for one callback."""
        pulls = self._pulls_of.get(session.peer, {})
        for number, name in list(pulls.items()):
            queue = self._by_name[name]
            if queue.pulls[number].callback == callback:
                del queue.pulls[number], pulls[number]
                self._remove_if_empty(queue)
        if not pulls:
            self._pulls_of.pop(session.peer, None)

    def revoke(self, session: Session) -> None:
        """Delete the pulls of a peer from queues that its permissions forbid now."""
        allowed, pulls = session.access.pull, self._pulls_of.get(session.peer)
        if allowed is None or pulls is None:
            return
        for number, name in list(pulls.items()):
            if not allowed.allows(name):
                del self._by_name[name].pulls[number], pulls[number]
                self._remove_if_empty(self._by_name[name])
        if not pulls:
            del self._pulls_of[session.peer]

    def is_made_by_hub(self, pending: PendingCall) -> bool:
        """Return whether a call was made by the hub itself."""
        return pending.caller is self._hub_session

    def _queue_with_room(self, name: str, owner: Owner) -> WorkQueue:
        """Return a queue or a new one; raise Refusal if there is no room."""
        if self._is_closed:
            raise Refusal(Reason.UNAVAILABLE, "the hub is closing")
        queue = self._by_name.get(name)
        if queue is None and (excess := self._pool.excess(owner)):
            raise overloaded(f"too many queues: {excess}")
        return queue or self._new_queue(name, owner)

    def _new_queue(self, name: str, owner: Owner) -> WorkQueue:
        return WorkQueue(name, owner, self._settings.max_queue, self._settings.shares)

    def _ensure_listed(self, queue: WorkQueue) -> None:
        """Add a new queue to the table."""
        if queue.name not in self._by_name:
            self._by_name[queue.name] = queue
            self._pool.acquire(queue.owner)

    def _assign_jobs(self, queue: WorkQueue, now: float) -> Deliveries:
        deliveries: Deliveries = []
        while queue.jobs and queue.pulls and not self._is_closed:
            number = next(iter(queue.pulls))
            pull = queue.pulls.pop(number)
            pulls = self._pulls_of[pull.session.peer]
            del pulls[number]
            if not pulls:
                del self._pulls_of[pull.session.peer]
            job = heappop(queue.jobs)[1]
            queue.in_progress += 1
            job.tries += 1
            timeout = self._pending_calls.default_timeout
            pending = self._pending_calls.open(
                self._hub_session, f"w{self._next_number()}", pull.session, _PULL_METHOD, timeout, now
            )
            pending.mark_special(JobAssignment(queue.name, job))
            is_redelivery = job.tries > 1
            call = Call(pending.op, pull.callback, job.body, callback=True, timeout=timeout, redelivered=is_redelivery)
            deliveries.append(Delivery(pull.session.peer, call, pending.op))
        return deliveries

    def _remove_if_empty(self, queue: WorkQueue) -> None:
        if not (queue.waiting or queue.pulls or queue.in_progress or queue.dead_jobs):
            del self._by_name[queue.name]
            self._pool.release(queue.owner)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number
