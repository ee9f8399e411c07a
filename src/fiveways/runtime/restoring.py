"""Restores the state of a hub from its store at the start."""

import logging

from fiveways.runtime.exchange import Exchange
from fiveways.runtime.standings import Standings
from fiveways.runtime.undecodable import undecodable_named
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.server")


def restore(store: Store, exchange: Exchange, standings: Standings, settle: float) -> None:
    """Give the hub what the store holds; StoreError names a record that cannot be decoded."""
    loaded, hub, now = store.load(), exchange.hub, exchange.now()
    with undecodable_named(store.path, loaded):
        hub.restore(loaded.items, loaded.dead, loaded.retained)
        if not loaded.peers:
            return
        hub.settle(now + settle)
        standings.restore(loaded, hub.storage.epoch)
    exchange.perform(hub.expire(now), now)
    if loaded.late:
        _log.warning("%d requests expired while the hub was down; they are answered so", len(loaded.late))
    _log.info("%d requests and %d answers are owed", len(loaded.requests), len(loaded.answers))
