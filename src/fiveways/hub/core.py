"""The hub: takes messages of peers and returns deliveries. It has no I/O and no clock."""

from collections.abc import Iterable
from math import inf
from random import Random

from fiveways.errors import LocalProtocolError, Reason
from fiveways.hub.admission import ANONYMOUS_REFUSED, NO_ACCESS, Admission
from fiveways.hub.attachments import Attachments
from fiveways.hub.builtin_methods import BuiltInMethods, PeerDirectory
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Persist
from fiveways.hub.discovery import Discovery
from fiveways.hub.durable_requests import DurableRequests
from fiveways.hub.handlers import build_handlers
from fiveways.hub.peer_listing import PeerListing
from fiveways.hub.peer_requests import PeerRequests
from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.publishing import Publishing
from fiveways.hub.queues import WorkQueues
from fiveways.hub.rate_limit import REQUEST_TYPES, check_rate
from fiveways.hub.refusal import Refusal
from fiveways.hub.registration_handler import RegistrationHandler
from fiveways.hub.registrations import Registrations
from fiveways.hub.router import Router
from fiveways.hub.session import Caller, FrameAnnotation, Handler, Session, Stage
from fiveways.hub.settings import DEFAULTS, HubSettings
from fiveways.hub.spans import SpanRecorder
from fiveways.hub.state_inventory import StateInventory
from fiveways.hub.store_status import StoreStatus
from fiveways.hub.subscriptions import Subscriptions
from fiveways.hub.timers import WakeTime
from fiveways.hub.traffic_report import traffic_report
from fiveways.hub.traffic_totals import TrafficTotals
from fiveways.hub.traits import Credentials, ProtocolTraits
from fiveways.hub.unacknowledged_bytes import UnacknowledgedBytes
from fiveways.hub.updates import Updates
from fiveways.hub.variables import Variables
from fiveways.model import messages
from fiveways.model.messages import HubMessage
from fiveways.model.store_changes import PutAnswer, PutDeadLetter, PutJob, PutRequest, PutRetained
from fiveways.model.topics import Topic
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload


