"""Records that wait until the store can be written again: of each topic and of each job only the last."""

from collections import OrderedDict
from collections.abc import Hashable

from fiveways.hub.delivery import Keep
from fiveways.model.records import BuryItem, DropItem, DropRetained, PutItem, PutRetained, Record


class Backlog:
    """Records in their order. A record of a topic or a job depends on no other: a new one takes its place."""

    def __init__(self) -> None:
        self._keeps: OrderedDict[Hashable, Keep] = OrderedDict()
        self._added = 0

    def __len__(self) -> int:
        return len(self._keeps)

    def add(self, keep: Keep) -> None:
        """Add a record."""
        record = keep.record
        if isinstance(record, PutItem | DropItem):
            self._keeps.pop(("dead", record.queue, record.number), None)
        self._added += 1
        self._keeps[_subject(record) or self._added] = keep

    def take_first(self) -> Keep:
        """Return the first record and forget it."""
        return self._keeps.popitem(last=False)[1]

    def put_back(self, keep: Keep) -> None:
        """Make a record the first one again, unless a later one has taken its place."""
        self._added += 1
        key = _subject(keep.record) or self._added
        if key not in self._keeps:
            self._keeps[key] = keep
            self._keeps.move_to_end(key, last=False)

    def take_all(self) -> list[Keep]:
        """Return all records in their order and forget them."""
        keeps = list(self._keeps.values())
        self._keeps.clear()
        return keeps


def _subject(record: Record) -> Hashable:
    """Return what only the last record says everything of; None if each one counts."""
    if isinstance(record, PutRetained | DropRetained):
        return "topic", record.topic
    if isinstance(record, PutItem | DropItem):
        return "job", record.queue, record.number
    return ("dead", record.queue, record.number) if isinstance(record, BuryItem) else None
