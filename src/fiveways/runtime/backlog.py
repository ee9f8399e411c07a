"""Records that wait until the store can be written again: of each topic and of each job only the last."""

from collections import OrderedDict
from collections.abc import Hashable

from fiveways.hub.delivery import Persist
from fiveways.model.store_changes import DropJob, DropRetained, PutDeadLetter, PutJob, PutRetained, StoreChange


class Backlog:
    """Records in their order. A record of a topic or a job depends on no other: a new one takes its place."""

    def __init__(self) -> None:
        self._keeps: OrderedDict[Hashable, Persist] = OrderedDict()
        self._added = 0

    def __len__(self) -> int:
        return len(self._keeps)

    def add(self, keep: Persist) -> None:
        """Add a record."""
        record = keep.record
        if isinstance(record, PutJob | DropJob):
            self._keeps.pop(("dead", record.queue, record.number), None)
        self._added += 1
        self._keeps[_dedup_key(record) or self._added] = keep

    def take_first(self) -> Persist:
        """Return the first record and forget it."""
        return self._keeps.popitem(last=False)[1]

    def put_back(self, keep: Persist) -> None:
        """Make a record the first one again, unless a later one has taken its place."""
        self._added += 1
        key = _dedup_key(keep.record) or self._added
        if key not in self._keeps:
            self._keeps[key] = keep
            self._keeps.move_to_end(key, last=False)

    def take_all(self) -> list[Persist]:
        """Return all records in their order and forget them."""
        keeps = list(self._keeps.values())
        self._keeps.clear()
        return keeps


def _dedup_key(record: StoreChange) -> Hashable:
    """Return what only the last record says everything of; None if each one counts."""
    if isinstance(record, PutRetained | DropRetained):
        return "topic", record.topic
    if isinstance(record, PutJob | DropJob):
        return "job", record.queue, record.number
    return ("dead", record.queue, record.number) if isinstance(record, PutDeadLetter) else None
