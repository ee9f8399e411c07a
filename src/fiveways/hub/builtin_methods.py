"""Built-in methods of the hub."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, NamedTuple, Protocol, TypeAlias

from fiveways.errors import Reason
from fiveways.hub.builtin_arguments import BuiltInArguments, decode_body
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.peer_listing import PeerListing
from fiveways.hub.pending_kinds import QueuedJob
from fiveways.hub.queues import WorkQueues
from fiveways.hub.refusal import Refusal, bad_arguments
from fiveways.hub.session import Session, Stage
from fiveways.hub.state_inventory import StateFilter, StateInventory
from fiveways.hub.traffic_totals import TrafficTotals
from fiveways.model.messages import Call, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Payload, Value

BUILT_IN_DOCS: Final = {
    "hub.ping": "Returns pong.",
    "hub.echo": "Returns its argument.",
    "hub.time": "Returns the Unix time of the hub.",
    "hub.discover": "[name]: lists methods and routes, or describes one.",
    "hub.register": "{name, doc?, kind?, share?}: registers a method, or a route if the name ends in a separator.",
    "hub.unregister": "{name}: ends a registration.",
    "hub.publish": "{topic, data, retain?}: publishes on a topic; returns the number of the publication.",
    "hub.subscribe": "{topic, id?, envelope?, when_full?}: subscribes to a topic or a pattern.",
    "hub.unsubscribe": "{id}: ends a subscription.",
    "hub.close": "{topic}: ends the subscriptions of all peers to a topic.",
    "hub.callback": "{id}: returns a token by which any peer can call your callback of that id, once.",
    "hub.set": "{name, value}: sets a variable of your session.",
    "hub.unset": "{name}: unsets a variable of your session.",
    "hub.get": "{name, peer?}: returns a variable of your session, or of another one.",
    "hub.push": "{queue, data}: pushes a job to a work queue; returns the number of waiting jobs.",
    "hub.pull": "{queue, callback}: pulls one job, which comes as a call of your callback of that id.",
    "hub.queues": "Returns the numbers of waiting, assigned and dead jobs of each work queue.",
    "hub.dead": "{queue, job?, after?}: lists dead jobs with their last error, or returns one with its data.",
    "hub.redrive": "{queue, job?}: returns the dead jobs of a queue, or one, to it; returns their number.",
    "hub.drop": "{queue, job}: deletes a dead job.",
    "hub.owed": "{kind?, owner?, name?}: returns the number of stored requests, jobs and values, by owner and name.",
    "hub.purge": "{kind, owner?, name?}: cancels such requests, deletes such jobs or deletes such retained values.",
    "hub.peers": "{peer?}: lists the first thousand sessions, or one: name, address, methods, subscriptions.",
    "hub.stats": "Returns counters since the start of the hub, and the sizes of its tables.",
    "hub.traffic": "Returns totals since the hub started by protocol, method and topic, and the latest failures.",
    "hub.rights": "Returns your identity and your permissions, as patterns: methods, topics and work queues.",
    "hub.clock": "{confirm?}: returns whether the clock has jumped and expiry is held; confirm: the clock is right.",
    "hub.results": "Returns the latest results of the pipeline, or null if the hub does not know their folder.",
}
"""Their documentation for discovery. Methods for which each protocol has its own messages never come as calls."""

_ALWAYS_ALLOWED: Final = frozenset({"hub.ping", "hub.echo", "hub.time", "hub.callback", "hub.rights"})
"""Methods without effect on other peers: every admitted peer may call them."""
_MAX_DEAD_LISTED: Final = 100
"""Dead jobs in one response; `after` requests the next ones."""

BuiltInHandler: TypeAlias = Callable[[Session, Call, float], Deliveries]


class PeerDirectory(NamedTuple):
    """All sessions, by the id of the peer and by its public name."""

    sessions: Mapping[str, Session]
    by_name: Mapping[str, Session]
    peers: PeerListing
    """The listing for `hub.peers`."""


class Clock(Protocol):
    """The guard of the wall clock."""

    def state(self) -> dict[str, object]:
        """Return whether a clock jump is held, and its size in seconds."""

    def confirm(self) -> dict[str, object]:
        """Trust the clock as it is now."""


class StatsSource(Protocol):
    """The source of counters: the hub."""

    def stats(self) -> dict[str, object]:
        """Return the response of `hub.stats`."""

    def traffic_report(self, now: float) -> dict[str, object]:
        """Return the response of `hub.traffic`: totals by protocol, method and topic."""


class BuiltInMethods:
    """Answers calls of built-in methods at once."""

    def __init__(
        self,
        limits: Limits,
        callbacks: Callbacks,
        queues: WorkQueues,
        directory: PeerDirectory,
        stats_source: StatsSource,
        traffic: TrafficTotals,
        epoch: float,
    ) -> None:
        self._limits = limits
        self._callbacks = callbacks
        self._queues = queues
        self._sessions, self._by_name, self._peer_listing = directory
        self._stats_source = stats_source
        self._traffic = traffic
        self._epoch = epoch
        self.state_inventory: StateInventory
        """Inventory of the state that the hub holds for its peers; set by the hub."""
        self.pipeline_results: Callable[[], object] = _no_results
        """Returns the latest results of the pipeline; set by the runtime."""
        self.clock: Clock | None = None
        """Set by the runtime."""
        self._methods: Mapping[str, BuiltInHandler] = {
            "hub.ping": self._ping,
            "hub.echo": self._echo,
            "hub.time": self._time,
            "hub.callback": self._callback,
            "hub.get": self._get,
            "hub.push": self._push,
            "hub.pull": self._pull,
            "hub.queues": self._list_queues,
            "hub.dead": self._list_dead,
            "hub.redrive": self._redrive,
            "hub.drop": self._delete_dead,
            "hub.owed": self._list_stored_state,
            "hub.purge": self._purge,
            "hub.peers": self._list_peers,
            "hub.stats": self._report_stats,
            "hub.traffic": self._report_traffic,
            "hub.rights": self._report_permissions,
            "hub.clock": self._clock,
            "hub.results": self._report_results,
        }

    def __contains__(self, name: str) -> bool:
        return name in self._methods

    def call(self, session: Session, call: Call, now: float) -> Deliveries:
        """Answer a call of a built-in method."""
        allowed = session.access.call
        if allowed is not None and call.method not in _ALWAYS_ALLOWED:
            allowed.check("call", call.method)
        if call.more:
            raise bad_arguments(f"{call.method} takes no stream")
        if call.attachments:
            raise bad_arguments(f"{call.method} takes no attachments")
        deliveries = self._methods[call.method](session, call, now)
        self._traffic.count_answered(call.method, session.traffic_label)
        return deliveries

    def _ping(self, session: Session, call: Call, _now: float) -> Deliveries:
        return _answer(session, call, Value("pong"))

    def _echo(self, session: Session, call: Call, _now: float) -> Deliveries:
        return _answer(session, call, call.body)

    def _time(self, session: Session, call: Call, now: float) -> Deliveries:
        return _answer(session, call, Value(self._epoch + now))

    def _callback(self, session: Session, call: Call, _now: float) -> Deliveries:
        callback_id = BuiltInArguments(call.body, "id").get_name("id", self._limits.max_id)
        return _answer(session, call, Value(self._callbacks.create(session, callback_id)))

    def _get(self, session: Session, call: Call, _now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "name", "peer")
        owner = self._named_session(arguments) if arguments.is_given("peer") else session
        return _answer(session, call, owner.variables.get(arguments.get_name("name", self._limits.max_name), NULL))

    def _push(self, session: Session, call: Call, now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "queue", "data")
        queue, data = self._permitted_queue(session, arguments, "push"), arguments.get_payload("data")
        waiting, record, deliveries = self._queues.push(session.owner, queue, data, now)
        answer = Delivery(session.peer, Result(call.id, Value({"waiting": waiting})), "", call.method)
        return [answer if record is None else Persist(record, [answer]), *deliveries]

    def _list_queues(self, session: Session, call: Call, _now: float) -> Deliveries:
        allowed, counts_by_queue = session.access.pull, self._queues.counts()
        if allowed is not None:
            counts_by_queue = {name: counts for name, counts in counts_by_queue.items() if allowed.allows(name)}
        return _answer(session, call, Value(counts_by_queue))

    def _permitted_queue(self, session: Session, arguments: BuiltInArguments, action: str = "pull") -> str:
        """Return the queue argument; raise Refusal if the peer may not push to it or pull from it."""
        queue = arguments.get_name("queue", self._limits.max_name)
        session.access.check_queue(action, queue)
        return queue

    def _redrive(self, session: Session, call: Call, now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "queue", "job")
        queue = self._permitted_queue(session, arguments)
        count, deliveries = self._queues.redrive(queue, arguments.get_number("job"), now)
        return [*_answer(session, call, Value({"redriven": count})), *deliveries]

    def _delete_dead(self, session: Session, call: Call, _now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "queue", "job")
        number = arguments.get_number("job")
        if number is None:
            raise bad_arguments("needs job, the number of a dead job")
        record = self._queues.delete_dead_job(self._permitted_queue(session, arguments), number)
        answer = Delivery(session.peer, Result(call.id, NULL), "", call.method)
        return [answer if record is None else Persist(record, [answer])]

    def _list_dead(self, session: Session, call: Call, _now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "queue", "job", "after")
        queue, number = self._permitted_queue(session, arguments), arguments.get_number("job")
        if number is not None:
            job = self._queues.dead_job(queue, number)
            return _answer(session, call, Value({**_dead_job_row(job), "data": decode_body(job.body)}))
        jobs, remaining = self._queues.dead_jobs(queue, arguments.get_number("after") or 0, _MAX_DEAD_LISTED)
        return _answer(session, call, Value({"jobs": [_dead_job_row(entry) for entry in jobs], "more": remaining}))

    def _pull(self, session: Session, call: Call, now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "queue", "callback")
        queue = self._permitted_queue(session, arguments)
        callback = arguments.get_name("callback", self._limits.max_id)
        return [*_answer(session, call, NULL), *self._queues.pull(session, queue, callback, now)]

    def _state_filter(self, call: Call) -> StateFilter:
        fields = "kind", "owner", "name"
        arguments = BuiltInArguments(call.body, *fields)
        return StateFilter(
            *(arguments.get_name(field, self._limits.max_text) if arguments.is_given(field) else "" for field in fields)
        )

    def _list_stored_state(self, session: Session, call: Call, _now: float) -> Deliveries:
        return _answer(session, call, Value(self.state_inventory.summarize(self._state_filter(call))))

    def _purge(self, session: Session, call: Call, now: float) -> Deliveries:
        if not session.credentials.is_trusted:
            session.access.check_callable_by_name("hub.purge")
        count, remaining, deliveries = self.state_inventory.purge(self._state_filter(call), now)
        answer = Delivery(session.peer, Result(call.id, Value({"purged": count, "more": remaining})), "", call.method)
        last = deliveries[-1] if deliveries else None
        if isinstance(last, Persist) and not last.then:
            # The store writes in order: the records before it are then on disk as well.
            return [*deliveries[:-1], Persist(last.record, [answer])]
        return [*deliveries, answer]

    def cancel_pull(self, peer: str, callback: str) -> None:
        """Cancel the pulls of a peer for one callback."""
        if (session := self._sessions.get(peer)) is not None:
            self._queues.cancel_pull(session, callback)

    def _named_session(self, arguments: BuiltInArguments) -> Session:
        """Return the open session that the arguments name; raise Refusal if there is none."""
        peer = arguments.get_name("peer", self._limits.max_id)
        session = self._sessions.get(peer) or self._by_name.get(peer)
        if session is None or session.stage is not Stage.OPEN:
            raise bad_arguments(f"there is no peer {peer}")
        return session

    def _list_peers(self, session: Session, call: Call, _now: float) -> Deliveries:
        arguments = BuiltInArguments(call.body, "peer")
        listing = (
            self._peer_listing.describe_one(self._named_session(arguments))
            if arguments.is_given("peer")
            else self._peer_listing.describe_all()
        )
        return _answer(session, call, Value(listing))

    def _report_stats(self, session: Session, call: Call, _now: float) -> Deliveries:
        return _answer(session, call, Value(self._stats_source.stats()))

    def _report_traffic(self, session: Session, call: Call, now: float) -> Deliveries:
        return _answer(session, call, Value(self._stats_source.traffic_report(now)))

    def _report_permissions(self, session: Session, call: Call, _now: float) -> Deliveries:
        permissions = session.access.permissions
        patterns = {field.name: list(getattr(permissions, field.name)) for field in fields(permissions)}
        return _answer(session, call, Value({"identity": session.identity, **patterns}))

    def _clock(self, session: Session, call: Call, _now: float) -> Deliveries:
        if self.clock is None:
            raise Refusal(Reason.UNAVAILABLE, "this hub has no clock guard")
        if not BuiltInArguments(call.body, "confirm").get_flag("confirm"):
            return _answer(session, call, Value(self.clock.state()))
        if not session.credentials.is_trusted:
            session.access.check_callable_by_name("hub.clock")
        return _answer(session, call, Value(self.clock.confirm()))

    def _report_results(self, session: Session, call: Call, _now: float) -> Deliveries:
        return _answer(session, call, Value(self.pipeline_results()))


def _dead_job_row(job: QueuedJob) -> dict[str, object]:
    return {"job": job.number, "tries": job.tries, "error": job.error, "at": job.died_at, "size": job.size}


def _no_results() -> object:
    return None


def _answer(session: Session, call: Call, body: Payload) -> Deliveries:
    return [Delivery(session.peer, Result(call.id, body), "", call.method)]
