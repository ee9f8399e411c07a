"""Invariants of a hub, its store, and the hub that restarts on this store."""

from collections import Counter
from typing import Any

import msgspec

from fiveways.hub.core import Hub
from fiveways.hub.pending_kinds import DurableRequest
from fiveways.hub.settings import HubSettings
from fiveways.hub.shares import Owner
from fiveways.hub.stored_messages import encode_call
from fiveways.model.store_changes import PutAnswer, PutRequest
from fiveways.settings.hub_settings import to_hub_settings
from fuzz.fuzz_target import PropertyViolated
from fuzz.hub_simulation import SimulatedHub
from fuzz.virtual_time import EPOCH
from tests.support.store_helpers import Model

_GAUGES = (
    *("sessions", "offers", "subscriptions", "callbacks", "open_calls", "owed"),
    *("connected_sessions", "resumable_sessions"),
)


def check(name: str, actual: object, expected: object) -> None:
    """Raise PropertyViolated if two values differ."""
    if actual != expected:
        raise PropertyViolated(f"{name}: {_difference(actual, expected)}")


def _difference(actual: object, expected: object) -> str:
    if isinstance(actual, dict) and isinstance(expected, dict):
        keys = [key for key in {**actual, **expected} if actual.get(key) != expected.get(key)]
        return "; ".join(f"{key}: {actual.get(key)!r}, not {expected.get(key)!r}"[:300] for key in keys[:4])
    return f"{actual!r}, not {expected!r}"[:900]


# Comparison of a hub with its store.


def check_durable(hub_: SimulatedHub, model: Model, now: float) -> None:
    """Compare the hub's state with the written state when no write is pending."""
    _check_requests(hub_, model, now)
    hub, loaded = hub_.hub, model.load(EPOCH + now)
    queues: Any = hub._work_queues
    items = [(name, item, is_given) for name, item, is_given in queues.jobs()]
    check(
        "items",
        {
            (name, item.number): (bytes(item.body.nq()), item.tries - is_given, item.owner.name)
            for name, item, is_given in items
            if not item.died_at
        },
        {(record.queue, record.number): (record.payload, record.tries, record.owner) for record in loaded.jobs},
    )
    check(
        "dead items",
        {(name, item.number): (item.error, item.died_at) for name, item, _ in items if item.died_at},
        {(item.queue, item.number): (dead.why, dead.at) for item, dead in loaded.dead_jobs},
    )
    check(
        "retained values",
        {
            msgspec.json.encode(record.topic).decode(): (bytes(record.body.nq()), record.publication, record.owner.name)
            for record in hub._publishing._retained
        },
        {record.topic: (record.payload, record.publication, record.owner) for record in loaded.retained},
    )
    sessions = hub._sessions
    check(
        "stored peers",
        {peer: session.identity for peer, session in sessions.items() if session.stored_owner is not None},
        {record.peer: record.identity for record in loaded.peers},
    )


def _check_requests(life: SimulatedHub, model: Model, now: float) -> None:
    """Check that each request of the hub is stored, and each stored one is open in its peer's conversation."""
    durable: Any = life.hub._durable_requests
    unresolved = {request.key for request in durable._unresolved._requests}
    live = {
        request.key: encode_call(request.call) for request in durable.requests() if _is_stored(request, unresolved, now)
    }
    loaded = model.load(EPOCH + now)
    stored = {f"{record.peer} {record.key}": record.payload for record in loaded.requests}
    check("requests", live, {key: record for key, record in stored.items() if key in live})
    all_keys = {request.key for request in durable.requests()}
    records: list[PutRequest | PutAnswer] = [*loaded.requests, *loaded.answers]
    for record in records:
        if f"{record.peer} {record.key}" not in all_keys:
            session = life.resumable_sessions._by_id.get(record.peer)
            if session is None or record.key not in session.conversation._incoming.requests:
                raise PropertyViolated(f"no session holds the stored {record}")


def _is_stored(request: DurableRequest, unresolved: set[str], now: float) -> bool:
    return request.key not in unresolved and request.expires_at > now and not request.has_streamed


# Leftovers in a hub without peers.


