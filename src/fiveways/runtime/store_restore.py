"""Restores the state of a hub from its store at the start."""

import logging

from fiveways.runtime.exchange import Exchange
from fiveways.runtime.session_registry import SessionRegistry
from fiveways.runtime.undecodable_records import name_undecodable_record
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.server")


def restore_hub(store: Store, exchange: Exchange, standings: SessionRegistry, settle: float) -> None:
    """Give the hub what the store holds; StoreError names a record that cannot be decoded."""
    loaded, hub, now = store.load(), exchange.hub, exchange.now()
    with name_undecodable_record(store.path, loaded):
        hub.restore_stored(loaded.jobs, loaded.dead_jobs, loaded.retained)
        if not loaded.peers:
            return
        hub.await_registrations(now + settle)
        standings.restore(loaded, hub.store_status.epoch)
    exchange.perform(hub.expire(now), now)
    if loaded.expired_requests:
        _log.warning("%d requests expired while the hub was down; they are answered so", len(loaded.expired_requests))
    _log.info("%d requests and %d answers are owed", len(loaded.requests), len(loaded.answers))
