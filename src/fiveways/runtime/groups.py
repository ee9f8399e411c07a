"""Subscribers who get the same bytes: their frames are made once, gathered once, and written to each at once."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from fiveways.hub.delivery import Subscriber
from fiveways.hub.traffic import Tally, Traffic
from fiveways.runtime.outbox import Shared
from fiveways.runtime.party import Party
from fiveways.runtime.skipping import Skipping

Member: TypeAlias = tuple[Party, Callable[[Shared], None], Subscriber]
"""A subscriber, and how to put one more frame into its outbox."""
_MOST_KNOWN: Final = 100_000
"""Members of groups that are remembered, of all topics together."""


class Group:
    """Subscribers of one protocol to one topic, under the same name.

    Those whose next event is the same bytes as everybody's ride along: what comes for them in a pass of the loop is
    kept once, however many they are. Who hears or says anything else is let off, and gets each frame by itself until
    the pass is over.
    """

    __slots__ = (
        "_known",
        "_skippers",
        "_skipping",
        "burst",
        "is_known",
        "is_under_way",
        "name",
        "riders",
        "size",
        "tally",
        "walkers",
    )

    def __init__(self, name: str, members: list[Member], tally: Tally, known: "KnownGroups") -> None:
        self.name = name
        self.size = len(members)
        self.tally = tally
        """Where it is counted what they get."""
        self.is_under_way = False
        self.burst: list[Shared] = []
        """The frames of this pass, the same for all riders."""
        self.riders: dict[Party, Member] = {}
        self.walkers = members
        self.is_known = False
        """Whether it is used for more than one publication."""
        self._known = known
        self._skippers: dict[Party, Member] = {}
        """Those that are too slow, and for whom `_skipping` walks."""
        self._skipping: Skipping | None = None

    def set_out(self) -> None:
        """Begin with the first event of a pass: let those get on who can."""
        self.is_under_way = True
        if self.walkers:
            still: list[Member] = []
            for member in self.walkers:
                party = member[0]
                if party.choked and member[2].when_full == "skip" and party.may_skip:
                    self._skip(member, still)
                elif party.ride is None and self.name in party.alikes:
                    party.ride = self
                    self.riders[party] = member
                else:
                    still.append(member)
            self.walkers = still

    def _skip(self, member: Member, walkers: list[Member]) -> None:
        """Let a member skip events from here on."""
        party = member[0]
        if self._skipping is None:
            self._skipping = Skipping(self._known.traffic)
        if not self._skippers:
            self._known.skipping.add(self)
            walkers.append((self._skipping, self._skipping.outbox.put, member[2]))
        self._skippers[party] = member
        self._skipping.add(party)
        party.skips_in(self)

    def missed_by(self, party: Party) -> int:
        """Return how many events a party has skipped here since this was asked last."""
        return 0 if self._skipping is None else self._skipping.missed_by(party)

    def deliver_to(self, party: Party) -> None:
        """Give a party events again that has skipped some."""
        self.walkers.append(self._skippers.pop(party))
        if self._skipping is not None:
            self._skipping.remove(party)
        if not self._skippers:
            self._known.skipping.discard(self)
            self.walkers = [member for member in self.walkers if member[0] is not self._skipping]

    def dissolve(self) -> None:
        """End it: those who skip events here do so in other groups from now on."""
        for party in self._skippers:
            party.skips_no_more(self)
        self._skippers.clear()

    def let_off(self, party: Party) -> Member:
        """Let a rider walk from here on: it has in its own outbox what came so far."""
        member = self.riders.pop(party)
        party.ride = None
        for shared in self.burst:
            party.outbox.put(shared)
        self.walkers.append(member)
        return member

    def arrive(self) -> tuple[bytes, list[Shared], list[Party]]:
        """Be done with the pass; return who rode to its end, and what all of them are to get."""
        burst, self.burst = self.burst, []
        self.is_under_way = False
        if self._skippers and not self.is_known:
            self._known.skipping.discard(self)
            self.dissolve()
        self.tally.frames_out += len(burst) * len(self.riders)
        self.tally.bytes_out += sum([len(each.packet.payload) for each in burst]) * len(self.riders)
        return b"".join([each.frame for each in burst]), burst, list(self.riders)


class KnownGroups:
    """The groups among the subscribers of each topic, as long as nobody comes or goes."""

    def __init__(self, parties: Mapping[str, Party], traffic: Traffic) -> None:
        self._parties = parties
        self.traffic = traffic
        self.skipping: set[Group] = set()
        """Those with members that skip events."""
        self._known: dict[int, tuple[tuple[Subscriber, ...], list[Group]]] = {}
        self._members = 0

    def forget(self) -> None:
        """Look at everybody anew."""
        for group in self.skipping:
            group.dissolve()
        self.skipping.clear()
        self._known.clear()
        self._members = 0

    def of(self, subscribers: tuple[Subscriber, ...]) -> list[Group]:
        """Return who gets a publication, those together whose frames may be the same."""
        known = self._known.get(id(subscribers))
        is_known = known is not None and known[0] is subscribers
        if known is not None and is_known and known[1]:
            return known[1]
        found = self._find(subscribers)
        if not is_known:
            self._members += len(subscribers)
            if self._members > _MOST_KNOWN:
                self.forget()
                self._members = len(subscribers)
        # The tuple is kept, so that no other can have its address; its groups from the second time on, since many a
        # tuple is made for one publication alone.
        self._known[id(subscribers)] = (subscribers, found if is_known else [])
        for group in found if is_known else ():
            group.is_known = True
        return found

    def _find(self, subscribers: tuple[Subscriber, ...]) -> list[Group]:
        groups: dict[tuple[str, str, bool], list[Member]] = {}
        for subscriber in subscribers:
            party = self._parties.get(subscriber.peer)
            if party is not None:
                key = (party.family, subscriber.subscription, subscriber.envelope)
                groups.setdefault(key, []).append((party, party.outbox.put, subscriber))
        tally = self.traffic.tally
        return [Group(name, members, tally(family), self) for (family, name, _), members in groups.items()]
