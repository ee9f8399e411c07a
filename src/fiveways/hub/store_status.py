"""Availability of the store, and failures for callers after failed writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fiveways.errors import Reason
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.refusal import RETRY_AFTER, overloaded
from fiveways.model.messages import Failure, Result
from fiveways.model.store_changes import PutJob

if TYPE_CHECKING:
    from fiveways.hub.pending_kinds import DurableRequest
    from fiveways.hub.queues import WorkQueues
    from fiveways.hub.waiting_requests import WaitingRequests


class StoreStatus:
    """The store as the hub sees it."""

    queues: "WorkQueues"
    waiting_requests: "WaitingRequests"
    """Both are set by their constructors."""

    def __init__(self, counters: Counters, epoch: float, *, is_durable: bool) -> None:
        """Create the status; `is_durable` says whether there is a store."""
        self.is_durable = is_durable
        self.epoch = epoch
        """Unix time at `now` 0.0, for the times in stored records."""
        self.is_expiry_held = False
        """The clock has jumped: restored requests keep the time that was left when the last record was written."""
        self._held_requests: list[DurableRequest] = []
        self.unavailable_reason = ""
        """The reason why no record can be written now, as a sentence for callers; empty if the store is available."""
        self._counters = counters

    def note_restored(self, request: "DurableRequest") -> None:
        """Note a restored request with an expiry that depends on a clock that has jumped."""
        if self.is_expiry_held:
            self._held_requests.append(request)

    def release_held(self, jump: float | None, now: float = 0.0) -> int:
        """End the hold of restored requests, which expire earlier after a confirmed jump; return how many expired."""
        held, self._held_requests, self.is_expiry_held = self._held_requests, [], False
        if jump is None:
            return 0
        for request in held:
            request.expires_at -= jump
        self.waiting_requests.recheck_expiry()
        return sum(request.has_no_callee and request.expires_at <= now for request in held)

    def check_available(self) -> None:
        """Raise Refusal if the store cannot write a record now."""
        if self.unavailable_reason:
            raise overloaded(self.unavailable_reason)

    def fail_unwritten(self, persists: Sequence[Persist], error: str) -> Deliveries:
        """Fail the callers of records that could not be written, and delete their jobs that no worker has had.

        A worker may have finished a job that it had, so the failure of its caller is `lost`.
        """
        jobs = {
            (persist.record.queue, persist.record.number) for persist in persists if isinstance(persist.record, PutJob)
        }
        untried: dict[str, set[int]] = {}
        for queue, job, is_assigned in self.queues.jobs() if jobs else ():
            if (queue, job.number) in jobs and not (is_assigned or job.tries):
                untried.setdefault(queue, set()).add(job.number)
        deliveries: Deliveries = []
        for persist in persists:
            record, reason = persist.record, Reason.OVERLOADED
            if isinstance(record, PutJob) and record.number not in untried.get(record.queue, ()):
                reason = Reason.LOST
            retry_after = RETRY_AFTER if reason is Reason.OVERLOADED else None
            for delivery in persist.then:
                if isinstance(delivery.message, Result):
                    self._counters.failures[reason] += 1
                    failure = Failure(delivery.message.id, reason, error, retry_after=retry_after)
                    deliveries.append(Delivery(delivery.peer, failure, delivery.op))
        deleted = [record for queue, numbers in untried.items() for record in self.queues.delete(queue, numbers)]
        return [*deliveries, *(Persist(record, []) for record in deleted)]