class Hub:
    """All sessions of one hub process, with their calls, registrations, subscriptions and work queues."""

    def __init__(
        self,
        random: Random,
        limits: Limits = Limits(),
        settings: HubSettings = DEFAULTS,
        epoch: float = 0.0,
        *,
        started_at: float = 0.0,
        is_durable: bool = False,
    ) -> None:
        """Create a hub for which `now` 0.0 is the Unix time `epoch`; with `is_durable` it has a store.

        `started_at` is the current time; the counters begin there.
        """
        self._rate, self._epoch, self._started_at = settings.rate, epoch, started_at
        self._sessions: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}
        self._counters = Counters(TrafficTotals(settings.max_methods, settings.max_topics))
        self.store_status = StoreStatus(self._counters, epoch, is_durable=is_durable)
        self.traffic = self._counters.traffic
        """Traffic totals by protocol, method and topic."""
        self.alarm = WakeTime()
        """Time of the next call of `expire`."""
        self.admission = Admission(random, settings, self._sessions, self._counters, self.alarm)
        self._pending_calls = PendingCalls(settings.call_timeout, settings.max_timeout, self.alarm, self.traffic)
        self.registrations = Registrations(random, limits.max_pending, self.admission.name_reservations)
        """Methods and routes of all callees."""
        self._callbacks = Callbacks(random, limits.max_pending)
        self._attachments, self._subscriptions = Attachments(limits, settings), Subscriptions(limits)
        self._work_queues = WorkQueues(limits, settings, self._pending_calls, self.alarm, epoch, self.store_status)
        self._variables = Variables(limits, self.admission)
        self._discovery = Discovery(limits, self.registrations, self._pending_calls, self._counters)
        self.unacknowledged_bytes = UnacknowledgedBytes(settings, self._sessions)
        """Bytes that the hub holds for resumable sessions until their peers acknowledge them."""
        sessions, calls, registrations = self._sessions, self._pending_calls, self.registrations
        callbacks, attachments, queues, counters = self._callbacks, self._attachments, self._work_queues, self._counters
        listing = PeerListing(sessions, registrations, self._subscriptions, epoch)
        directory = PeerDirectory(sessions, self._by_name, listing)
        self.built_ins = BuiltInMethods(limits, callbacks, queues, directory, self, self.traffic, epoch)
        """Methods of the hub itself."""
        self._durable_requests = durable_requests = DurableRequests(
            settings, calls, registrations, self.built_ins, counters, self.store_status
        )
        self.registration_handler = RegistrationHandler(settings, registrations, self._discovery, durable_requests)
        self._router = Router(
            limits, calls, registrations, callbacks, attachments, queues, self.built_ins, durable_requests, counters
        )
        self.peer_requests = PeerRequests(
            limits, sessions, calls, registrations, callbacks, self._router, self.admission
        )
        """Requests of an application in this process to one of its callers."""
        self.updates = Updates(limits, attachments)
        """Updates that peers publish to an application in this process."""
        self._publishing = Publishing(
            settings, self._subscriptions, attachments, sessions, self.admission, counters, self.store_status
        )
        self._set_handlers()

    def _set_handlers(self) -> None:
        self.store_status.queues, cancel = self._work_queues, self._durable_requests.cancel_handler(self._router.cancel)
        self.built_ins.state_inventory = StateInventory(
            self._durable_requests, cancel, self._work_queues, self._publishing, self.store_status
        )
        core_handlers: dict[type[HubMessage], Handler] = {
            messages.Register: self.registration_handler.register,
            messages.Unregister: self.registration_handler.unregister,
            messages.Update: self.updates.forward_update,
            messages.UpdatesClosed: self.updates.forward_closed,
        }
        self._handlers = build_handlers(
            self.admission,
            self._variables,
            self._router,
            self._publishing,
            self._discovery,
            self._attachments,
            core_handlers,
        )
        self._durable_session_handlers = self._handlers | {
            Stage.OPEN: self._handlers[Stage.OPEN] | self._durable_handlers()
        }
        self.admission.set_tables(self._handlers, self._durable_session_handlers)

    def _durable_handlers(self) -> dict[type[HubMessage], Handler]:
        """Return the handlers for sessions with durable requests."""
        return {
            messages.Call: self._durable_requests.call_handler(self._router.call),
            messages.Cancel: self._durable_requests.cancel_handler(self._router.cancel),
            messages.Acknowledged: self._durable_requests.handle_acknowledged,
        }

    # Entry points of the runtime.

    def arrive(self, peer: str, traits: ProtocolTraits, credentials: Credentials, now: float) -> None:
        """Create a session for a new connection; it is not admitted yet."""
        if peer in self._sessions:
            raise AssertionError(f"session {peer} exists already")
        session = self._sessions[peer] = Session(peer, traits, credentials, NO_ACCESS)
        self._by_name[session.name] = session
        session.call_stats = self.traffic.caller_table(traits.protocol)
        session.allowance, session.refilled_at, session.arrived_at = max(1.0, self._rate), now, now
        self._counters.arrived += 1
        self.traffic.protocol_stats(traits.protocol).sessions += 1
        self.admission.arrive(session, now)

    def handle(self, peer: str, message: HubMessage, now: float) -> Deliveries:
        """Handle a message of a peer."""
        session = self._sessions.get(peer)
        if session is None:
            return []
        handler = session.handlers.get(type(message))
        try:
            if handler is None:
                return self._handle_unexpected(session, message)
            if self._rate and not session.credentials.is_trusted:
                check_rate(session, message, self._rate, now)
            return handler(session, message, now)
        except Refusal as refusal:
            return self._refuse(session, message, refusal, now)

    def restore_session(self, peer: str, traits: ProtocolTraits, identity: str, now: float, remote: str = "") -> None:
        """Restore a session of a previous hub process; `remote` is the address of its last connection."""
        self.arrive(peer, traits, Credentials(remote=remote), now)
        session = self._sessions[peer]
        self.admission.restore(session, identity)
        session.stored_owner = session.owner

    def resume(self, peer: str, credentials: Credentials) -> None:
        """Continue a resumable session over a new connection, perhaps with another address and other credentials."""
        if (session := self._sessions.get(peer)) is not None:
            self.admission.resume(session, credentials)

    def admit(self, peer: str, traits: ProtocolTraits, identity: str, now: float, credentials: Credentials) -> bool:
        """Admit a connection of the operator, as an identity or anonymous; return whether the settings allow it."""
        self.arrive(peer, traits, credentials, now)
        return self.admission.admit(self._sessions[peer], identity)

    def restore_request(self, peer: str, message: messages.Call, expires_at: float, now: float) -> Deliveries:
        """Restore a durable request of a previous hub process; `expires_at` is Unix time."""
        return self._durable_requests.restore(self._sessions[peer], message, expires_at, now)

    def restore_stored(
        self, items: Iterable[PutJob], dead: Iterable[tuple[PutJob, PutDeadLetter]], retained: Iterable[PutRetained]
    ) -> None:
        """Restore the jobs and the retained values of a previous hub process."""
        self._work_queues.restore(items, dead)
        self._publishing.restore(retained)

    def await_registrations(self, until: float) -> None:
        """Give callees of a previous hub process until this time to register again."""
        self._durable_requests.await_registrations(until)

    def handle_persisted(self, persist: Persist, now: float) -> Deliveries:
        """Return the deliveries that waited until a record was written to the store."""
        if type(persist.record) is not PutRequest:
            if type(persist.record) is PutAnswer:
                self._durable_requests.count_results(persist.then)
            return [*persist.then]
        return self._durable_requests.handle_persisted(persist.record, persist, now)

    def handle_not_persisted(self, persist: Persist, error: str, now: float) -> Deliveries:
        """Fail a request that could not be written to the store."""
        record = persist.record
        return (
            self._durable_requests.handle_not_persisted(record, persist.call_id, error, now)
            if isinstance(record, PutRequest)
            else []
        )

    def set_span_recorder(self, spans: SpanRecorder) -> None:
        """Record calls as trace spans."""
        self._pending_calls.span_recorder = spans

    def stage_of(self, peer: str) -> Stage:
        """Return the stage of a session."""
        return self._sessions[peer].stage if peer in self._sessions else Stage.CLOSED

    def is_idle(self, peer: str) -> bool:
        """Return whether a session has no calls, variables, subscriptions, registrations, callbacks or pulls."""
        session = self._sessions.get(peer)
        if session is None:
            return True
        has_own = session.calls_made or session.calls_served or session.variables or self._subscriptions.of_peer(peer)
        return not (
            has_own or any(table.count_of(peer) for table in (self.registrations, self._callbacks, self._work_queues))
        )

    def goodbye_of(self, peer: str) -> messages.Goodbye | None:
        """Return the goodbye of a session that the hub closed; None for other and for unknown sessions."""
        session = self._sessions.get(peer)
        return None if session is None else session.goodbye

    def identity_of(self, peer: str) -> str:
        """Return the identity of a session; empty if it is anonymous or unknown."""
        session = self._sessions.get(peer)
        return "" if session is None else session.identity

    def leave(self, peer: str, now: float) -> Deliveries:
        """End a session: cancel its calls, withdraw its registrations, and fail requests that wait for it."""
        session = self._sessions.pop(peer, None)
        if session is None:
            return []
        session.is_present = False
        self.traffic.protocol_stats(session.traits.protocol).sessions -= 1
        self._by_name.pop(session.name, None)
        self.admission.leave(session)
        self.registrations.leave(session)
        self.admission.name_reservations.leave(session, now)
        self._publishing.leave(session)
        for table in (
            self._callbacks,
            self._variables,
            self._work_queues,
            self.peer_requests,
            self.unacknowledged_bytes,
        ):
            table.leave(session)
        store_deliveries = self._durable_requests.leave(session) if session.traits.is_durable else []
        closed_updates = self.updates.leave(session)
        return [
            *store_deliveries,
            *self._router.leave(session, now),
            *closed_updates,
            *self._attachments.leave(session, now),
        ]

    def handle_undelivered(self, delivery: Delivery, error: LocalProtocolError, now: float) -> Deliveries:
        """Fail the request of a message that the receiver's protocol cannot represent."""
        self._counters.undelivered += 1
        message, session = delivery.message, self._sessions.get(delivery.peer)
        if session is None:
            return []
        if isinstance(message, messages.Call | messages.Discover):
            return self._router.fail_undelivered(message.id, error, now)
        if isinstance(message, messages.Part):
            return self._router.fail_undelivered(message.id, error, now, is_partial=True)
        if isinstance(message, messages.Result | messages.Description):
            return self._router.fail_undelivered_result(session, message.id, delivery, error, now)
        if isinstance(message, messages.SetVariable | messages.UnsetVariable) and isinstance(
            delivery.call, PendingCall
        ):
            return self.peer_requests.handle_undelivered(message, delivery.call, error, now)
        return []

    def count_undelivered(self) -> None:
        """Count an event that the receiver's protocol cannot represent."""
        self._counters.undelivered += 1

    def unsubscribe_slow_consumer(self, peer: str, subscription: str) -> Deliveries:
        """End the subscription of a slow consumer."""
        return self._publishing.end_subscription(peer, subscription)

    def deadline(self) -> float | None:
        """Return the earliest deadline of all tables."""
        parts = (self._pending_calls, self.admission, self._durable_requests, self._work_queues)
        return min((time for time in (part.deadline() for part in parts) if time is not None), default=None)

    def expire(self, now: float) -> Deliveries:
        """End calls and logins after their deadlines."""
        deliveries = [
            *self._router.expire(now),
            *self.admission.expire(now),
            *self._durable_requests.expire(now),
            *self._work_queues.expire(now),
        ]
        self.alarm.at = inf if (next_deadline := self.deadline()) is None else next_deadline
        return deliveries

    def drain(self, now: float) -> Deliveries:
        """Refuse new calls and new sessions from now on; pending calls continue."""
        self.admission.close()
        self._work_queues.close()
        for tables in (self._handlers, self._durable_session_handlers):
            tables[Stage.OPEN][messages.Call] = self._call_while_closing
        return []

    def end_calls(self, now: float) -> Deliveries:
        """End all pending calls, because the hub stops before their responses."""
        self._durable_requests.close()
        return self._router.end_all(now)

    def reload(self, settings: HubSettings) -> Deliveries:
        """Apply new settings to existing sessions too: registrations, subscriptions and pulls that they forbid end."""
        self._rate = settings.rate
        self._pending_calls.set_timeouts(settings.call_timeout, settings.max_timeout)
        self.traffic.configure(settings.max_methods, settings.max_topics)
        parts = (
            self._publishing,
            self._work_queues,
            self._durable_requests,
            self.registration_handler,
            self.unacknowledged_bytes,
            self._attachments,
        )
        for part in parts:
            part.configure(settings)
        self.admission.reload(settings)
        deliveries: Deliveries = []
        for session in self._sessions.values():
            self.registrations.revoke(session)
            deliveries += self._publishing.revoke(session)
            self._work_queues.revoke(session)
        self.admission.release_names()
        return deliveries

    # Queries of the runtime.

    def open_calls(self) -> int:
        """Return the number of pending calls, without route queries of the hub itself."""
        return len(self._pending_calls) - self._discovery.open_route_queries()

    def find_session(self, peer: str) -> Session | None:
        """Return the session of a peer, if there is one."""
        return self._sessions.get(peer)

    def pending_call(self, call_id: str) -> PendingCall | None:
        """Return the pending call or route query that this process answers as `call_id`."""
        return self._pending_calls.get(call_id)

    def caller_info(self, call_id: str) -> Caller | None:
        """Return the caller of a call that this process answers as `call_id`."""
        pending = self._pending_calls.get(call_id)
        if pending is None or self._work_queues.is_made_by_hub(pending):
            return None
        caller = pending.caller
        return Caller(caller.peer, caller.traits.protocol, caller.identity, caller.variables)

    def retained_value(self, topic: Topic) -> tuple[Payload, int] | None:
        """Return the retained value of a topic and the number of its publication."""
        return self._publishing.retained_value(topic)

    def last_publication_number(self) -> int:
        """Return the number of the last publication."""
        return self._publishing.last_number

    def stats(self) -> dict[str, object]:
        """Return the response of `hub.stats`: sizes of tables, and counters since the start."""
        return {
            "closing": self.admission.is_closed,
            "sessions": len(self._sessions),
            "offers": len(self.registrations),
            "subscriptions": len(self._subscriptions),
            "retained": self._publishing.retained_count,
            "callbacks": len(self._callbacks),
            "queues": dict(self._work_queues.waiting()),
            "open_calls": self.open_calls(),
            "owed": len(self._durable_requests),
            "incomplete_bytes": self._attachments.incomplete_bytes,
            "calls": self._pending_calls.count,
            "publications": self._publishing.publication_count,
            **self.admission.session_limits.stats(),
            **self._counters.as_dict(),
        }

    def queue_counts(self) -> dict[str, dict[str, int]]:
        """Return the number of waiting, assigned and dead jobs of each work queue."""
        return self._work_queues.counts()

    def traffic_report(self, now: float) -> dict[str, object]:
        """Return the response of `hub.traffic`."""
        return traffic_report(self.traffic, self._epoch + now, now - self._started_at, self._epoch)

    def _call_while_closing(self, session: Session, message: messages.Call, now: float) -> Deliveries:
        if message.callback or message.method not in self.built_ins:
            raise Refusal(Reason.UNAVAILABLE, "the hub is closing")
        return self.built_ins.call(session, message, now)

    def _handle_unexpected(self, session: Session, message: HubMessage) -> Deliveries:
        if session.stage is Stage.UNIDENTIFIED and type(message) in REQUEST_TYPES:
            raise Refusal(Reason.DENIED, ANONYMOUS_REFUSED)
        return []

    def _refuse(self, session: Session, message: HubMessage, refusal: Refusal, now: float) -> Deliveries:
        self._counters.refused += 1
        self._counters.failures[refusal.reason] += 1
        if (
            type(message) is messages.Call and session.stage is Stage.OPEN
        ):  # other failures are not for the operator's lists
            self._durable_requests.unrouted.count(session, message, refusal.reason, refusal.text, now)
        if refusal.reason is Reason.DENIED:
            session.annotation = FrameAnnotation("deny", refusal.text)
        request_id = getattr(message, "id", None)
        if request_id is None:
            session.annotation = session.annotation or FrameAnnotation("drop", refusal.text)
            self._counters.dropped += 1
            return []
        return [
            Delivery(
                session.peer, messages.Failure(request_id, refusal.reason, refusal.text, None, refusal.retry_after)
            )
        ]
