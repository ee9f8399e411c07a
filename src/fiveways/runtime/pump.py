"""One peer: its link, its conversation, its outbox, and the exchange behind them."""

import asyncio
from collections.abc import Callable, Sequence

from fiveways.errors import LocalProtocolError
from fiveways.hub.delivery import Delivery, Subscriber
from fiveways.hub.gate import LATE
from fiveways.hub.traits import OBSERVER, Credentials
from fiveways.journal.tape import Track
from fiveways.model.messages import Attachment, Event, Goodbye, Unsubscribe, Word
from fiveways.protocols.base import Conversation, ProtocolSpec
from fiveways.runtime.endpoints import traits_of
from fiveways.runtime.exchange import Exchange, addressed
from fiveways.runtime.outbox import CORK, Outbox, Shared
from fiveways.runtime.party import Party, close_code, nobody_listens
from fiveways.runtime.recorder import Recorder, operation_of
from fiveways.runtime.skipping import Skipper
from fiveways.runtime.waking import Sleeper
from fiveways.transports.base import Link
from fiveways.transports.spool import AnySpools
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, size_of

_PROTOCOL_ERROR = 1002
_NOTHING = Packet(b"")
"""What a peer is taken to have said that said nothing: it is told so in the first dialect of its path."""
MOST_WORDS = 24
"""So many are handed to the link at once, before the pass is over; 8, 16 or all of them let fewer calls through."""
_LINGER = 2.0
"""Seconds for a peer to read what was said to it before the end."""


