"""Subscribers who get the same bytes: their frames are made once, gathered once, and written to each at once."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from fiveways.hub.delivery import Subscriber
from fiveways.hub.traffic_totals import ProtocolStats, TrafficTotals
from fiveways.runtime.missed_events import SharedMissCounter
from fiveways.runtime.outbox import SharedFrame
from fiveways.runtime.participant import Participant

GroupMember: TypeAlias = tuple[Participant, Callable[[SharedFrame], None], Subscriber]
"""A subscriber, and how to put one more frame into its outbox."""
_MAX_CACHED_MEMBERS: Final = 100_000
"""Members of groups that are remembered, of all topics together."""


class FanoutGroup:
    """Subscribers of one protocol to one topic, under the same name.

    Those whose next event is the same bytes as everybody's ride along: what comes for them in a pass of the loop is
    kept once, however many they are. Who hears or says anything else is let off, and gets each frame by itself until
    the pass is over.
    """

    __slots__ = (
        "_known",
        "_miss_counter",
        "_skipping_members",
        "batched",
        "is_batching",
        "is_cached",
        "name",
        "shared_frames",
        "size",
        "tally",
        "unbatched",
    )

    def __init__(self, name: str, members: list[GroupMember], tally: ProtocolStats, known: "FanoutGroupCache") -> None:
        self.name = name
        self.size = len(members)
        self.tally = tally
        """Where it is counted what they get."""
        self.is_batching = False
        self.shared_frames: list[SharedFrame] = []
        """The frames of this pass, the same for all riders."""
        self.batched: dict[Participant, GroupMember] = {}
        self.unbatched = members
        self.is_cached = False
        """Whether it is used for more than one publication."""
        self._known = known
        self._skipping_members: dict[Participant, GroupMember] = {}
        """Those that are too slow, and for whom `_skipping` walks."""
        self._miss_counter: SharedMissCounter | None = None

    def begin_batch(self) -> None:
        """Begin with the first event of a pass: let those get on who can."""
        self.is_batching = True
        if self.unbatched:
            still: list[GroupMember] = []
            for member in self.unbatched:
                party = member[0]
                if party.is_slow and member[2].when_full == "skip" and party.can_skip_in_group:
                    self._begin_skipping(member, still)
                elif party.batch is None and self.name in party.shareable:
                    party.batch = self
                    self.batched[party] = member
                else:
                    still.append(member)
            self.unbatched = still

    def _begin_skipping(self, member: GroupMember, walkers: list[GroupMember]) -> None:
        """Let a member skip events from here on."""
        party = member[0]
        if self._miss_counter is None:
            self._miss_counter = SharedMissCounter(self._known.traffic)
        if not self._skipping_members:
            self._known.groups_with_skippers.add(self)
            walkers.append((self._miss_counter, self._miss_counter.outbox.put, member[2]))
        self._skipping_members[party] = member
        self._miss_counter.add(party)
        party.join_skip_group(self)

    def take_missed(self, party: Participant) -> int:
        """Return how many events a party has skipped here since this was asked last."""
        return 0 if self._miss_counter is None else self._miss_counter.take_missed(party)

    def resume_delivery(self, party: Participant) -> None:
        """Give a party events again that has skipped some."""
        self.unbatched.append(self._skipping_members.pop(party))
        if self._miss_counter is not None:
            self._miss_counter.remove(party)
        if not self._skipping_members:
            self._known.groups_with_skippers.discard(self)
            self.unbatched = [member for member in self.unbatched if member[0] is not self._miss_counter]

    def dissolve(self) -> None:
        """End it: those who skip events here do so in other groups from now on."""
        for party in self._skipping_members:
            party.leave_skip_group(self)
        self._skipping_members.clear()

    def leave_batch(self, party: Participant) -> GroupMember:
        """Let a rider walk from here on: it has in its own outbox what came so far."""
        member = self.batched.pop(party)
        party.batch = None
        for shared in self.shared_frames:
            party.outbox.put(shared)
        self.unbatched.append(member)
        return member

    def finish_batch(self) -> tuple[bytes, list[SharedFrame], list[Participant]]:
        """Be done with the pass; return who rode to its end, and what all of them are to get."""
        burst, self.shared_frames = self.shared_frames, []
        self.is_batching = False
        if self._skipping_members and not self.is_cached:
            self._known.groups_with_skippers.discard(self)
            self.dissolve()
        self.tally.frames_out += len(burst) * len(self.batched)
        self.tally.bytes_out += sum([len(each.packet.payload) for each in burst]) * len(self.batched)
        return b"".join([each.frame for each in burst]), burst, list(self.batched)


class FanoutGroupCache:
    """The groups among the subscribers of each topic, as long as nobody comes or goes."""

    def __init__(self, parties: Mapping[str, Participant], traffic: TrafficTotals) -> None:
        self._parties = parties
        self.traffic = traffic
        self.groups_with_skippers: set[FanoutGroup] = set()
        """Those with members that skip events."""
        self._known: dict[int, tuple[tuple[Subscriber, ...], list[FanoutGroup]]] = {}
        self._members = 0

    def clear(self) -> None:
        """Look at everybody anew."""
        for group in self.groups_with_skippers:
            group.dissolve()
        self.groups_with_skippers.clear()
        self._known.clear()
        self._members = 0

    def groups_for(self, subscribers: tuple[Subscriber, ...]) -> list[FanoutGroup]:
        """Return who gets a publication, those together whose frames may be the same."""
        known = self._known.get(id(subscribers))
        is_known = known is not None and known[0] is subscribers
        if known is not None and is_known and known[1]:
            return known[1]
        found = self._find(subscribers)
        if not is_known:
            self._members += len(subscribers)
            if self._members > _MAX_CACHED_MEMBERS:
                self.clear()
                self._members = len(subscribers)
        # The tuple is kept, so that no other can have its address; its groups from the second time on, since many a
        # tuple is made for one publication alone.
        self._known[id(subscribers)] = (subscribers, found if is_known else [])
        for group in found if is_known else ():
            group.is_cached = True
        return found

    def _find(self, subscribers: tuple[Subscriber, ...]) -> list[FanoutGroup]:
        groups: dict[tuple[str, str, bool], list[GroupMember]] = {}
        for subscriber in subscribers:
            party = self._parties.get(subscriber.peer)
            if party is not None:
                key = (party.protocol, subscriber.subscription, subscriber.envelope)
                groups.setdefault(key, []).append((party, party.outbox.put, subscriber))
        tally = self.traffic.protocol_stats
        return [FanoutGroup(name, members, tally(family), self) for (family, name, _), members in groups.items()]
