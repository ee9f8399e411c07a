"""The hub: takes words of peers, and returns who is to be told what. It never waits, and never asks for the time."""

from collections.abc import Iterable
from math import inf
from random import Random

from fiveways.errors import LocalProtocolError
from fiveways.hub.account import account
from fiveways.hub.attachments import Attachments
from fiveways.hub.builtins import BuiltIns, Present
from fiveways.hub.callbacks import Callbacks
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery, Keep
from fiveways.hub.discovery import Discovery
from fiveways.hub.gate import ANONYMOUS, NO_ACCESS, Gate
from fiveways.hub.handlers import handlers
from fiveways.hub.holdings import Holdings
from fiveways.hub.offers import Offers
from fiveways.hub.owed import Owing
from fiveways.hub.peer_requests import PeerRequests
from fiveways.hub.peers import Peers
from fiveways.hub.publishing import Publishing
from fiveways.hub.queues import Queues
from fiveways.hub.rate import REQUESTS, limit
from fiveways.hub.refusal import Refusal
from fiveways.hub.registering import Registering
from fiveways.hub.router import Router
from fiveways.hub.session import Caller, Handler, Mark, Session, Stage
from fiveways.hub.settings import DEFAULTS, HubSettings
from fiveways.hub.spans import Spans
from fiveways.hub.storage import Storage
from fiveways.hub.timers import Alarm
from fiveways.hub.topics import Subscriptions
from fiveways.hub.traffic import Traffic
from fiveways.hub.traits import Credentials, Traits
from fiveways.hub.unacknowledged import Unacknowledged
from fiveways.hub.updates import Updates
from fiveways.hub.variables import Variables
from fiveways.model import messages as words
from fiveways.model.failures import Reason
from fiveways.model.messages import Word
from fiveways.model.records import BuryItem, PutAnswer, PutItem, PutRequest, PutRetained
from fiveways.model.topics import Topic
from fiveways.wire.limits import Limits
from fiveways.wire.payload import Payload


