"""Invariants of a hub, its store, and the hub that comes after it."""

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

_LEFT = (
    *("sessions", "offers", "subscriptions", "callbacks", "open_calls", "owed"),
    *("connected_sessions", "resumable_sessions"),
)


def check(name: str, found: object, expected: object) -> None:
    """Raise Broken if two things differ."""
    if found != expected:
        raise PropertyViolated(f"{name}: {_difference(found, expected)}")


def _difference(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        return "; ".join(f"{key}: {found.get(key)!r}, not {expected.get(key)!r}"[:300] for key in keys[:4])
    return f"{found!r}, not {expected!r}"[:900]


# A hub and its store.


def check_durable(life: SimulatedHub, model: Model, now: float) -> None:
    """Compare what a hub holds with what was written, when nothing waits to be written."""
    _check_requests(life, model, now)
    hub, loaded = life.hub, model.load(EPOCH + now)
    queues: Any = hub._work_queues
    items = [(name, item, given) for name, item, given in queues.jobs()]
    check(
        "items",
        {
            (name, item.number): (bytes(item.body.nq()), item.tries - given, item.owner.name)
            for name, item, given in items
            if not item.died_at
        },
        {(each.queue, each.number): (each.payload, each.tries, each.owner) for each in loaded.jobs},
    )
    check(
        "dead items",
        {(name, item.number): (item.error, item.died_at) for name, item, _ in items if item.died_at},
        {(item.queue, item.number): (dead.why, dead.at) for item, dead in loaded.dead_jobs},
    )
    check(
        "retained values",
        {
            msgspec.json.encode(each.topic).decode(): (bytes(each.body.nq()), each.publication, each.owner.name)
            for each in hub._publishing._retained
        },
        {each.topic: (each.payload, each.publication, each.owner) for each in loaded.retained},
    )
    sessions = hub._sessions
    check(
        "stored peers",
        {peer: session.identity for peer, session in sessions.items() if session.stored_owner is not None},
        {each.peer: each.identity for each in loaded.peers},
    )


def _check_requests(life: SimulatedHub, model: Model, now: float) -> None:
    """Each request that the hub holds is stored; what is stored is open in the conversation of its peer."""
    owing: Any = life.hub._durable_requests
    unsure = {owed.key for owed in owing._unresolved._requests}
    held = {owed.key: encode_call(owed.call) for owed in owing.requests() if _is_stored(owed, unsure, now)}
    loaded = model.load(EPOCH + now)
    stored = {f"{each.peer} {each.key}": each.payload for each in loaded.requests}
    check("requests", held, {key: word for key, word in stored.items() if key in held})
    held_at_all = {owed.key for owed in owing.requests()}
    words: list[PutRequest | PutAnswer] = [*loaded.requests, *loaded.answers]
    for word in words:
        if f"{word.peer} {word.key}" not in held_at_all:
            standing = life.standings._by_id.get(word.peer)
            if standing is None or word.key not in standing.conversation._incoming.requests:
                raise PropertyViolated(f"nobody holds the stored {word}")


def _is_stored(owed: DurableRequest, unsure: set[str], now: float) -> bool:
    return owed.key not in unsure and owed.expires_at > now and not owed.has_streamed


# A hub that everybody has left.


def check_empty(life: SimulatedHub, model: Model, now: float) -> None:
    """Compare a hub without peers with a new one on the same store: it must hold nothing more."""
    server, hub, exchange = life.server, life.hub, life.exchange
    stats = hub.stats()
    check("left in the hub", {name: stats[name] for name in _LEFT}, dict.fromkeys(_LEFT, 0))
    unacknowledged = hub.unacknowledged_bytes
    found = {
        "parties": len(exchange.participants),
        "slow": len(exchange.slow_consumers),
        "resumable sessions": len(life.standings),
        "legs": len(life.standings.connections),
        "pumps": len(server.connections),
        "marked": len(exchange._to_flush),
        "behind": exchange.persister.backlog_size,
        "waiting in the store": life.store.waiting,
        "bytes in spools": server._spools.used,
        "unacknowledged bytes": unacknowledged.pool.used,
        "leases": len(unacknowledged._by_peer),
    }
    check("left in the server", found, dict.fromkeys(found, 0))
    loaded = model.load(EPOCH + now)
    check("stored peers", [loaded.peers, loaded.requests, loaded.answers], [[], [], []])
    new = Hub(server._random, life.settings.limits, _usual(life), EPOCH, keeps=True)
    new.restore_stored(loaded.jobs, loaded.dead_jobs, loaded.retained)
    check("deadline", hub.deadline(), None)
    for each in (hub, new):
        _forget_learned(each, _usual(life))
    for each in (hub, new):
        _check_pools(each)
    check("objects", dict(inventory(hub)), dict(inventory(new)))


def _check_pools(hub: Hub) -> None:
    """Compare what work queues are counted as with what they hold. Which owners a queue has, a restart may change."""
    queues: Any = hub._work_queues
    items = list(queues.jobs())
    check("queues", queues._pool.used, len(queues._queues))
    check("bytes of items", queues._bytes.used, sum(item.size for _, item, _ in items))
    check("items in queues", sum(queue.pool.used for queue in queues._queues.values()), len(items))
    for pool in (queues._pool, queues._bytes, *(queue.pool for queue in queues._queues.values())):
        check("shares of nobody", [owner for owner, used in pool._by_owner.items() if used <= 0], [])
        check("shares above what is used", max(0, sum(pool._by_owner.values()) - pool.used), 0)
        pool._by_owner.clear()


def _usual(life: SimulatedHub) -> HubSettings:
    return to_hub_settings(life.settings)


def _forget_learned(hub: Hub, settings: HubSettings) -> None:
    """Drop numbers and caches, which are bounded by themselves."""
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
    parts._subscriptions._forget()


def inventory(hub: Hub) -> Counter[str]:
    """Return how many things all tables of a hub hold, by the attribute that leads to them."""
    seen = {id(each) for each in (hub.traffic, hub.traffic.topics, *hub.traffic._tables.values())}
    todo: list[tuple[str, object]] = [("hub", hub)]
    total: Counter[str] = Counter()
    while todo:
        name, each = todo.pop()
        if id(each) in seen or isinstance(each, Owner):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            total[name] += len(each)
            todo += [(name, value) for value in (*each.keys(), *each.values())]
        elif isinstance(each, list | tuple | set):
            total[name] += len(each)
            todo += [(name, value) for value in each]
        elif type(each).__module__.startswith("fiveways.hub"):
            todo += _attributes(each)
    return +total


def _attributes(each: object) -> list[tuple[str, object]]:
    kind = type(each)
    names = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    names |= {*getattr(kind, "__struct_fields__", ()), *getattr(each, "__dict__", ())}
    return [(f"{kind.__name__}.{name}", getattr(each, name, None)) for name in sorted(names)]
