"""Where the hub's decisions are carried out: every word to its party, and one write for each of them per loop pass."""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Announce, Deliveries, Delivery, Fanout, Keep, More, Subscriber
from fiveways.hub.session import public_name
from fiveways.hub.traffic import Slow
from fiveways.journal.tape import Tape
from fiveways.model.messages import Event, Word
from fiveways.runtime.clock import steady_clock
from fiveways.runtime.doors import Doors
from fiveways.runtime.groups import Group, KnownGroups
from fiveways.runtime.keeping import Keeping
from fiveways.runtime.lines import Sparing
from fiveways.runtime.outbox import CORK, Shared
from fiveways.runtime.party import Party

_log = logging.getLogger("fiveways.exchange")
_TOO_SLOW: Final = "you read too slowly"
_MANY: Final = 32
"""Where the hub has more to say at once than this, what is said is written in between."""
_FOLDED_EVERY: Final = 0x3F
"""The bits that are 0 in the number of a pass after which it is counted what came."""
_NOTES: Final = 512
"""Entries on the tape after which they are passed on, as long as they are in a cache."""


class Exchange:
    """The hub and all who take part, in one event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._alarm = hub.alarm
        self.keeping = Keeping(hub, self.perform)
        """What must outlive this process."""
        self.announce: Callable[[Announce, float], None] = self._answer_at_once
        """Serves a new registration before it is answered; set together with `hub.registering.announces`."""
        self.parties: dict[str, Party] = {}
        self.tape: Tape | None = None
        """Where every frame is noted down, if it is."""
        self._loop = asyncio.get_running_loop()
        self.now = steady_clock
        self._marked: list[Party] = []
        self._is_flushing = False
        """What there is to write will be written when this pass of the loop is over."""
        self._groups = KnownGroups(self.parties, hub.traffic)
        self._under_way: list[Group] = []
        self._burst = 0
        """Bytes of events that were put into outboxes in this pass."""
        self._passes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.slow: set[Party] = set()
        """Who has missed something, or has much unread, or once had."""
        hub.traffic.slow = self._tell_slow
        self.left: list[Callable[[str], None]] = []
        """Who is told of each party that is gone."""
        self.doors = Doors(hub.gate, self.now)
        self._laggards = Sparing(_log)

    # In.

    def handle(self, peer: str, word: Word, now: float) -> None:
        """Let the hub hear a word, and do what it says."""
        self.perform(self.hub.handle(peer, word, now), now)

    def perform(self, deliveries: Deliveries, now: float) -> None:
        """Do what the hub says."""
        many = len(deliveries) > _MANY
        for delivery in deliveries:
            if type(delivery) is Delivery:
                party = self.parties.get(delivery.to)
                if party is not None:
                    if many:
                        self._say_one_of_many(party, delivery, now)
                    else:
                        party.say(delivery, now)
            elif type(delivery) is Fanout:
                self._fan_out(delivery, now)
            elif type(delivery) is Keep:
                self.keeping.keep(delivery, now)
            elif type(delivery) is Announce:
                self.announce(delivery, now)
            elif type(delivery) is More:
                self._loop.call_soon(self._go_on, delivery)

    def _go_on(self, more: More) -> None:
        self.perform(more.then(), self.now())

    def _answer_at_once(self, announce: Announce, now: float) -> None:
        self.perform([announce.then], now)

    def _say_one_of_many(self, party: Party, delivery: Delivery, now: float) -> None:
        """Say a word, and have it written if there is much already; who is too slow for events misses some."""
        word = delivery.word
        if party.choked and type(word) is Event:
            party.skip(word.subscription)
            self.drop(party, word, _TOO_SLOW)
            return
        party.say(delivery, now)
        party.relieve()

    def leave(self, party: Party, reason: str = "") -> None:
        """Forget one who is gone."""
        if self.parties.pop(party.peer, None) is not None:
            self._groups.forget()
            self.slow.discard(party)
            self.doors.left(party.peer, party.family, reason)
            now = self.now()
            self.perform(self.hub.leave(party.peer, now), now)
            for tell in self.left:
                tell(party.peer)
            self.schedule()

    # Out.

    def _fan_out(self, fanout: Fanout, now: float) -> None:
        """Give an event to all subscribers; those who get the same bytes get one frame, which is made once."""
        for group in self._groups.of(fanout.subscribers):
            group.tally.deliveries += group.size
            if not group.is_under_way:
                group.set_out()
                self._under_way.append(group)
                self._flush_soon()
            frame = None
            for party, append, subscriber in group.walkers:
                if party.ride is not None:
                    party.ride.let_off(party)  # of another group: the order of its events is kept
                if frame is not None and group.name in party.alikes:
                    append(frame)
                    if not party.marked:
                        self.mark(party)
                else:
                    frame = self._tell(party, subscriber, fanout, now) or frame
            if group.riders:
                if frame is None:
                    party, _, subscriber = next(iter(group.riders.values()))
                    frame = party.event_frame(fanout.event, subscriber)
                while frame is None and group.riders:
                    party, _, subscriber = group.let_off(next(reversed(group.riders)))
                    frame = self._tell(party, subscriber, fanout, now)
            if frame is not None:
                group.burst.append(frame)
                self._burst += len(frame.frame)
        if self._burst > CORK:
            self.flush()

    def _tell(self, party: Party, subscriber: Subscriber, fanout: Fanout, now: float) -> Shared | None:
        """Give an event to one subscriber; return its frame, if others of the group may get the same."""
        if party.choked and not self._is_kept(party, subscriber, fanout, now):
            return None
        if fanout.event.attachments:
            party.say(Delivery(subscriber.peer, addressed(fanout.event, subscriber), fanout.op), now)
            return None
        return party.say_event(fanout.event, subscriber, now)

    def _is_kept(self, party: Party, subscriber: Subscriber, fanout: Fanout, now: float) -> bool:
        """Do what the subscriber's policy says about one who reads too slowly; say whether the event goes out."""
        match subscriber.when_full:
            case "block":
                publisher = self.parties.get(fanout.publisher)
                if publisher is not None and publisher is not party:
                    party.hold_back(publisher)
                return True
            case "close":
                party.close(_TOO_SLOW)
            case "unsubscribe":
                self.perform(self.hub.unsubscribe(subscriber.peer, subscriber.subscription), now)
            case _:
                party.skip(subscriber.subscription)
        self.drop(party, fanout.event, _TOO_SLOW)
        return False

    def drop(self, party: Party, event: Event, reason: str) -> None:
        """Know that an event does not go out to somebody."""
        party.missed += 1
        self.slow.add(party)
        self.hub.traffic.missed(event.topic)
        party.note_drop(event, reason)

    def lag(self, party: Party) -> None:
        """Know that somebody has much unread."""
        self.slow.add(party)
        if not party.lagged:
            party.lagged = True
            name = public_name(party.peer)
            self._laggards.tell(self.now(), "a peer reads too slowly", peer=name, protocol=party.family)

    def give_up(self, party: Party, unread: int) -> None:
        """Know that somebody has too much unread, and is let go."""
        name = public_name(party.peer)
        text = "a peer left %d bytes unread and is let go"
        self._laggards.tell(self.now(), text, unread, peer=name, protocol=party.family)

    def _tell_slow(self) -> list[Slow]:
        for each in self.slow:
            each.settle()
        found = [Slow(public_name(each.peer), each.family, each.missed, each.waiting()) for each in self.slow]
        return [each for each in found if each.missed or each.waiting]

    def mark(self, party: Party) -> None:
        """Have what a party has to say written when this pass of the loop is over."""
        party.marked = True
        self._marked.append(party)
        if not self._is_flushing:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what everybody has to say; after something large, this does not wait for the end of the pass."""
        under_way, self._under_way = self._under_way, []
        self._burst, self._is_flushing = 0, False
        for group in under_way:
            data, burst, riders = group.arrive()
            for party in riders:
                try:
                    party.hand(data, burst)
                except Exception:  # noqa: BLE001  it must cost nobody else anything
                    self._cut_off(party)
        marked, self._marked = self._marked, []
        for party in marked:
            party.marked = False
            try:
                party.flush()
            except Exception:  # noqa: BLE001  as above
                self._cut_off(party)
        if self.tape is not None and len(self.tape) > _NOTES:
            self.tape.turn()
        self._passes += 1
        if not self._passes & _FOLDED_EVERY:
            self.hub.traffic.fold_frames()
        self.schedule()

    def _cut_off(self, party: Party) -> None:
        _log.exception("what %s should have heard could not be written", public_name(party.peer))
        party.cut_off()

    # Time.

    def schedule(self) -> None:
        """See to it that the hub is woken when it wants to be."""
        at = self._alarm.at
        if at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.now()
        self.perform(self.hub.expire(now), now)
        self.schedule()


def addressed(event: Event, subscriber: Subscriber, missed: int = 0) -> Event:
    """Return an event as one subscriber gets it."""
    return Event(
        subscriber.subscription,
        event.topic,
        event.body,
        event.attachments,
        event.publication,
        missed,
        subscriber.envelope,
    )