class Pump(Skipper, Sleeper):
    """Carries one peer from its first packet to its end. Fulfils `transports.base.Receiver`.

    Nothing is queued between the link and the hub: conversation, hub and outboxes run in the call that brings a packet.
    """

    outbox: Outbox
    may_skip = True
    _farewell: Goodbye | None = None

    def __init__(
        self,
        peer: str,
        link: Link,
        exchange: Exchange,
        choose: Callable[[Packet], tuple[ProtocolSpec, Conversation]],
        credentials: Credentials,
        limits: Limits,
        spools: AnySpools,
        gone: Callable[["Pump"], None],
    ) -> None:
        """Make it; `choose` picks the protocol when the first packet is there, `gone` is told when the link is lost."""
        self.peer, self.link = peer, link
        self._exchange = exchange
        self._handle, self._parties = exchange.hub.handle, exchange.parties
        self._choose = choose
        self._credentials = credentials
        self.outbox = Outbox(link, limits)
        self._spools, self._gone = spools, gone
        self._talk: Conversation | None = None
        self._recorder: Recorder | None = None
        self._send: Callable[[Word, float], None] = nobody_listens
        self._sizes = self.outbox.tally.sizes
        self.alikes: set[str] = set()
        self._ended = self._is_parting = False
        self._missed: dict[str, int] = {}
        self._held_back: list[Party] = []
        self._holds = self._unwritten = 0
        """Parties that hold it back; words that were said since something was written, or a few more."""

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Let the peer's words be heard; what it wants is done before this returns."""
        exchange = self._exchange
        # Python finds a function of an instance more quickly if it is not called in the same breath.
        clock, handle = exchange.now, self._handle
        now = clock()
        talk = self._talk
        if talk is None:
            talk = self._begin(packet, now)
        sizes, size = self._sizes, len(packet.payload)
        sizes.append(size or size_of(packet))
        recorder, at = self._recorder, 0
        if recorder is not None:
            wall_clock, session = recorder.clock, recorder.session
            at, session.op = wall_clock(), ""
        words = talk.receive(packet, now)
        if recorder is not None and len(talk.unsent) != len(recorder.ops):
            recorder.tie("")  # it says so by itself
        for word in words:
            deliveries = handle(self.peer, word, now)
            if len(deliveries) == 1 and type(delivery := deliveries[0]) is Delivery:
                party = self._parties.get(delivery.to)
                if party is not None:
                    party.say(delivery, now)
            else:
                exchange.perform(deliveries, now)
            if self._missed and type(word) is Unsubscribe:
                self.forget_missed(word.subscription)
        if recorder is not None:
            recorder.heard(at, packet)
        if self.alikes:
            self._apart()
        if not self.marked:
            exchange.mark(self)
        if size > CORK:
            exchange.flush()

    def expect(self, within: float) -> None:
        """End the session if the peer says nothing within so many seconds."""
        self._wake_at(self._exchange.now() + within)

    def _begin(self, packet: Packet, now: float) -> Conversation:
        spec, talk = self._choose(packet)
        self._talk = talk
        self._sleep_on()
        self._send = talk.send
        self.family = spec.name
        self._exchange.parties[self.peer] = self
        hub, tape = self._exchange.hub, self._exchange.tape
        self.outbox.tally = tally = hub.traffic.tally(OBSERVER if self._credentials.is_observer else spec.name)
        self._sizes = tally.sizes
        hub.arrive(self.peer, traits_of(spec), self._credentials, now)
        session = hub.session(self.peer)
        if tape is not None and session is not None:
            self.outbox.track = Track(tape, session.name, "", spec.name, self.link.transport)
            self._recorder, self.may_skip = Recorder(self.outbox.track, session, talk), False  # drops are noted too
        return talk

    def progressed(self, size: int) -> bool:
        """Know that an attachment is on its way."""
        return self._talk is None or self._talk.progress(self._exchange.now(), size)

    def writable(self) -> None:
        """Write what waited; then nobody has to wait for this peer any longer."""
        self.link.is_alive = True  # the peer reads
        if not self.marked:
            self._exchange.mark(self)
        self.outbox.flush()
        if not self.outbox.is_choked:
            self._caught_up()

    def _caught_up(self) -> None:
        self.choked = False
        self.read_on()
        held, self._held_back = self._held_back, []
        for publisher in held:
            publisher.let_go()

    def lost(self, reason: str) -> None:
        """Leave the hub."""
        self._ended = True
        self._apart()
        self._sleep_on()
        unwritten = self.outbox.clear()
        if self._recorder is not None:
            self._recorder.end(reason, unwritten)
        self._caught_up()
        self._exchange.leave(self, reason)
        self._gone(self)

    # Who watches over it.

    def is_silent(self) -> bool:
        """Say whether nothing has come since this was asked last."""
        silent = not self.link.is_alive and not self._holds  # a peer that is held back cannot be heard
        self.link.is_alive = False
        return silent

    def waiting(self) -> int:
        """Return how many bytes wait for the peer in memory."""
        return self.outbox.size + self.link.waiting()

    @property
    def has_begun(self) -> bool:
        """Whether the peer has said anything."""
        return self._talk is not None

    # What the exchange tells.

    def say(self, delivery: Delivery, now: float) -> None:
        """Say a word; one that cannot be said is handed back to the hub."""
        word, send = delivery.word, self._send
        if type(word) is Attachment:
            word = self.outbox.put_away(word, self._spools, getattr(self._talk, "awaited_attachment", word.name))
        try:
            send(word, now)
        except LocalProtocolError as error:
            self._cannot_say(delivery, error, now)
        recorder = self._recorder
        if recorder is not None:
            op, ops = delivery.op or operation_of(delivery), recorder.ops
            if len(recorder.talk.unsent) - len(ops) == 1:  # nearly always
                ops.append(op)
            else:
                recorder.tie(op)
        if self.alikes:
            self._apart()
        if not self.marked:
            self._exchange.mark(self)
        self._unwritten += 1
        if self._unwritten >= MOST_WORDS:
            self._write_some()

    def _write_some(self) -> None:
        self._unwritten = 0
        if self._talk is not None and not self._ended and (packets := self._talk.outgoing()):
            self.outbox.send(packets, self._ops(packets))

    def _ops(self, packets: Sequence[Packet]) -> Sequence[str]:
        """Return what they belong to, where that is noted down."""
        return () if self._recorder is None else self._recorder.take(len(packets))

    def _cannot_say(self, delivery: Delivery, error: LocalProtocolError, now: float) -> None:
        if self._talk is None or self._talk.closed:
            return
        word, exchange = delivery.word, self._exchange
        if isinstance(word, Event):
            self.skip(word.subscription, word.missed + 1)
            exchange.drop(self, word, str(error))
        exchange.perform(exchange.hub.undelivered(delivery, error, now), now)

    def say_event(self, event: Event, subscriber: Subscriber, now: float) -> Shared | None:
        """Say an event; return its frame, if others of the family may get the same."""
        talk, name = self._talk, subscriber.subscription
        if talk is None or self._ended:
            return None
        if self.ride is not None:
            self.ride.let_off(self)
        missed = self._missed.pop(name, 0) if self._missed else 0
        if self.alikes:
            self.alikes.clear()
        else:  # the conversation may have said something before
            self._collect()
        if not self.marked:
            self._exchange.mark(self)
        word = addressed(event, subscriber, missed)
        outbox, shared, op = self.outbox, None, f"p{event.publication}"
        try:
            packet = None if missed else talk.alike(word)
            if packet is None:
                self._send(word, now)
        except LocalProtocolError as error:
            self._cannot_say(Delivery(self.peer, word), error, now)
            return None
        if packet is None:
            self._collect(op)
        else:
            outbox.add((packet,), (op,))
            shared = Shared(outbox.waiting[-1], packet, op)
            self.alikes.add(name)
        if outbox.size > CORK:
            self._relieve()
        return shared

    def event_frame(self, event: Event, subscriber: Subscriber) -> Shared | None:
        """Return what an event is for all who are alike."""
        talk = self._talk
        try:
            packet = None if talk is None else talk.alike(addressed(event, subscriber))
        except LocalProtocolError:
            return None  # each is told by itself why it gets nothing
        return None if packet is None else Shared(self.link.frame(packet), packet, f"p{event.publication}")

    def _apart(self) -> None:
        """Know that this peer's next event may be other bytes than those of the others."""
        self.alikes.clear()
        if self.ride is not None:
            self.ride.let_off(self)

    def hand(self, frames: bytes, burst: Sequence[Shared]) -> None:
        """Write what many get."""
        if not self._ended:
            self.outbox.hand(frames, burst)
            if self.outbox.waiting and not self.marked:
                self._exchange.mark(self)

    def note_drop(self, event: Event, reason: str) -> None:
        """Have it noted down that an event does not go out."""
        if self._recorder is not None:
            self._recorder.dropped(event, reason)

    def hold_back(self, publisher: Party) -> None:
        """Let a publisher wait until this peer has caught up."""
        if publisher not in self._held_back:
            self._held_back.append(publisher)
            publisher.wait()

    def wait(self) -> None:
        """Read nothing more from the peer, until all who hold it back have let go."""
        self._holds += 1
        self.link.pause_reading()

    def let_go(self) -> None:
        """Go on reading, unless somebody else holds it back."""
        self._holds -= 1
        if self._holds == 0 and not self._ended:
            self.link.is_alive = True
            if self._talk is not None:
                self._talk.excuse(self._exchange.now())
            self.link.resume_reading()

    def close(self, why: str, *, denied: bool = False) -> None:
        """End the session, with a word where there is still room for one."""
        now = self._exchange.now()
        if not (self._ended or (self._talk or self._begin(_NOTHING, now)).closed):
            self._farewell = Goodbye(why, denied)
            self.say(Delivery(self.peer, self._farewell), now)

    # Out.

    def _collect(self, op: str = "") -> None:
        """Put what the conversation has to say into the outbox; what it said last belongs to an operation."""
        if self._talk is not None:
            if self._recorder is not None:
                self._recorder.tie(op)
            packets = self._talk.outgoing()
            self.outbox.add(packets, self._ops(packets))

    def relieve(self) -> None:
        """Write before the pass is over, if there is much."""
        self._collect()
        self.outbox.count()
        if self.outbox.size > CORK:
            self._relieve()

    def _relieve(self) -> None:
        self.outbox.flush()
        if self.outbox.is_choked:
            self.choked = True
            self._exchange.lag(self)
            self._apart()
        elif self.choked:
            self._caught_up()
        if self.outbox.is_over and not self._ended:
            self._ended = True
            self._exchange.give_up(self, self.outbox.size)
            self.link.abort()

    def flush(self) -> None:
        """Write all there is; close when the conversation is over."""
        talk, outbox = self._talk, self.outbox
        if self._ended or talk is None:
            return
        packets: list[Packet] = []
        if not self.alikes and talk.has_news:  # among those who are alike, it has neither heard nor said anything
            packets = talk.outgoing()
            deadline = talk.deadline()
            if deadline is not None:
                self._wake_at(deadline)
        if packets:
            outbox.send(packets, self._ops(packets))
        elif outbox.waiting:
            outbox.flush()
        if self.choked and not outbox.is_choked:
            self._caught_up()
        if talk.closed:
            self._part(talk)
        elif outbox.waiting:
            self._relieve()
            if outbox.waiting and not self.link.is_full and not self.marked:
                self._exchange.mark(self)  # a large attachment: the rest of it in the next pass

    def _part(self, talk: Conversation) -> None:
        """Close the link behind the last word; who does not read it in time will never see it."""
        farewell = self._farewell = self._farewell or self._exchange.hub.farewell_of(self.peer)
        self._exchange.leave(self)
        if not self.outbox.waiting:
            self.link.close(*close_code(farewell) if talk.error is None else (_PROTOCOL_ERROR, str(talk.error)))
        elif not self._is_parting:
            self._is_parting = True
            self._sleep_on()
            self._timer_at = 0.0  # nothing is worth waking for any more
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self.link.abort)

    def cut_off(self) -> None:
        """End it without a word."""
        self.link.abort()

    # Time.

    def _wake(self) -> None:
        talk, now = self._talk, self._exchange.now()
        if talk is None:
            self.close(LATE, denied=True)
        if talk is None or self._ended:
            return
        self._apart()
        if self._holds:
            talk.excuse(now)  # it is we who do not read
        for word in talk.wake(now):
            self._exchange.handle(self.peer, word, now)
        if not talk.wants_attachment:
            self.link.discard_incoming()
        if not self.marked:
            self._exchange.mark(self)
