"""Persistence of durable state: writes in order, and deliveries that wait until a write is safe."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Persist
from fiveways.model.store_changes import (
    DropJob,
    DropRetained,
    PutAnswer,
    PutDeadLetter,
    PutJob,
    PutRequest,
    PutRetained,
    PutTombstone,
    StoreChange,
)
from fiveways.runtime.clock import steady_clock
from fiveways.store.errors import StoreError
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.persister")
_RETRY_INTERVAL: Final = 1.0
"""Seconds between attempts to write a failed record."""
_NOT_PERSISTED: Final = "it cannot be kept now"
_PROBE: Final = Persist(PutTombstone("", "", 0.0), [])
"""A record without effect, which tests whether the store is writable; the store deletes it."""


class Backlog:
    """Records that wait until the store is writable again; a record of a topic or a job replaces the previous one."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, Persist] = OrderedDict()
        self._added = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Persist) -> None:
        """Append a record."""
        record = item.record
        if isinstance(record, PutJob | DropJob):
            self._items.pop(("dead", record.queue, record.number), None)
        self._added += 1
        self._items[_dedup_key(record) or self._added] = item

    def take_first(self) -> Persist:
        """Remove and return the first record."""
        return self._items.popitem(last=False)[1]

    def put_back(self, item: Persist) -> None:
        """Insert a record at the front, unless a newer one has replaced it."""
        self._added += 1
        key = _dedup_key(item.record) or self._added
        if key not in self._items:
            self._items[key] = item
            self._items.move_to_end(key, last=False)

    def take_all(self) -> list[Persist]:
        """Remove and return all records in order."""
        items = list(self._items.values())
        self._items.clear()
        return items


class Persister:
    """Writes records to the store, if there is one."""

    def __init__(self, hub: Hub, perform: Callable[[Deliveries, float], None]) -> None:
        """`perform` performs the deliveries that follow a write."""
        self._hub = hub
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self.store: Store | None = None
        self.error: StoreError | None = None
        """The error of the last write; None after a successful one."""
        self._backlog = Backlog()
        """Accepted records that wait until the store is writable again."""
        self._retrying: Persist | None = None
        """The record that is being tried again."""
        self._refused: list[Persist] = []
        """Unwritten records of requests that still wait for acceptance."""
        self._is_probing = False

    @property
    def backlog_size(self) -> int:
        """The number of records in the backlog."""
        return len(self._backlog) + (self._retrying is not None)

    def persist(self, item: Persist, now: float) -> None:
        """Write a record after all previous ones."""
        store = self.store
        if store is None:
            self._perform(self._hub.handle_persisted(item, now), now)
        elif self.error is not None:
            self._on_failed(item, self.error)
        else:
            try:
                store.write(item.record, partial(self._on_written, item))
            except StoreError as error:
                self._on_failed(item, error)

    def _on_written(self, item: Persist, error: StoreError | None) -> None:
        if item is _PROBE:
            self._is_probing = False
        if error is not None:
            self._on_failed(item, error)
        elif item.then:
            now = steady_clock()
            self._perform(self._hub.handle_persisted(item, now), now)

    def _on_failed(self, item: Persist, error: StoreError) -> None:
        now = steady_clock()
        if isinstance(item.record, PutRequest):
            self._perform(self._hub.handle_not_persisted(item, _refusal_text(error), now), now)
            if not error.is_record_error:
                self._probe(now)
        elif error.is_record_error:
            _log.error("%s; the record is lost when the hub stops", error)
            self._perform(self._hub.handle_persisted(item, now), now)
        else:
            if self.error is None:
                self._set_error(error)
                _log.error("%s; trying again every %g seconds", error, _RETRY_INTERVAL)
                self._loop.call_later(_RETRY_INTERVAL, self._retry_first)
            if item.then and not isinstance(item.record, PutAnswer):
                self._schedule_refusal(item)
                item = Persist(item.record, [])
            self._backlog.add(item)

    def _set_error(self, error: StoreError | None) -> None:
        """Set the error; while there is one, the hub refuses durable requests."""
        self.error = error
        self._hub.store_status.unavailable_reason = "" if error is None else _refusal_text(error)

    def _schedule_refusal(self, item: Persist) -> None:
        """Refuse the requests of a batch together, so that the hub searches its queues once."""
        if not self._refused:
            self._loop.call_soon(self._refuse_collected)
        self._refused.append(item)

    def _refuse_collected(self) -> None:
        refused, self._refused = self._refused, []
        reason = self._hub.store_status.unavailable_reason or _NOT_PERSISTED
        self._perform(self._hub.store_status.fail_unwritten(refused, reason), steady_clock())

    def _probe(self, now: float) -> None:
        """Test whether the store is writable, after a request was refused perhaps only for its size."""
        if self.error is None and not self._is_probing:
            self._is_probing = True
            self.persist(_PROBE, now)

    def _retry_first(self) -> None:
        """Write the first record of the backlog; the others wait for its success."""
        if self.store is not None:
            self._retrying = self._backlog.take_first()
            try:
                self.store.resume()
                self.store.write(self._retrying.record, self._on_retried)
            except StoreError as error:
                self._on_retried(error)

    def _on_retried(self, error: StoreError | None) -> None:
        retried, self._retrying = self._retrying, None
        if retried is None:
            return
        if error is not None and not error.is_record_error:
            self._backlog.put_back(retried)
            self._set_error(error)
            self._loop.call_later(_RETRY_INTERVAL, self._retry_first)
            return
        self._set_error(None)
        _log.info("the store is writable again")
        now = steady_clock()
        for item in self._backlog.take_all():
            self.persist(item, now)
        self._on_written(retried, error)


def _refusal_text(error: StoreError) -> str:
    return f"{_NOT_PERSISTED}{error.reason and f': {error.reason}'}"


def _dedup_key(record: StoreChange) -> Hashable:
    """Return the key under which only the newest record counts; None if every record counts."""
    if isinstance(record, PutRetained | DropRetained):
        return "topic", record.topic
    if isinstance(record, PutJob | DropJob):
        return "job", record.queue, record.number
    return ("dead", record.queue, record.number) if isinstance(record, PutDeadLetter) else None
