"""What the hub wants to be written down: in its order, and what is to follow only when that is safe."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Persist
from fiveways.model.store_changes import PutAnswer, PutRequest, PutTombstone
from fiveways.runtime.backlog import Backlog
from fiveways.runtime.clock import steady_clock
from fiveways.store.errors import StoreError
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.keeping")
_RETRY_INTERVAL: Final = 1.0
"""Seconds after which something is written down anew that could not be."""
_NOT_PERSISTED: Final = "it cannot be kept now"
_PROBE: Final = Persist(PutTombstone("", "", 0.0), [])
"""A line that says nothing, to find out whether one can be written at all; the store takes it out again."""


class Persister:
    """Has records written to a store, if there is one."""

    def __init__(self, hub: Hub, perform: Callable[[Deliveries, float], None]) -> None:
        """Make it; `perform` does what is to follow."""
        self._hub = hub
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self.store: Store | None = None
        self.error: StoreError | None = None
        """Why nothing can be written now, for as long as nothing was."""
        self._backlog = Backlog()
        """What was promised is kept here, until there is room for it again."""
        self._retrying: Persist | None = None
        """The record that is being tried again."""
        self._refused: list[Persist] = []
        """Records that were to be on disk before their callers are answered, and are not."""
        self._is_probing = False

    @property
    def backlog_size(self) -> int:
        """How much that is."""
        return len(self._backlog) + (self._retrying is not None)

    def persist(self, keep: Persist, now: float) -> None:
        """Write it down, after all that came before."""
        store = self.store
        if store is None:
            self._perform(self._hub.handle_persisted(keep, now), now)
        elif self.error is not None:
            self._on_failed(keep, self.error)
        else:
            try:
                store.write(keep.record, partial(self._written, keep))
            except StoreError as error:
                self._on_failed(keep, error)

    def _written(self, keep: Persist, error: StoreError | None) -> None:
        if keep is _PROBE:
            self._is_probing = False
        if error is not None:
            self._on_failed(keep, error)
        elif keep.then:
            now = steady_clock()
            self._perform(self._hub.handle_persisted(keep, now), now)

    def _on_failed(self, keep: Persist, error: StoreError) -> None:
        now = steady_clock()
        if isinstance(keep.record, PutRequest):
            self._perform(self._hub.handle_not_persisted(keep, _refusal_text(error), now), now)
            if not error.is_record_error:
                self._probe(now)
        elif error.is_record_error:
            _log.error("%s; it is gone if the hub ends", error)
            self._perform(self._hub.handle_persisted(keep, now), now)
        else:
            if self.error is None:
                self._set_error(error)
                _log.error("%s; another try in %g seconds", error, _RETRY_INTERVAL)
                self._loop.call_later(_RETRY_INTERVAL, self._retry_first)
            if keep.then and not isinstance(keep.record, PutAnswer):
                self._schedule_refusal(keep)
                keep = Persist(keep.record, [])
            self._backlog.add(keep)

    def _set_error(self, error: StoreError | None) -> None:
        """Note why nothing can be written; while that is so, the hub refuses what must be on disk first."""
        self.error = error
        self._hub.store_status.unavailable_reason = "" if error is None else _refusal_text(error)

    def _schedule_refusal(self, keep: Persist) -> None:
        """Refuse all promises of a batch together: the hub looks through its queues once."""
        if not self._refused:
            self._loop.call_soon(self._refuse_collected)
        self._refused.append(keep)

    def _refuse_collected(self) -> None:
        refused, self._refused = self._refused, []
        why = self._hub.store_status.unavailable_reason or _NOT_PERSISTED
        self._perform(self._hub.store_status.fail_unwritten(refused, why), steady_clock())

    def _probe(self, now: float) -> None:
        """Find out whether a request was refused for its size alone; if not, when requests can be taken again."""
        if self.error is None and not self._is_probing:
            self._is_probing = True
            self.persist(_PROBE, now)

    def _retry_first(self) -> None:
        """Write the first that could not be written; all others wait until that could be."""
        if self.store is not None:
            self._retrying = self._backlog.take_first()
            try:
                self.store.resume()
                self.store.write(self._retrying.record, self._on_retried)
            except StoreError as error:
                self._on_retried(error)

    def _on_retried(self, error: StoreError | None) -> None:
        first, self._retrying = self._retrying, None
        if first is None:
            return
        if error is not None and not error.is_record_error:
            self._backlog.put_back(first)
            self._set_error(error)
            self._loop.call_later(_RETRY_INTERVAL, self._retry_first)
            return
        self._set_error(None)
        _log.info("the store can be written again")
        now = steady_clock()
        for keep in self._backlog.take_all():
            self.persist(keep, now)
        self._written(first, error)


def _refusal_text(error: StoreError) -> str:
    return f"{_NOT_PERSISTED}{error.reason and f': {error.reason}'}"
