"""What the hub wants to be written down: in its order, and what is to follow only when that is safe."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Keep
from fiveways.model.records import PutRequest
from fiveways.store.errors import StoreError
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.keeping")
_TRY_AGAIN: Final = 1.0
"""Seconds after which something is written down anew that could not be."""


class Keeping:
    """Has records written to a store, if there is one."""

    def __init__(self, hub: Hub, perform: Callable[[Deliveries, float], None]) -> None:
        """Make it; `perform` does what is to follow."""
        self._hub = hub
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self.store: Store | None = None
        self.trouble: StoreError | None = None
        """Why nothing can be written now."""
        self._behind: deque[Keep] = deque()
        """What was promised is kept here, until there is room for it again."""

    @property
    def behind(self) -> int:
        """How much that is."""
        return len(self._behind)

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
        if error is not None:
            self._failed(keep, error)
        elif keep.then:
            now = self._loop.time()
            self._perform(self._hub.kept(keep, now), now)

    def _failed(self, keep: Keep, error: StoreError) -> None:
        now = self._loop.time()
        if isinstance(keep.record, PutRequest):
            self._perform(self._hub.unkept(keep, f"it cannot be kept now{error.why and f': {error.why}'}", now), now)
        elif error.is_its_own:
            _log.error("%s; it is gone if the hub ends", error)
            self._perform(self._hub.kept(keep, now), now)
        else:
            if self.trouble is None:
                self.trouble = error
                _log.error("%s; another try in %g seconds", error, _TRY_AGAIN)
                self._loop.call_later(_TRY_AGAIN, self._try_again)
            self._behind.append(keep)

    def _try_again(self) -> None:
        """Write what could not be written, in its order; what fails again is here again."""
        self.trouble = None
        behind, self._behind = self._behind, deque()
        if self.store is not None:
            self.store.resume()
            now = self._loop.time()
            for keep in behind:
                self.keep(keep, now)