def check_empty(life: SimulatedHub, model: Model, now: float) -> None:
    """Compare a hub without peers with a new one on the same store; it must hold nothing more."""
    server, hub, exchange = life.server, life.hub, life.exchange
    stats = hub.stats()
    check("left in the hub", {name: stats[name] for name in _GAUGES}, dict.fromkeys(_GAUGES, 0))
    unacknowledged = hub.unacknowledged_bytes
    leftovers = {
        "parties": len(exchange.participants),
        "slow": len(exchange.slow_consumers),
        "resumable sessions": len(life.resumable_sessions),
        "legs": len(life.resumable_sessions.connections),
        "pumps": len(server.connections),
        "marked": len(exchange._to_flush),
        "behind": exchange.persister.backlog_size,
        "waiting in the store": life.store.waiting,
        "bytes in spools": server._spools.used,
        "unacknowledged bytes": unacknowledged.pool.used,
        "leases": len(unacknowledged._by_peer),
    }
    check("left in the server", leftovers, dict.fromkeys(leftovers, 0))
    loaded = model.load(EPOCH + now)
    check("stored peers", [loaded.peers, loaded.requests, loaded.answers], [[], [], []])
    new = Hub(server._random, life.settings.limits, _hub_settings(life), EPOCH, is_durable=True)
    new.restore_stored(loaded.jobs, loaded.dead_jobs, loaded.retained)
    check("deadline", hub.deadline(), None)
    for compared in (hub, new):
        _forget_learned(compared, _hub_settings(life))
    for compared in (hub, new):
        _check_pools(compared)
    check("objects", dict(inventory(hub)), dict(inventory(new)))


def _check_pools(hub: Hub) -> None:
    """Compare the counters of work queues with their contents. A restart may change the owners of a queue."""
    queues: Any = hub._work_queues
    items = list(queues.jobs())
    check("queues", queues._pool.used, len(queues._by_name))
    check("bytes of items", queues._bytes.used, sum(item.size for _, item, _ in items))
    check("items in queues", sum(queue.pool.used for queue in queues._by_name.values()), len(items))
    for pool in (queues._pool, queues._bytes, *(queue.pool for queue in queues._by_name.values())):
        check("owners with an empty share", [owner for owner, used in pool._by_owner.items() if used <= 0], [])
        check("shares above the total", max(0, sum(pool._by_owner.values()) - pool.used), 0)
        pool._by_owner.clear()


def _hub_settings(life: SimulatedHub) -> HubSettings:
    return to_hub_settings(life.settings)


def _forget_learned(hub: Hub, settings: HubSettings) -> None:
    """Clear statistics and caches, which have their own bounds."""
    parts: Any = hub
    hub.reload(settings)
    hub.traffic.aggregate_calls()
    for table in (
        hub.traffic.failures,
        hub.traffic.protocols,
        parts.registrations._former_names,
        parts._discovery._lists,
        parts._counters.failures,
        parts.admission._failed_logins._by_address,
    ):
        table.clear()
    parts._subscriptions._clear_caches()


def inventory(hub: Hub) -> Counter[str]:
    """Return the number of entries of all tables of a hub, by attribute."""
    seen = {id(item) for item in (hub.traffic, hub.traffic.topics, *hub.traffic._tables.values())}
    todo: list[tuple[str, object]] = [("hub", hub)]
    total: Counter[str] = Counter()
    while todo:
        name, item = todo.pop()
        if id(item) in seen or isinstance(item, Owner):
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            total[name] += len(item)
            todo += [(name, value) for value in (*item.keys(), *item.values())]
        elif isinstance(item, list | tuple | set):
            total[name] += len(item)
            todo += [(name, value) for value in item]
        elif type(item).__module__.startswith("fiveways.hub"):
            todo += _attributes(item)
    return +total


def _attributes(item: object) -> list[tuple[str, object]]:
    kind = type(item)
    names = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    names |= {*getattr(kind, "__struct_fields__", ()), *getattr(item, "__dict__", ())}
    return [(f"{kind.__name__}.{name}", getattr(item, name, None)) for name in sorted(names)]