class Hub:
    """Everybody who is connected, and all that is going on between them."""

    def __init__(
        self,
        random: Random,
        limits: Limits = Limits(),
        settings: HubSettings = DEFAULTS,
        epoch: float = 0.0,
        *,
        began_at: float = 0.0,
        keeps: bool = False,
    ) -> None:
        """Make a hub for which `now` 0.0 is `epoch`, in seconds since 1970; with `keeps` there is a store.

        `began_at` is now: from then on, its numbers are counted.
        """
        self._rate, self._epoch, self._began_at = settings.rate, epoch, began_at
        self._sessions: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}
        self._counters = Counters(Traffic(settings.max_methods, settings.max_topics))
        self.storage = Storage(self._counters, epoch, keeps=keeps)
        self.traffic = self._counters.traffic
        """What has passed, in numbers."""
        self.alarm = Alarm()
        """When to call `expire`."""
        self.gate = Gate(random, settings, self._sessions, self._counters, self.alarm)
        self._calls = Calls(settings.call_timeout, settings.max_timeout, self.alarm, self.traffic)
        self.offers = Offers(random, limits.max_pending, self.gate.claims)
        """Methods on offer."""
        self._callbacks = Callbacks(random, limits.max_pending)
        self._attachments, self._subscriptions = Attachments(limits, settings), Subscriptions(limits)
        self._queues = Queues(limits, settings, self._calls, self.alarm, epoch, self.storage)
        self._variables = Variables(limits, self.gate)
        self._discovery = Discovery(limits, self.offers, self._calls, self._counters)
        self.unacknowledged = Unacknowledged(settings, self._sessions)
        """What resumable sessions make the hub hold."""
        present = Present(self._sessions, self._by_name, Peers(self._sessions, self.offers, self._subscriptions, epoch))
        self.built_ins = BuiltIns(limits, self._callbacks, self._queues, present, self, self.traffic, epoch)
        """What the hub answers itself."""
        self._owing = Owing(settings, self._calls, self.offers, self.built_ins, self._counters, self.storage)
        self.registering = Registering(settings, self.offers, self._discovery, self._owing)
        self._router = Router(
            limits,
            self._calls,
            self.offers,
            self._callbacks,
            self._attachments,
            self._queues,
            self.built_ins,
            self._owing,
            self._counters,
        )
        self.peer_requests = PeerRequests(
            limits, self._sessions, self._calls, self.offers, self._callbacks, self._router, self.gate
        )
        """What an application asks of its callers."""
        self.updates = Updates(limits, self._attachments)
        """What peers publish to an application."""
        self._publishing = Publishing(
            settings, self._subscriptions, self._attachments, self._sessions, self.gate, self._counters, self.storage
        )
        self._set_handlers()

    def _set_handlers(self) -> None:
        self.storage.queues, cancel = self._queues, self._owing.canceller(self._router.cancel)
        self.built_ins.holdings = Holdings(self._owing, cancel, self._queues, self._publishing, self.storage)
        own: dict[type[Word], Handler] = {
            words.Register: self.registering.register,
            words.Unregister: self.registering.unregister,
            words.Update: self.updates.update,
            words.UpdatesClosed: self.updates.closed,
        }
        self._handlers = handlers(
            self.gate, self._variables, self._router, self._publishing, self._discovery, self._attachments, own
        )
        self._reliable_handlers = self._handlers | {Stage.OPEN: self._handlers[Stage.OPEN] | self._reliable()}
        self.gate.set_tables(self._handlers, self._reliable_handlers)

    def _reliable(self) -> dict[type[Word], Handler]:
        """Say what is done otherwise with the words of those who were promised an answer."""
        return {
            words.Call: self._owing.caller(self._router.call),
            words.Cancel: self._owing.canceller(self._router.cancel),
            words.Acknowledged: self._owing.acknowledged,
        }

    # What the runtime tells.

    def arrive(self, peer: str, traits: Traits, credentials: Credentials, now: float) -> None:
        """Know that a link is there; nobody is let in yet."""
        if peer in self._sessions:
            raise AssertionError(f"{peer} is here already")
        session = self._sessions[peer] = Session(peer, traits, credentials, NO_ACCESS)
        self._by_name[session.name] = session
        session.cells = self.traffic.table(traits.protocol)
        session.allowance, session.refilled_at, session.arrived_at = max(1.0, self._rate), now, now
        self._counters.arrived += 1
        self.traffic.tally(traits.protocol).sessions += 1
        self.gate.arrive(session, now)

    def handle(self, peer: str, word: Word, now: float) -> Deliveries:
        """Take a word that a peer said."""
        session = self._sessions.get(peer)
        if session is None:
            return []
        handler = session.handlers.get(type(word))
        try:
            if handler is None:
                return self._unexpected(session, word)
            if self._rate and not session.credentials.is_trusted:
                limit(session, word, self._rate, now)
            return handler(session, word, now)
        except Refusal as refusal:
            return self._refuse(session, word, refusal, now)

    def readmit(self, peer: str, traits: Traits, identity: str, now: float, remote: str = "") -> None:
        """Know that a peer of an earlier hub may come back; there, its requests came from the address `remote`."""
        self.arrive(peer, traits, Credentials(remote=remote), now)
        session = self._sessions[peer]
        self.gate.readmit(session, identity)
        session.kept_as = session.owner

    def resume(self, peer: str, credentials: Credentials) -> None:
        """Continue a resumable session over a new connection: its address and credentials may be other ones."""
        if (session := self._sessions.get(peer)) is not None:
            self.gate.resume(session, credentials)

    def admit(self, peer: str, traits: Traits, identity: str, now: float, credentials: Credentials) -> bool:
        """Let a link in that the operator has set up, as an identity or as anybody; say whether that may be."""
        self.arrive(peer, traits, credentials, now)
        return self.gate.admit(self._sessions[peer], identity)

    def owe(self, peer: str, word: words.Call, expires_at: float, now: float) -> Deliveries:
        """Go on with a request that an earlier hub has accepted; `expires_at` in seconds since 1970."""
        return self._owing.restore(self._sessions[peer], word, expires_at, now)

    def restore(
        self, items: Iterable[PutItem], dead: Iterable[tuple[PutItem, BuryItem]], retained: Iterable[PutRetained]
    ) -> None:
        """Have again the work and the values that an earlier hub had."""
        self._queues.restore(items, dead)
        self._publishing.restore(retained)

    def settle(self, until: float) -> None:
        """Give those who served an earlier hub until then to come back."""
        self._owing.settle(until)

    def kept(self, keep: Keep, now: float) -> Deliveries:
        """Know that something has been written down, and say what is done now."""
        if type(keep.record) is not PutRequest:
            if type(keep.record) is PutAnswer:
                self._owing.told(keep.then)
            return [*keep.then]
        return self._owing.kept(keep.record, keep, now)

    def unkept(self, keep: Keep, why: str, now: float) -> Deliveries:
        """Know that a request could not be written down."""
        record = keep.record
        return self._owing.unkept(record, keep.call, why, now) if isinstance(record, PutRequest) else []

    def trace(self, spans: Spans) -> None:
        """Record calls as spans of traces from now on."""
        self._calls.spans = spans

    def stage_of(self, peer: str) -> Stage:
        """Return how far a peer has come."""
        return self._sessions[peer].stage if peer in self._sessions else Stage.OVER

    def is_idle(self, peer: str) -> bool:
        """Say whether a peer has nothing here that would be missed."""
        session = self._sessions.get(peer)
        if session is None:
            return True
        own = session.asked or session.serving or session.variables or self._subscriptions.of(peer)
        return not (own or any(each.of(peer) for each in (self.offers, self._callbacks, self._queues)))

    def farewell_of(self, peer: str) -> words.Goodbye | None:
        """Return with what a peer was sent away; None if it was not, or is gone."""
        session = self._sessions.get(peer)
        return None if session is None else session.farewell

    def identity_of(self, peer: str) -> str:
        """Return as whom a peer was let in."""
        session = self._sessions.get(peer)
        return "" if session is None else session.identity

    def leave(self, peer: str, now: float) -> Deliveries:
        """Know that a link is gone: end all that its peer had, and tell those who wait for it."""
        session = self._sessions.pop(peer, None)
        if session is None:
            return []
        session.is_here = False
        self.traffic.tally(session.traits.protocol).sessions -= 1
        self._by_name.pop(session.name, None)
        self.gate.leave(session)
        self.offers.leave(session)
        self.gate.claims.leave(session, now)
        self._publishing.leave(session)
        for each in (self._callbacks, self._variables, self._queues, self.peer_requests, self.unacknowledged):
            each.leave(session)
        owed = self._owing.leave(session) if session.traits.reliable else []
        ended = self.updates.leave(session)
        return [*owed, *self._router.leave(session, now), *ended, *self._attachments.leave(session, now)]

    def undelivered(self, delivery: Delivery, error: LocalProtocolError, now: float) -> Deliveries:
        """Know that a word could not be said to its receiver, and tell whoever waits for what it would have done."""
        self._counters.undelivered += 1
        word, session = delivery.word, self._sessions.get(delivery.to)
        if session is None:
            return []
        if isinstance(word, words.Call | words.Discover):
            return self._router.undelivered(word.id, error, now)
        if isinstance(word, words.Part):
            return self._router.undelivered(word.id, error, now, begun=True)
        if isinstance(word, words.Result | words.Description):
            return self._router.unanswered(session, word.id, delivery, error, now)
        if isinstance(word, words.SetVariable | words.UnsetVariable) and isinstance(delivery.call, Pending):
            return self.peer_requests.unsaid(word, delivery.call, error, now)
        return []

    def count_undelivered(self) -> None:
        """Know that an event could not be said to its receiver."""
        self._counters.undelivered += 1

    def unsubscribe(self, peer: str, subscription: str) -> Deliveries:
        """End the subscription of somebody who reads too slowly."""
        return self._publishing.strike(peer, subscription)

    def deadline(self) -> float | None:
        """Return when the first time is over of all that has one."""
        parts = (self._calls, self.gate, self._owing, self._queues)
        return min((time for time in (each.deadline() for each in parts) if time is not None), default=None)

    def expire(self, now: float) -> Deliveries:
        """End calls and logins whose time is over."""
        deliveries = [*self._router.late(now), *self.gate.late(now), *self._owing.late(now), *self._queues.late(now)]
        self.alarm.at = inf if (following := self.deadline()) is None else following
        return deliveries

    def drain(self, now: float) -> Deliveries:
        """Take no new calls and let nobody in from now on; open calls go on."""
        self.gate.close()
        self._queues.close()
        for tables in (self._handlers, self._reliable_handlers):
            tables[Stage.OPEN][words.Call] = self._call_while_closing
        return []

    def finish(self, now: float) -> Deliveries:
        """End all calls that are still open, since nobody will be there for their answers."""
        self._owing.close()
        return self._router.finish(now)

    def reload(self, settings: HubSettings) -> Deliveries:
        """Let new settings hold, for all who are there too: what somebody may not have any more ends."""
        self._rate = settings.rate
        self._calls.set_timeouts(settings.call_timeout, settings.max_timeout)
        self.traffic.configure(settings.max_methods, settings.max_topics)
        parts = (self._publishing, self._queues, self._owing, self.registering, self.unacknowledged, self._attachments)
        for each in parts:
            each.configure(settings)
        self.gate.reload(settings)
        deliveries: Deliveries = []
        for session in self._sessions.values():
            self.offers.revoke(session)
            deliveries += self._publishing.revoke(session)
            self._queues.revoke(session)
        self.gate.release_names()
        return deliveries

    # What the runtime asks.

    def open_calls(self) -> int:
        """Return how many calls wait for their answer, but for what the hub would only like to know."""
        return len(self._calls) - self._discovery.listings()

    def session(self, peer: str) -> Session | None:
        """Return one who is here, for those who want to know what becomes of its words."""
        return self._sessions.get(peer)

    def pending(self, call_id: str) -> Pending | None:
        """Return the call, or the question, that this process is to answer as `call_id`."""
        return self._calls.get(call_id)

    def caller(self, call_id: str) -> Caller | None:
        """Return who made the call that this process is to answer as `call_id`."""
        pending = self._calls.get(call_id)
        if pending is None or self._queues.is_own(pending):
            return None
        caller = pending.caller
        return Caller(caller.peer, caller.traits.protocol, caller.identity, caller.variables)

    def retained(self, topic: Topic) -> tuple[Payload, int] | None:
        """Return the value that is kept for a topic, and the number of that publication."""
        return self._publishing.kept(topic)

    def last_publication(self) -> int:
        """Return the number of the last publication."""
        return self._publishing.last

    def stats(self) -> dict[str, object]:
        """Return what there is, and what has been, in numbers."""
        return {
            "closing": self.gate.is_closed,
            "sessions": len(self._sessions),
            "offers": len(self.offers),
            "subscriptions": len(self._subscriptions),
            "retained": self._publishing.retained,
            "callbacks": len(self._callbacks),
            "queues": dict(self._queues.waiting()),
            "open_calls": self.open_calls(),
            "owed": len(self._owing),
            "incomplete_bytes": self._attachments.held,
            "calls": self._calls.made,
            "publications": self._publishing.made,
            **self.gate.places.stats(),
            **self._counters.told(),
        }

    def queues(self) -> dict[str, dict[str, int]]:
        """Return how much waits in each work queue, is being worked on, and was tried too often."""
        return self._queues.told()

    def account(self, now: float) -> dict[str, object]:
        """Return what has passed, in numbers."""
        return account(self.traffic, self._epoch + now, now - self._began_at, self._epoch)

    # Words that need no more than a table.

    def _call_while_closing(self, session: Session, word: words.Call, now: float) -> Deliveries:
        if word.callback or word.method not in self.built_ins:
            raise Refusal(Reason.UNAVAILABLE, "the hub is closing")
        return self.built_ins.call(session, word, now)

    def _unexpected(self, session: Session, word: Word) -> Deliveries:
        if session.stage is Stage.NOBODY and type(word) in REQUESTS:
            raise Refusal(Reason.DENIED, ANONYMOUS)
        return []

    def _refuse(self, session: Session, word: Word, refusal: Refusal, now: float) -> Deliveries:
        self._counters.refused += 1
        self._counters.failures[refusal.reason] += 1
        if type(word) is words.Call and session.stage is Stage.OPEN:  # what others say is not for the operator's lists
            self._owing.unasked.count(session, word, refusal.reason, refusal.text, now)
        if refusal.reason is Reason.DENIED:
            session.mark = Mark("deny", refusal.text)
        word_id = getattr(word, "id", None)
        if word_id is None:
            session.mark = session.mark or Mark("drop", refusal.text)
            self._counters.dropped += 1
            return []
        return [Delivery(session.peer, words.Failure(word_id, refusal.reason, refusal.text, None, refusal.retry_after))]
