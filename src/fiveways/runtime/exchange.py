"""Where the hub's decisions are carried out: every word to its party, and one write for each of them per loop pass."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from fiveways.hub.core import Hub
from fiveways.hub.delivery import Deliveries, Delivery, Fanout, Subscriber
from fiveways.model.messages import Event, Word
from fiveways.runtime.outbox import CORK
from fiveways.runtime.party import Party

Member: TypeAlias = tuple[Collection[str], Callable[[bytes], None], Party, Subscriber]
"""A subscriber, and what is needed to put one more frame into its outbox."""


class Group:
    """Subscribers of one protocol whose frames for an event may be the same."""

    __slots__ = ("marked_in", "members", "name")

    def __init__(self, name: str, members: list[Member]) -> None:
        self.name = name
        self.members = members
        self.marked_in = -1
        """The pass of the loop in which all of them have been marked."""


Groups: TypeAlias = list[Group]
_log = logging.getLogger("fiveways.exchange")
_TOO_SLOW: Final = "you read too slowly"
_MOST_KNOWN: Final = 100_000
"""Members of groups that are remembered, of all topics together."""
_MANY: Final = 32
"""Where the hub has more to say at once than this, what is said is written in between."""


class Exchange:
    """The hub and all who take part, in one event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.parties: dict[str, Party] = {}
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._marked: list[Party] = []
        self._known_groups: dict[int, tuple[tuple[Subscriber, ...], Groups]] = {}
        self._known_members = 0
        self._pass = 0
        self._burst = 0
        """Bytes of events that were put into outboxes in this pass."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # In.

    def handle(self, peer: str, word: Word, now: float) -> None:
        """Let the hub hear a word, and do what it says."""
        self.perform(self.hub.handle(peer, word, now), now)

    def perform(self, deliveries: Deliveries, now: float) -> None:
        """Do what the hub says."""
        parties = self.parties
        many = len(deliveries) > _MANY
        for delivery in deliveries:
            if type(delivery) is Delivery:
                party = parties.get(delivery.to)
                if party is None:
                    continue
                if many and party.choked and isinstance(delivery.word, Event):
                    party.skip(delivery.word.subscription)
                    continue
                party.say(delivery, now)
                if many:
                    party.relieve()
            else:
                self._fan_out(delivery, now)  # type: ignore[arg-type]  # it is the other one

    def leave(self, party: Party) -> None:
        """Forget one who is gone."""
        if self.parties.pop(party.peer, None) is not None:
            self._known_groups.clear()
            now = self.now()
            self.perform(self.hub.leave(party.peer, now), now)
            self.schedule()

    # Out.

    def _fan_out(self, fanout: Fanout, now: float) -> None:
        """Give an event to all subscribers; those who get the same bytes get one frame, which is made once."""
        for group in self._groups(fanout.subscribers):
            name, frame = group.name, None
            are_marked = group.marked_in == self._pass
            for alikes, append, party, subscriber in group.members:
                if frame is not None and name in alikes:
                    # The whole cost of one more subscriber, so it is written out here.
                    append(frame)
                    if not are_marked and not party.marked:
                        self.mark(party)
                else:
                    frame = self._tell(party, subscriber, fanout, now) or frame
            group.marked_in = self._pass
            if frame is not None:
                self._burst += len(frame)
        if self._burst > CORK:
            self.flush()

    def _tell(self, party: Party, subscriber: Subscriber, fanout: Fanout, now: float) -> bytes | None:
        """Give an event to one subscriber; return its frame, if others of the group may get the same."""
        if party.choked and not self._is_kept(party, subscriber, fanout, now):
            return None
        if fanout.event.attachments:
            party.say(Delivery(subscriber.peer, addressed(fanout.event, subscriber), fanout.op), now)
            return None
        return party.say_event(fanout.event, subscriber, now)

    def _groups(self, subscribers: tuple[Subscriber, ...]) -> Groups:
        """Return who gets a publication, those together whose frames may be the same."""
        known = self._known_groups.get(id(subscribers))
        is_known = known is not None and known[0] is subscribers
        if known is not None and is_known and known[1]:
            return known[1]
        groups: dict[tuple[str, str, bool], list[Member]] = {}
        for subscriber in subscribers:
            party = self.parties.get(subscriber.peer)
            if party is not None:
                key = (party.family, subscriber.subscription, subscriber.envelope)
                member = (party.alikes, party.outbox.waiting.append, party, subscriber)
                groups.setdefault(key, []).append(member)
        found = [Group(name, members) for (_, name, _), members in groups.items()]
        self._known_members += len(subscribers)
        if self._known_members > _MOST_KNOWN:
            self._known_groups.clear()
            self._known_members = len(subscribers)
        # The tuple is kept, so that no other can have its address; its groups from the second time on, since many a
        # tuple is made for one publication alone.
        self._known_groups[id(subscribers)] = (subscribers, found if is_known else [])
        return found

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
        return False

    def mark(self, party: Party) -> None:
        """Have what a party has to say written when this pass of the loop is over."""
        party.marked = True
        if not self._marked:
            self._loop.call_soon(self.flush)
        self._marked.append(party)

    def flush(self) -> None:
        """Write what everybody has to say; after something large, this does not wait for the end of the pass."""
        marked, self._marked = self._marked, []
        self._pass += 1
        self._burst = 0
        for party in marked:
            party.marked = False
            try:
                party.flush()
            except Exception:  # noqa: BLE001  it must cost nobody else anything
                _log.exception("what %s should have heard could not be written", party.peer)
                party.cut_off()
        self.schedule()

    # Time.

    def schedule(self) -> None:
        """See to it that the hub is woken when it wants to be."""
        deadline = self.hub.deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
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
