"""What the hub holds for its peers: requests, jobs and retained values, listed and purged by operators."""

from collections.abc import Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from fiveways.hub.delivery import Deliveries, Persist
from fiveways.hub.pending_kinds import DurableRequest, QueuedJob
from fiveways.hub.permissions import Glob, topic_text
from fiveways.hub.refusal import bad_arguments
from fiveways.hub.shares import Owner
from fiveways.model.messages import Cancel
from fiveways.model.store_changes import StoreChange
from fiveways.model.topics import Topic

if TYPE_CHECKING:
    from fiveways.hub.durable_requests import DurableRequests
    from fiveways.hub.publishing import Publishing
    from fiveways.hub.queues import WorkQueues
    from fiveways.hub.session import Handler
    from fiveways.hub.store_status import StoreStatus

KINDS: Final = ("requests", "jobs", "values")
_MAX_ROWS: Final = 1000
"""Rows in one answer."""
_MAX_PURGED: Final = 10_000
"""In one call: the hub does nothing else meanwhile."""


class StateFilter(NamedTuple):
    """What an operator asks for; an empty text stands for all."""

    kind: str
    owner: str
    name: str
    """A glob over methods, queues or topics."""


class _Entry(NamedTuple):
    kind: str
    owner: Owner
    name: str
    size: int
    target: DurableRequest | QueuedJob | Topic
    is_assigned: bool
    """A callee or a worker has it."""


class StateInventory:
    """Knows all that is held, and whose it is."""

    def __init__(
        self,
        owing: "DurableRequests",
        cancel: "Handler",
        queues: "WorkQueues",
        publishing: "Publishing",
        storage: "StoreStatus",
    ) -> None:
        """Make it; `cancel` ends a durable request as its peer would."""
        self._durable_requests = owing
        self._cancel = cancel
        self._queues = queues
        self._publishing = publishing
        self._store_status = storage

    def summarize(self, chosen: StateFilter) -> dict[str, object]:
        """Return numbers and bytes by kind, owner and name, the largest first, and how many rows were left out."""
        rows: dict[tuple[str, str, str], list[int]] = {}
        for each in self._matching(chosen):
            row = rows.setdefault((each.kind, each.owner.name, each.name), [0, 0, 0])
            row[0] += 1
            row[1] += each.is_assigned
            row[2] += each.size
        shown = nlargest(_MAX_ROWS, rows, key=lambda key: rows[key][2])
        fields = ("kind", "owner", "name", "count", "given", "bytes")
        told = [dict(zip(fields, (*key, *rows[key]), strict=True)) for key in shown]
        return {"held": told, "more": len(rows) - len(told)}

    def purge(self, chosen: StateFilter, now: float) -> tuple[int, int, Deliveries]:
        """Cancel requests, delete jobs that no worker has, or forget values.

        Return how many, how many are left for another call, and what is to be done.
        """
        if not (chosen.kind and (chosen.owner or chosen.name)):
            raise bad_arguments("needs a kind, and an owner or a name")
        self._store_status.check_available()
        found = [each for each in self._matching(chosen) if not (each.is_assigned and chosen.kind == "jobs")]
        purged, done = found[:_MAX_PURGED], list[StoreChange]()
        deliveries: Deliveries = []
        jobs: dict[str, set[int]] = {}
        for each in purged:
            if isinstance(each.target, DurableRequest):
                deliveries += self._cancel(each.target.session, Cancel(each.target.call.id), now)
            elif isinstance(each.target, QueuedJob):
                jobs.setdefault(each.name, set()).add(each.target.number)
            else:
                done += self._publishing.forget_retained(each.target)
        for queue, numbers in jobs.items():
            done += self._queues.delete(queue, numbers)
        return len(purged), len(found) - len(purged), [*deliveries, *(Persist(record, []) for record in done)]

    def _matching(self, chosen: StateFilter) -> Iterator[_Entry]:
        if chosen.kind and chosen.kind not in KINDS:
            raise bad_arguments(f"there is no kind {chosen.kind}: one of {', '.join(KINDS)}")
        name = Glob(chosen.name or "*")
        for each in self._entries(chosen.kind):
            if (not chosen.owner or each.owner.name == chosen.owner) and name.matches(each.name):
                yield each

    def _entries(self, kind: str) -> Iterator[_Entry]:
        if kind in {"", "requests"}:
            for owed in self._durable_requests.requests():
                yield _Entry("requests", owed.owner, owed.call.method, owed.size, owed, not owed.has_no_callee)
        if kind in {"", "jobs"}:
            for queue, item, is_given in self._queues.jobs():
                yield _Entry("jobs", item.owner, queue, item.size, item, is_given)
        if kind in {"", "values"}:
            for value in self._publishing.retained_values():
                yield _Entry("values", value.owner, topic_text(value.topic), value.size, value.topic, is_assigned=False)
