"""Groups of subscribers that receive the same bytes: their frames are encoded once and joined once."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from fiveways.hub.delivery import Subscriber
from fiveways.hub.traffic_totals import ProtocolStats, TrafficTotals
from fiveways.runtime.missed_events import SharedMissCounter
from fiveways.runtime.outbox import SharedFrame
from fiveways.runtime.participant import Participant

GroupMember: TypeAlias = tuple[Participant, Callable[[SharedFrame], None], Subscriber]
"""A participant, the function that puts a frame into its outbox, and its subscription."""
_MAX_CACHED_MEMBERS: Final = 100_000
"""Members of cached groups, over all topics."""


class FanoutGroup:
    """The subscribers to one topic with the same protocol, subscription name and envelope option.

    Members that would receive identical bytes are batched: during one event loop iteration the group stores each frame
    once for all of them. A member that receives or sends anything else leaves the batch; for the rest of the iteration
    its frames go to its own outbox.
    """

    __slots__ = (
        "_cache",
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

    def __init__(self, name: str, members: list[GroupMember], tally: ProtocolStats, cache: "FanoutGroupCache") -> None:
        self.name = name
        self.size = len(members)
        self.tally = tally
        """The traffic counters of the members' protocol."""
        self.is_batching = False
        self.shared_frames: list[SharedFrame] = []
        """The frames of this event loop iteration, the same for all batched members."""
        self.batched: dict[Participant, GroupMember] = {}
        self.unbatched = members
        self.is_cached = False
        """Whether the group is used for more than one publication."""
        self._cache = cache
        self._skipping_members: dict[Participant, GroupMember] = {}
        """Slow consumers that skip events; `_miss_counter` receives events in their place."""
        self._miss_counter: SharedMissCounter | None = None

    def begin_batch(self) -> None:
        """Batch all members that allow it, at the first event of an event loop iteration."""
        self.is_batching = True
        if self.unbatched:
            unbatched: list[GroupMember] = []
            for member in self.unbatched:
                participant = member[0]
                if participant.is_slow and member[2].when_full == "skip" and participant.can_skip_in_group:
                    self._begin_skipping(member, unbatched)
                elif participant.batch is None and self.name in participant.shareable:
                    participant.batch = self
                    self.batched[participant] = member
                else:
                    unbatched.append(member)
            self.unbatched = unbatched

    def _begin_skipping(self, member: GroupMember, unbatched: list[GroupMember]) -> None:
        participant = member[0]
        if self._miss_counter is None:
            self._miss_counter = SharedMissCounter(self._cache.traffic)
        if not self._skipping_members:
            self._cache.groups_with_skippers.add(self)
            unbatched.append((self._miss_counter, self._miss_counter.outbox.put, member[2]))
        self._skipping_members[participant] = member
        self._miss_counter.add(participant)
        participant.join_skip_group(self)

    def take_missed(self, participant: Participant) -> int:
        """Return the number of events that a participant skipped here since the last call."""
        return 0 if self._miss_counter is None else self._miss_counter.take_missed(participant)

    def resume_delivery(self, participant: Participant) -> None:
        """Deliver events again to a participant that skipped some."""
        self.unbatched.append(self._skipping_members.pop(participant))
        if self._miss_counter is not None:
            self._miss_counter.remove(participant)
        if not self._skipping_members:
            self._cache.groups_with_skippers.discard(self)
            self.unbatched = [member for member in self.unbatched if member[0] is not self._miss_counter]

    def dissolve(self) -> None:
        """End the group: other groups count the events that its skipping members miss from now on."""
        for participant in self._skipping_members:
            participant.leave_skip_group(self)
        self._skipping_members.clear()

    def leave_batch(self, participant: Participant) -> GroupMember:
        """Move the batched frames of a participant to its own outbox, and batch nothing more for it."""
        member = self.batched.pop(participant)
        participant.batch = None
        for shared in self.shared_frames:
            participant.outbox.put(shared)
        self.unbatched.append(member)
        return member

    def finish_batch(self) -> tuple[bytes, list[SharedFrame], list[Participant]]:
        """End the batch of this event loop iteration; return its joined frames, its frames and its participants."""
        frames, self.shared_frames = self.shared_frames, []
        self.is_batching = False
        if self._skipping_members and not self.is_cached:
            self._cache.groups_with_skippers.discard(self)
            self.dissolve()
        self.tally.frames_out += len(frames) * len(self.batched)
        self.tally.bytes_out += sum([len(shared.packet.payload) for shared in frames]) * len(self.batched)
        return b"".join([shared.frame for shared in frames]), frames, list(self.batched)


class FanoutGroupCache:
    """The fan-out groups of each topic, cached until a participant or subscription changes."""

    def __init__(self, participants: Mapping[str, Participant], traffic: TrafficTotals) -> None:
        self._participants = participants
        self.traffic = traffic
        self.groups_with_skippers: set[FanoutGroup] = set()
        """Groups with members that skip events."""
        self._cache: dict[int, tuple[tuple[Subscriber, ...], list[FanoutGroup]]] = {}
        self._members = 0

    def clear(self) -> None:
        """Forget all groups."""
        for group in self.groups_with_skippers:
            group.dissolve()
        self.groups_with_skippers.clear()
        self._cache.clear()
        self._members = 0

    def groups_for(self, subscribers: tuple[Subscriber, ...]) -> list[FanoutGroup]:
        """Return the fan-out groups of a publication's subscribers."""
        cached = self._cache.get(id(subscribers))
        is_known = cached is not None and cached[0] is subscribers
        if cached is not None and is_known and cached[1]:
            return cached[1]
        groups = self._find(subscribers)
        if not is_known:
            self._members += len(subscribers)
            if self._members > _MAX_CACHED_MEMBERS:
                self.clear()
                self._members = len(subscribers)
        # Holding the tuple keeps its address unique. Groups are cached from the second use on, because many tuples
        # serve one publication only.
        self._cache[id(subscribers)] = (subscribers, groups if is_known else [])
        for group in groups if is_known else ():
            group.is_cached = True
        return groups

    def _find(self, subscribers: tuple[Subscriber, ...]) -> list[FanoutGroup]:
        groups: dict[tuple[str, str, bool], list[GroupMember]] = {}
        for subscriber in subscribers:
            participant = self._participants.get(subscriber.peer)
            if participant is not None:
                key = (participant.protocol, subscriber.subscription, subscriber.envelope)
                groups.setdefault(key, []).append((participant, participant.outbox.put, subscriber))
        tally = self.traffic.protocol_stats
        return [FanoutGroup(name, members, tally(protocol), self) for (protocol, name, _), members in groups.items()]
