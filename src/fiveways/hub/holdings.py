"""What the hub holds for its peers: requests, jobs and retained values, listed and purged by operators."""

from collections.abc import Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from fiveways.hub.delivery import Deliveries, Keep
from fiveways.hub.errands import Item, Owed
from fiveways.hub.policy import Glob, written
from fiveways.hub.refusal import bad
from fiveways.hub.shares import Owner
from fiveways.model.messages import Cancel
from fiveways.model.records import Record
from fiveways.model.topics import Topic

if TYPE_CHECKING:
    from fiveways.hub.owed import Owing
    from fiveways.hub.publishing import Publishing
    from fiveways.hub.queues import Queues
    from fiveways.hub.session import Handler
    from fiveways.hub.storage import Storage

KINDS: Final = ("requests", "jobs", "values")
_MOST: Final = 1000
"""Rows in one answer."""
_MOST_PURGED: Final = 10_000
"""In one call: the hub does nothing else meanwhile."""


class Chosen(NamedTuple):
    """What an operator asks for; an empty text stands for all."""

    kind: str
    owner: str
    name: str
    """A glob over methods, queues or topics."""


class _Held(NamedTuple):
    kind: str
    owner: Owner
    name: str
    size: int
    what: Owed | Item | Topic
    is_given: bool
    """A callee or a worker has it."""


class Holdings:
    """Knows all that is held, and whose it is."""

    def __init__(
        self, owing: "Owing", cancel: "Handler", queues: "Queues", publishing: "Publishing", storage: "Storage"
    ) -> None:
        """Make it; `cancel` ends a durable request as its peer would."""
        self._owing = owing
        self._cancel = cancel
        self._queues = queues
        self._publishing = publishing
        self._storage = storage

    def listed(self, chosen: Chosen) -> dict[str, object]:
        """Return numbers and bytes by kind, owner and name, the largest first, and how many rows were left out."""
        rows: dict[tuple[str, str, str], list[int]] = {}
        for each in self._chosen(chosen):
            row = rows.setdefault((each.kind, each.owner.name, each.name), [0, 0, 0])
            row[0] += 1
            row[1] += each.is_given
            row[2] += each.size
        shown = nlargest(_MOST, rows, key=lambda key: rows[key][2])
        fields = ("kind", "owner", "name", "count", "given", "bytes")
        told = [dict(zip(fields, (*key, *rows[key]), strict=True)) for key in shown]
        return {"held": told, "more": len(rows) - len(told)}

    def purge(self, chosen: Chosen, now: float) -> tuple[int, int, Deliveries]:
        """Cancel requests, delete jobs that no worker has, or forget values.

        Return how many, how many are left for another call, and what is to be done.
        """
        if not (chosen.kind and (chosen.owner or chosen.name)):
            raise bad("needs a kind, and an owner or a name")
        self._storage.check()
        found = [each for each in self._chosen(chosen) if not (each.is_given and chosen.kind == "jobs")]
        purged, done = found[:_MOST_PURGED], list[Record]()
        deliveries: Deliveries = []
        jobs: dict[str, set[int]] = {}
        for each in purged:
            if isinstance(each.what, Owed):
                deliveries += self._cancel(each.what.session, Cancel(each.what.word.id), now)
            elif isinstance(each.what, Item):
                jobs.setdefault(each.name, set()).add(each.what.number)
            else:
                done += self._publishing.forget(each.what)
        for queue, numbers in jobs.items():
            done += self._queues.delete(queue, numbers)
        return len(purged), len(found) - len(purged), [*deliveries, *(Keep(record, []) for record in done)]

    def _chosen(self, chosen: Chosen) -> Iterator[_Held]:
        if chosen.kind and chosen.kind not in KINDS:
            raise bad(f"there is no kind {chosen.kind}: one of {', '.join(KINDS)}")
        name = Glob(chosen.name or "*")
        for each in self._all(chosen.kind):
            if (not chosen.owner or each.owner.name == chosen.owner) and name.matches(each.name):
                yield each

    def _all(self, kind: str) -> Iterator[_Held]:
        if kind in {"", "requests"}:
            for owed in self._owing.all():
                yield _Held("requests", owed.owner, owed.word.method, owed.size, owed, not owed.is_waiting)
        if kind in {"", "jobs"}:
            for queue, item, is_given in self._queues.all():
                yield _Held("jobs", item.owner, queue, item.size, item, is_given)
        if kind in {"", "values"}:
            for value in self._publishing.values():
                yield _Held("values", value.owner, written(value.topic), value.size, value.topic, is_given=False)
