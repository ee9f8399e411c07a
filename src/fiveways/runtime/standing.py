"""One peer whose conversation outlives its links: it may come back, over this transport or another."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from fiveways.errors import LocalProtocolError
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.session import public_name
from fiveways.journal.tape import Track
from fiveways.model.messages import Event, Goodbye, Hello, Unsubscribe, Welcome
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.runtime.exchange import Exchange, addressed
from fiveways.runtime.lines import known
from fiveways.runtime.outbox import CORK, Outbox, Queue
from fiveways.runtime.party import Party, close_code
from fiveways.runtime.recorder import note_drop, note_mark, operation_of
from fiveways.runtime.waking import Sleeper
from fiveways.transports.base import Link
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

NOTHING_DUE: Final = Packet(b"[]")
_NORMAL: Final = 1000
_ELSEWHERE: Final = "the conversation goes on over another link"
_log = logging.getLogger("fiveways.standing")


class Standing(Party, Sleeper):
    """One peer at the hub, with a link, between two links, or asking now and then what there is for it."""

    family = "nq"

    def __init__(self, talk: NqConversation, exchange: Exchange, limits: Limits) -> None:
        self.peer = talk.peer
        self.name = public_name(talk.peer)
        self.outbox = Queue()  # nothing waits in it: the conversation keeps what cannot be said yet
        self.talk = talk
        self._send = talk.send
        self._exchange = exchange
        self._handle = exchange.hub.handle
        self._limits = limits
        self.tally = exchange.hub.traffic.tally(self.family)
        self._tracks = 0
        self._http: Track | None = None
        """Where it is noted down what it posts, if it does and that is."""
        self.leg: Leg | None = None
        """Where the conversation goes on, if it has a link."""
        self._asking: asyncio.Future[None] | None = None
        self.turns = 0
        """Connections over which it is answered packet by packet."""
        self.first_heard: Callable[[], None] | None = None
        """Called once, when its first POST was heard."""
        self.answered = 0
        """The number of answers over HTTP so far."""
        self._due: deque[Packet] = deque()
        """What did not fit into the last answer."""
        self._missed: dict[str, int] = {}
        self._is_gone = False
        self.is_over = False
        """The hub has sent it away."""
        self.is_denied = False
        self.over: Callable[[Standing], None] = _nobody
        """Who is told of that."""
        self.parting: asyncio.TimerHandle | None = None
        """When it is forgotten then."""
        self.seen_at = exchange.now()

    def come_in(self) -> None:
        """Knock: NQ has no word for that, so that it is said in its place."""
        self._exchange.handle(self.peer, Hello(), self._exchange.now())

    @property
    def is_here(self) -> bool:
        """Whether it has a link, or waits for an answer."""
        return self.leg is not None or self._asking is not None or self.turns > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept for it, so that a new session under its id would do as well."""
        return self.talk.is_empty and not self._due and self._exchange.hub.is_idle(self.peer)

    # Links.

    def attach(self, link: Link) -> "Leg":
        """Go on over a new link; the one before, if it is still there, is closed."""
        self._leave_link()
        self._release()
        self.leg = Leg(self, link, self._limits, self.track_of(link.transport))
        now = self._exchange.now()
        # What waited here is said again, or asked for again, and must not go out before the id by which it may return.
        self._due.clear()
        self.talk.relink(now)
        if not self.is_over:
            self.talk.announce()
        self._mark()
        return self.leg

    def _leave_link(self) -> None:
        """Go on elsewhere: where the peer spoke last is where it is answered."""
        leg, self.leg = self.leg, None
        if leg is not None:
            self._exchange.hub.gate.places.disconnect(self.peer)
            leg.note_end(_ELSEWHERE)
            leg.link.close(_NORMAL, _ELSEWHERE)

    def _release(self) -> None:
        """Answer a question that waits: who asks again, or elsewhere, has given it up."""
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(None)

    def detach(self, leg: "Leg", reason: str) -> None:
        """Know that a link is gone."""
        if leg is self.leg:
            self.leg = None
            self._exchange.hub.gate.places.disconnect(self.peer)
            self.seen_at = self._exchange.now()
            leg.note_end(reason)
            _log.debug("a link is gone", extra=known(peer=self.name, protocol=self.family, reason=reason))

    async def exchange(self, packet: Packet, wait: float, given_up: asyncio.Future[None]) -> Packet:
        """Take what a peer sends, and return what is due: at once, or when there is anything within `wait` seconds.

        When `given_up` is done while it waits, nothing is due: the peer may be gone, and gets it with its next request.
        Afterwards `answered` is the number of this answer.
        """
        self._release()
        self._leave_link()
        self._come_back()
        if self._http is None:
            self._http = self.track_of("http", "/nq")
        self._asking = asking = asyncio.get_running_loop().create_future()
        try:
            self.hear(packet, self._http)
            if self.first_heard is not None:
                self.first_heard()
                self.first_heard = None
            del packet  # it may be large, and the wait long
            self._exchange.flush()
            is_heard = True
            if wait > 0 and not asking.done():
                await asyncio.wait([asking, given_up], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                is_heard = not given_up.done()
            due = self._next_due() if is_heard and self._asking is asking else NOTHING_DUE
            self.answered += 1
            self.tally.said(len(due.payload))
            if self._http is not None:
                self._http.said(self._http.clock(), due, due.op)
            return due
        finally:
            if self._asking is asking:
                self._asking = None

    def turn(self, packet: Packet, track: Track | None) -> Packet:
        """Take what a peer sends, and return what is due right now."""
        self._come_back()
        self.hear(packet, track)
        due = self._next_due()
        self.tally.said(len(due.payload))
        return due

    def track_of(self, transport: str, channel: str = "") -> Track | None:
        """Return where it is noted down what goes over a new link, if it is."""
        if self._exchange.tape is None:
            return None
        self._tracks += 1
        track = Track(self._exchange.tape, f"{self.name}.{self._tracks}", self.name, self.family, transport, channel)
        track.mark("open", "in")
        return track

    def _come_back(self) -> None:
        if self.talk.closed and not self.is_over:
            self.talk.relink(self._exchange.now())

    def _collect(self) -> bool:
        """See whether anything is due; no more is taken from the conversation before that has gone."""
        if not self._due:
            self._due.extend(self.talk.outgoing())
        return bool(self._due)

    def _next_due(self) -> Packet:
        if not self._collect():
            self.talk.accept()
        return self._due.popleft() if self._collect() else NOTHING_DUE

    # In.

    def hear(self, packet: Packet, track: Track | None = None) -> None:
        """Let what the peer says be heard, and noted down if there is a track."""
        exchange = self._exchange
        now = self.seen_at = exchange.now()
        self.tally.heard(len(packet.payload))
        at, session = (0, None) if track is None else (track.clock(), exchange.hub.session(self.peer))
        for word in self.talk.receive(packet, now):
            if type(word) is Goodbye:
                continue  # of the link: what it was promised is kept for it
            if session is not None:
                session.op = ""
            deliveries = self._handle(self.peer, word, now)
            if session is not None and session.op:
                self.talk.tie(getattr(word, "id", None) or "", session.op)
            if deliveries:
                exchange.perform(deliveries, now)
            if self._missed and type(word) is Unsubscribe:
                self._missed.pop(word.subscription, None)
        if track is not None:
            track.heard(at, packet, self.talk.heard_op())
            if session is not None:
                note_mark(track, session)
        if not self.marked:
            exchange.mark(self)

    # Out.

    def say(self, delivery: Delivery, now: float) -> None:
        """Say a word; one that cannot be said is handed back to the hub."""
        word = delivery.word
        if type(word) is Welcome:
            return
        if type(word) is Goodbye:  # the hub does not let it in, or no longer
            self.is_over, self.is_denied = True, word.denied
            self.over(self)
        if self._exchange.tape is not None:
            self.talk.speak_of(operation_of(delivery))
        try:
            self._send(word, now)
        except LocalProtocolError as error:
            if isinstance(word, Event):
                self.skip(word.subscription, word.missed + 1)
                self._exchange.drop(self, word, str(error))
            if not isinstance(word, Goodbye):
                self._exchange.perform(self._exchange.hub.undelivered(delivery, error, now), now)
        if not self.marked:
            self._exchange.mark(self)

    def say_event(self, event: Event, subscriber: Subscriber, now: float) -> None:
        """Say an event; each has an identifier of its own, so that nobody else gets the same bytes."""
        missed = self._missed.pop(subscriber.subscription, 0) if self._missed else 0
        self.say(Delivery(self.peer, addressed(event, subscriber, missed)), now)

    def skip(self, subscription: str, events: int = 1) -> None:
        """Count events that could not be said; the next one tells."""
        self._missed[subscription] = self._missed.get(subscription, 0) + events

    def note_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event does not go out."""
        track = self._http if self.leg is None else self.leg.track
        if track is not None:
            note_drop(track, event, reason)

    def waiting(self) -> int:
        """Return how many bytes its link has not taken yet."""
        return 0 if self.leg is None else self.leg.waiting()

    def _mark(self) -> None:
        if not self.marked:
            self._exchange.mark(self)

    def flush(self) -> None:
        """Write what there is where somebody listens."""
        if self._is_gone:
            return
        talk, leg = self.talk, self.leg
        if leg is not None:
            while leg.has_room and self._collect():
                leg.write(self._due.popleft())
            if talk.closed and not self._due:
                leg.link.close(*close_code(self._exchange.hub.farewell_of(self.peer)))
        elif self._asking is not None and not self._asking.done() and self._collect():
            self._asking.set_result(None)
        deadline = talk.deadline()
        if deadline is not None:
            self._wake_at(deadline)

    def close(self, why: str) -> None:
        """Part from it for now."""
        if not self.talk.closed:
            self.talk.send(Goodbye(why, self.is_denied), self._exchange.now())
        self._mark()
        self._release()

    def give_up(self, unread: int) -> None:
        """Know that its link is given up for what it does not read."""
        self._exchange.give_up(self, unread)

    def cut_off(self) -> None:
        """End its link without a word."""
        if self.leg is not None:
            self.leg.link.abort()

    def forget(self, reason: str) -> None:
        """End it for good."""
        self._is_gone = True
        if self._http is not None:
            self._http.mark("close", "in", reason)
        if self.parting is not None:
            self.parting.cancel()
        self._sleep_on()
        if not self.talk.closed:  # otherwise the link is being closed in good order
            self.cut_off()
        self._exchange.leave(self)

    # Time.

    def _wake(self) -> None:
        now = self._exchange.now()
        for word in self.talk.wake(now):
            self._exchange.handle(self.peer, word, now)
        self._mark()


def _nobody(_who: object) -> None:
    """Nobody wants to know."""


class Leg:
    """A conversation's part over one link. Fulfils `transports.base.Receiver`."""

    has_begun = True

    def __init__(self, standing: Standing, link: Link, limits: Limits, track: Track | None) -> None:
        """Make it; what goes over the link is noted down if there is a track."""
        self.link = link
        self.track = track
        self.gone: Callable[[Leg], None] = _nobody
        """Who is told when the link is lost."""
        self.standing = standing
        self._outbox = Outbox(link, limits)
        self._outbox.track, self._outbox.tally = track, standing.tally

    def note_end(self, reason: str) -> None:
        """Have it noted down that the link is not the peer's any more."""
        if self.track is not None:
            self.track.mark("close", "in", reason)

    @property
    def is_admitted(self) -> bool:
        """Whether the peer is authenticated, or admitted as anonymous."""
        return self.standing.is_admitted

    @property
    def has_room(self) -> bool:
        """Whether the link takes more right now."""
        return not self.link.is_full and self._outbox.size < CORK

    def waiting(self) -> int:
        """Return how many bytes it has not taken yet."""
        return self._outbox.size + self.link.waiting()

    def write(self, packet: Packet) -> None:
        """Write a packet; a link that takes too little is given up, and what it did not take is said again."""
        self._outbox.send((packet,), (packet.op,))
        if self._outbox.is_over:
            self.standing.give_up(self._outbox.size)
            self.link.abort()

    def received(self, packet: Packet) -> None:
        """Let the peer's words be heard, as long as this is its link, and not closed by a farewell."""
        standing = self.standing
        if standing.leg is not self or standing.talk.closed:
            return
        standing.hear(packet, self.track)
        if len(packet.payload) > CORK:
            standing.flush()

    def progressed(self, _size: int) -> bool:
        """Nothing large comes by itself."""
        return True

    def writable(self) -> None:
        """Write what waited."""
        self.link.is_alive = True
        self._outbox.flush()
        if not self._outbox.waiting:
            self.standing.flush()

    def lost(self, reason: str) -> None:
        """Let the conversation wait for its next link."""
        self.standing.detach(self, reason)
        self.gone(self)

    # Who watches over it.

    def is_silent(self) -> bool:
        """Say whether nothing has come since this was asked last."""
        silent = not self.link.is_alive
        self.link.is_alive = False
        return silent
