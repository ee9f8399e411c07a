"""Restoration of a hub's state from its store at the start."""

import logging

from fiveways.runtime.exchange import Exchange
from fiveways.runtime.session_registry import SessionRegistry
from fiveways.runtime.structured_logging import log_fields
from fiveways.runtime.undecodable_records import name_undecodable_record
from fiveways.store.store import Store

_log = logging.getLogger("fiveways.server")


def restore_hub(store: Store, exchange: Exchange, sessions: SessionRegistry, settle_time: float) -> None:
    """Restore the hub's state; StoreError names a record that cannot be decoded."""
    loaded, hub, now = store.load(), exchange.hub, exchange.now()
    with name_undecodable_record(store.path, loaded):
        hub.restore_stored(loaded.jobs, loaded.dead_jobs, loaded.retained)
        if not loaded.peers:
            return
        hub.await_registrations(now + settle_time)
        sessions.restore(loaded, hub.store_status.epoch)
    exchange.perform(hub.expire(now), now)
    if loaded.expired_requests:
        _log.warning("requests expired while the hub was down", extra=log_fields(requests=len(loaded.expired_requests)))
    _log.info("restored durable requests", extra=log_fields(requests=len(loaded.requests), answers=len(loaded.answers)))
