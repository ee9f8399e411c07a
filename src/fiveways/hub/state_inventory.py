"""Inventory of durable requests, jobs and retained values, for operators to list and purge."""

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
"""Rows in one response."""
_MAX_PURGED: Final = 10_000
"""Items of one call: the hub does nothing else meanwhile."""


class StateFilter(NamedTuple):
    """A filter of the inventory; an empty text matches everything."""

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
    """All stored items with their owners."""

    def __init__(
        self,
        durable_requests: "DurableRequests",
        cancel: "Handler",
        queues: "WorkQueues",
        publishing: "Publishing",
        store_status: "StoreStatus",
    ) -> None:
        """Create the inventory; `cancel` ends a durable request as its peer would."""
        self._durable_requests = durable_requests
        self._cancel = cancel
        self._queues = queues
        self._publishing = publishing
        self._store_status = store_status

    def summarize(self, state_filter: StateFilter) -> dict[str, object]:
        """Return numbers and bytes by kind, owner and name, the largest first, and the number of omitted rows."""
        rows: dict[tuple[str, str, str], list[int]] = {}
        for entry in self._matching(state_filter):
            row = rows.setdefault((entry.kind, entry.owner.name, entry.name), [0, 0, 0])
            row[0] += 1
            row[1] += entry.is_assigned
            row[2] += entry.size
        largest = nlargest(_MAX_ROWS, rows, key=lambda key: rows[key][2])
        fields = ("kind", "owner", "name", "count", "given", "bytes")
        rendered = [dict(zip(fields, (*key, *rows[key]), strict=True)) for key in largest]
        return {"held": rendered, "more": len(rows) - len(rendered)}

    def purge(self, state_filter: StateFilter, now: float) -> tuple[int, int, Deliveries]:
        """Cancel requests, delete jobs that no worker has, or delete retained values.

        Return the number of purged items, the number left for another call, and the deliveries.
        """
        if not (state_filter.kind and (state_filter.owner or state_filter.name)):
            raise bad_arguments("needs a kind, and an owner or a name")
        self._store_status.check_available()
        matching = [
            entry for entry in self._matching(state_filter) if not (entry.is_assigned and state_filter.kind == "jobs")
        ]
        purged, changes = matching[:_MAX_PURGED], list[StoreChange]()
        deliveries: Deliveries = []
        jobs: dict[str, set[int]] = {}
        for entry in purged:
            if isinstance(entry.target, DurableRequest):
                deliveries += self._cancel(entry.target.session, Cancel(entry.target.call.id), now)
            elif isinstance(entry.target, QueuedJob):
                jobs.setdefault(entry.name, set()).add(entry.target.number)
            else:
                changes += self._publishing.forget_retained(entry.target)
        for queue, numbers in jobs.items():
            changes += self._queues.delete(queue, numbers)
        return len(purged), len(matching) - len(purged), [*deliveries, *(Persist(record, []) for record in changes)]

    def _matching(self, state_filter: StateFilter) -> Iterator[_Entry]:
        if state_filter.kind and state_filter.kind not in KINDS:
            raise bad_arguments(f"unknown kind {state_filter.kind!r}: use one of {', '.join(KINDS)}")
        name = Glob(state_filter.name or "*")
        for entry in self._entries(state_filter.kind):
            if (not state_filter.owner or entry.owner.name == state_filter.owner) and name.matches(entry.name):
                yield entry

    def _entries(self, kind: str) -> Iterator[_Entry]:
        if kind in {"", "requests"}:
            for request in self._durable_requests.requests():
                yield _Entry(
                    "requests", request.owner, request.call.method, request.size, request, not request.has_no_callee
                )
        if kind in {"", "jobs"}:
            for queue, job, is_assigned in self._queues.jobs():
                yield _Entry("jobs", job.owner, queue, job.size, job, is_assigned)
        if kind in {"", "values"}:
            for value in self._publishing.retained_values():
                yield _Entry("values", value.owner, topic_text(value.topic), value.size, value.topic, is_assigned=False)
