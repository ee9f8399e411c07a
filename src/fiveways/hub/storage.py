"""Whether the store takes records now, and the answers to callers whose records it did not take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Keep
from fiveways.hub.refusal import RETRY_AFTER, busy
from fiveways.model.failures import Reason
from fiveways.model.messages import Failure, Result
from fiveways.model.records import PutItem

if TYPE_CHECKING:
    from fiveways.hub.errands import Owed
    from fiveways.hub.queues import Queues
    from fiveways.hub.waiting import Waiting


class Storage:
    """The store as the hub sees it."""

    queues: "Queues"
    waiting: "Waiting"
    """Both are set by their makers."""

    def __init__(self, counters: Counters, epoch: float, *, keeps: bool) -> None:
        """Make it; with `keeps` there is a store."""
        self.keeps = keeps
        self.epoch = epoch
        """When `now` was 0.0, in seconds since 1970, for the times of requests and answers on disk."""
        self.is_held = False
        """Restored requests keep the time that they had left when the last record was written: the clock has jumped."""
        self._held: list[Owed] = []
        self.trouble = ""
        """Why no record can be written now, as a sentence for callers; empty if records can be."""
        self._counters = counters

    def restored(self, owed: "Owed") -> None:
        """Note a request whose end depends on a clock that has jumped."""
        if self.is_held:
            self._held.append(owed)

    def release(self, jump: float | None, now: float = 0.0) -> int:
        """Hold no request any more; after a confirmed jump, they end earlier by it. Return how many are over then."""
        held, self._held, self.is_held = self._held, [], False
        if jump is None:
            return 0
        for owed in held:
            owed.expires_at -= jump
        self.waiting.reconsider()
        return sum(owed.is_waiting and owed.expires_at <= now for owed in held)

    def check(self) -> None:
        """Raise a Refusal if a durable promise cannot be kept now."""
        if self.trouble:
            raise busy(self.trouble)

    def refuse(self, keeps: Sequence[Keep], why: str) -> Deliveries:
        """Answer callers whose records could not be written; delete their jobs that no worker has had.

        A job that a worker has had may be done, so its caller is told that it is lost.
        """
        jobs = {(each.record.queue, each.record.number) for each in keeps if isinstance(each.record, PutItem)}
        untried: dict[str, set[int]] = {}
        for queue, item, is_given in self.queues.all() if jobs else ():
            if (queue, item.number) in jobs and not (is_given or item.tries):
                untried.setdefault(queue, set()).add(item.number)
        deliveries: Deliveries = []
        for keep in keeps:
            record, reason = keep.record, Reason.BUSY
            if isinstance(record, PutItem) and record.number not in untried.get(record.queue, ()):
                reason = Reason.LOST
            retry_after = RETRY_AFTER if reason is Reason.BUSY else None
            for told in keep.then:
                if isinstance(told.word, Result):
                    self._counters.failures[reason] += 1
                    failure = Failure(told.word.id, reason, why, retry_after=retry_after)
                    deliveries.append(Delivery(told.to, failure, told.op))
        deleted = [record for queue, numbers in untried.items() for record in self.queues.delete(queue, numbers)]
        return [*deliveries, *(Keep(record, []) for record in deleted)]
