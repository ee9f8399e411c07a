"""What the hub wants to be written down: in its order, and what is to follow only when that is safe."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Keep
from fiveways.model.records import Forget, PutAnswer, PutRequest
from fiveways.runtime.backlog import Backlog
from fiveways.runtime.clock import steady_clock
from fiveways.store.errors import StoreError
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.keeping")
_TRY_AGAIN: Final = 1.0
"""Seconds after which something is written down anew that could not be."""
_REFUSED: Final = "it cannot be kept now"
_PROBE: Final = Keep(Forget("", "", 0.0), [])
"""A line that says nothing, to find out whether one can be written at all; the store takes it out again."""


class Keeping:
    """Has records written to a store, if there is one."""

    def __init__(self, hub: Hub, perform: Callable[[Deliveries, float], None]) -> None:
        """Make it; `perform` does what is to follow."""
        self._hub = hub
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self.store: Store | None = None
        self.trouble: StoreError | None = None
        """Why nothing can be written now, for as long as nothing was."""
        self._backlog = Backlog()
        """What was promised is kept here, until there is room for it again."""
        self._retried: Keep | None = None
        """The record that is being tried again."""
        self._refused: list[Keep] = []
        """Records that were to be on disk before their callers are answered, and are not."""
        self._is_probing = False

    @property
    def behind(self) -> int:
        """How much that is."""
        return len(self._backlog) + (self._retried is not None)

    def keep(self, keep: Keep, now: float) -> None:
        """Write it down, after all that came before."""
        store = self.store
        if store is None:
            self._perform(self._hub.kept(keep, now), now)
        elif self.trouble is not None:
            self._failed(keep, self.trouble)
        else:
            try:
                store.write(keep.record, partial(self._written, keep))
            except StoreError as error:
                self._failed(keep, error)

    def _written(self, keep: Keep, error: StoreError | None) -> None:
        if keep is _PROBE:
            self._is_probing = False
        if error is not None:
            self._failed(keep, error)
        elif keep.then:
            now = steady_clock()
            self._perform(self._hub.kept(keep, now), now)

    def _failed(self, keep: Keep, error: StoreError) -> None:
        now = steady_clock()
        if isinstance(keep.record, PutRequest):
            self._perform(self._hub.unkept(keep, _refusal(error), now), now)
            if not error.is_its_own:
                self._probe(now)
        elif error.is_its_own:
            _log.error("%s; it is gone if the hub ends", error)
            self._perform(self._hub.kept(keep, now), now)
        else:
            if self.trouble is None:
                self._set_trouble(error)
                _log.error("%s; another try in %g seconds", error, _TRY_AGAIN)
                self._loop.call_later(_TRY_AGAIN, self._try_again)
            if keep.then and not isinstance(keep.record, PutAnswer):
                self._refuse_soon(keep)
                keep = Keep(keep.record, [])
            self._backlog.add(keep)

    def _set_trouble(self, error: StoreError | None) -> None:
        """Note why nothing can be written; while that is so, the hub refuses what must be on disk first."""
        self.trouble = error
        self._hub.storage.trouble = "" if error is None else _refusal(error)

    def _refuse_soon(self, keep: Keep) -> None:
        """Refuse all promises of a batch together: the hub looks through its queues once."""
        if not self._refused:
            self._loop.call_soon(self._refuse)
        self._refused.append(keep)

    def _refuse(self) -> None:
        refused, self._refused = self._refused, []
        why = self._hub.storage.trouble or _REFUSED
        self._perform(self._hub.storage.refuse(refused, why), steady_clock())

    def _probe(self, now: float) -> None:
        """Find out whether a request was refused for its size alone; if not, when requests can be taken again."""
        if self.trouble is None and not self._is_probing:
            self._is_probing = True
            self.keep(_PROBE, now)

    def _try_again(self) -> None:
        """Write the first that could not be written; all others wait until that could be."""
        if self.store is not None:
            self._retried = self._backlog.take_first()
            try:
                self.store.resume()
                self.store.write(self._retried.record, self._tried)
            except StoreError as error:
                self._tried(error)

    def _tried(self, error: StoreError | None) -> None:
        first, self._retried = self._retried, None
        if first is None:
            return
        if error is not None and not error.is_its_own:
            self._backlog.put_back(first)
            self._set_trouble(error)
            self._loop.call_later(_TRY_AGAIN, self._try_again)
            return
        self._set_trouble(None)
        _log.info("the store can be written again")
        now = steady_clock()
        for keep in self._backlog.take_all():
            self.keep(keep, now)
        self._written(first, error)


def _refusal(error: StoreError) -> str:
    return f"{_REFUSED}{error.why and f': {error.why}'}"
