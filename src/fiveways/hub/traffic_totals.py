"""What passed, in numbers: by protocol, by method, by topic, and from one protocol to another.

Names come from peers, so that there is room for so many and no more. Whatever finds none is counted as `(other)`. What
was counted by a name that has made room for another does not go there: it would look as if it happened then.
What is done for each call is as little as can be: its time is put into a list, and lists are counted now and then.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, TypeVar

from fiveways.errors import Reason
from fiveways.hub.histogram import Histogram
from fiveways.hub.traits import OBSERVER
from fiveways.model.topics import Topic

OTHER_LABEL: Final = "(other)"
"""All methods, or topics, for which there was no room."""
UNKNOWN_LABEL: Final = "(unknown)"
"""All methods that nobody offers."""
CALLBACK_LABEL: Final = "(callback)"
"""All callbacks: their tokens are nobody else's business."""
HUB_LABEL: Final = "hub"
"""Who is called where the hub answers by itself."""
_RESERVED_LABELS: Final = frozenset({OTHER_LABEL, UNKNOWN_LABEL, CALLBACK_LABEL})
_BUILT_IN_PREFIX: Final = f"{HUB_LABEL}."
"""How the names of the hub's own methods begin: they are few, and nobody else offers one, so that all have room."""
MAX_RECENT_FAILURES: Final = 50
"""The latest of them that are remembered."""
MAX_SLOW_CONSUMERS: Final = 20
MAX_FAILURE_TEXT: Final = 200
"""Characters of what a callee says about a failure."""
_SHARE_AFTER_EVICTION: Final = 0.75
"""Of the names that there is room for, so many stay when room is made for others."""

Name = TypeVar("Name", bound=Hashable)
CallKey: TypeAlias = tuple[str, str, str]
"""Method, protocol of the caller, protocol of the callee."""
ProtocolPair: TypeAlias = tuple[str, str]
"""The same without the method."""


class ProtocolStats:
    """What has passed in one protocol. Whoever sees something pass counts it here."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "deliveries",
        "frames_in",
        "frames_out",
        "publications",
        "sessions",
        "unaggregated_sizes",
    )

    def __init__(self) -> None:
        self.sessions = 0
        """Those that are there now."""
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Of frames without what the transport adds to them."""
        self.unaggregated_sizes: list[int] = []
        """Bytes of each frame that has come since somebody looked."""
        self.publications = 0
        self.deliveries = 0

    def aggregate(self) -> None:
        """Count what has come."""
        self.frames_in += len(self.unaggregated_sizes)
        self.bytes_in += sum(self.unaggregated_sizes)
        self.unaggregated_sizes.clear()

    def count_received(self, size: int) -> None:
        """Count a frame that came."""
        self.frames_in += 1
        self.bytes_in += size

    def count_sent(self, size: int) -> None:
        """Count a frame that went."""
        self.frames_out += 1
        self.bytes_out += size


class CallStats:
    """The calls of one method, from peers of one protocol, to peers of one protocol."""

    __slots__ = ("answered_by_hub", "calls", "durations", "failures", "histogram")

    def __init__(self) -> None:
        self.calls = 0
        self.answered_by_hub = 0
        """Of these, those that the hub has answered by itself; no time is known of them."""
        self.durations: list[float] = []
        """Seconds of each call that has ended since somebody looked."""
        self.failures: Counter[Reason] = Counter()
        self.histogram = Histogram()

    def aggregate(self) -> None:
        """Count what has ended."""
        if self.durations:
            self.histogram.add(self.durations)
            self.durations.clear()

    def results(self) -> int:
        """Return how many calls ended with a result, of those that were folded."""
        return len(self.histogram) + self.answered_by_hub - self.failures.total()

    def absorb(self, other: "CallStats") -> None:
        """Count what another one has counted, and what it will."""
        other.aggregate()
        self.add(other)
        other.durations, other.failures = self.durations, self.failures

    def add(self, other: "CallStats") -> None:
        """Count what another one has counted, too."""
        self.calls += other.calls
        self.answered_by_hub += other.answered_by_hub
        if other.failures:
            self.failures.update(other.failures)
        self.histogram.merge(other.histogram)


CallStatsTable: TypeAlias = dict[str, dict[str, CallStats]]
"""By the protocol of the callee, and by method."""


class TopicStats:
    """The publications of one topic."""

    __slots__ = ("deliveries", "missed", "publications")

    def __init__(self) -> None:
        self.publications = 0
        self.deliveries = 0
        """Events, one for each subscriber, whether it got it or not."""
        self.missed = 0
        """Of these, those that did not go out: the subscriber was too slow, or cannot be told."""


class FailureRecord(NamedTuple):
    """A call that failed."""

    at: float
    """By the hub's clock."""
    method: str
    caller: str
    """Its protocol, as of the callee."""
    callee: str
    reason: Reason
    text: str
    caller_peer: str = ""
    """Its public name, as of the callee; empty if there is none."""
    callee_peer: str = ""
    op: str = ""
    """The operation under which the journal has it; empty if it was not routed."""
    seconds: float = 0.0
    """From the request to the failure."""
    trace: str = ""
    """The trace that it belongs to, if it is recorded as a span."""


class SlowConsumer(NamedTuple):
    """A peer that is too slow for what it wants to hear."""

    peer: str
    """Its public name."""
    protocol: str
    missed: int
    """Events that it did not get."""
    waiting_bytes: int
    """Bytes that wait for it."""


def _no_slow_consumers() -> Iterable[SlowConsumer]:
    return ()


class TrafficTotals:
    """All numbers. Whoever counts often has the cell, or the tally, at hand."""

    def __init__(self, max_methods: int, max_topics: int) -> None:
        self.protocols: dict[str, ProtocolStats] = {}
        self.by_key: dict[CallKey, CallStats] = {}
        self.evicted: dict[ProtocolPair, CallStats] = {}
        """All that was counted by names that have made room for others; calls of theirs that were open end here."""
        self._tables: dict[str, CallStatsTable] = {}
        """The same by caller, callee and method, one after the other: that is quicker than a key of three."""
        self.topics: dict[Topic, TopicStats] = {}
        self.other_topics = TopicStats()
        self.failures: deque[FailureRecord] = deque(maxlen=MAX_RECENT_FAILURES)
        self.slow_consumers: Callable[[], Iterable[SlowConsumer]] = _no_slow_consumers
        """Tells who is too slow; whoever writes to peers knows."""
        self.is_journaled = False
        """The hub writes a journal, in which operations can be looked up."""
        self._method_names: dict[str, None] = {}
        """Methods that have a name of their own, in the order in which they came."""
        self._uncounted_methods = 0
        self._uncounted_topics = 0
        self.configure(max_methods, max_topics)

    def configure(self, max_methods: int, max_topics: int) -> None:
        """Let these bounds hold from now on."""
        self._max_methods, self._max_topics = max_methods, max_topics

    def protocol_stats(self, protocol: str) -> ProtocolStats:
        """Return where to count what passes in a protocol."""
        stats = self.protocols.get(protocol)
        if stats is None:
            stats = self.protocols[protocol] = ProtocolStats()
        return stats

    # Calls.

    def caller_table(self, caller: str) -> CallStatsTable:
        """Return the cells of calls that come in one protocol, those that there are now and those that will be."""
        return self._tables.setdefault(caller, {})

    def call_stats(self, method: str, caller: str, callee: str) -> CallStats:
        """Return where to count calls; the caller and the callee are protocols."""
        stats = self.by_key.get((method, caller, callee))
        if stats is not None:
            return stats
        if (
            method not in self._method_names
            and method not in _RESERVED_LABELS
            and not method.startswith(_BUILT_IN_PREFIX)
        ):
            if len(self._method_names) >= self._max_methods:
                self._uncounted_methods += 1
                if self._uncounted_methods < self._max_methods:
                    return self.call_stats(OTHER_LABEL, caller, callee)
                self._uncounted_methods = 0
                self._evict_methods()
            self._method_names[method] = None
        stats = self.by_key[method, caller, callee] = CallStats()
        self.caller_table(caller).setdefault(callee, {})[method] = stats
        return stats

    def _evict_methods(self) -> None:
        """Make room, where the names turn up often for which there is none: those go that were called least."""
        calls = Counter[str](dict.fromkeys(self._method_names, 0))
        for (method, _, _), stats in self.by_key.items():
            if method in calls:
                calls[method] += stats.calls
        evicted = _least_used(calls, self._max_methods)
        self._method_names = {name: None for name in self._method_names if name not in evicted}
        for method, caller, callee in [key for key in self.by_key if key[0] in evicted]:
            del self._tables[caller][callee][method]
            self.evicted.setdefault((caller, callee), CallStats()).absorb(self.by_key.pop((method, caller, callee)))

    def count_answered(self, method: str, caller: str) -> None:
        """Count a call that the hub has answered by itself."""
        stats = self.call_stats(method, caller, HUB_LABEL)
        stats.calls += 1
        stats.answered_by_hub += 1

    def count_undeliverable(self, caller: str, failure: FailureRecord) -> None:
        """Know that the caller could not be given what the hub has answered."""
        self.count_failure(self.call_stats(failure.method, caller, HUB_LABEL), failure)

    def count_refused(self, label: str, failure: FailureRecord) -> None:
        """Count a call that went to nobody, under a label: the name itself may be anything."""
        stats = self.call_stats(label, failure.caller, HUB_LABEL)
        stats.calls += 1
        stats.answered_by_hub += 1
        self.count_failure(stats, failure)

    def count_failure(self, stats: CallStats, failure: FailureRecord) -> None:
        """Count a failure, and remember it for a while."""
        stats.failures[failure.reason] += 1
        self.failures.append(failure._replace(text=failure.text[:MAX_FAILURE_TEXT]))

    def aggregate_calls(self) -> None:
        """Count calls that have ended; as long as this is not called, lists grow."""
        for cells in (self.by_key, self.evicted):
            for stats in cells.values():
                if stats.durations:
                    stats.aggregate()

    def aggregate_frames(self) -> None:
        """Count frames that have come, likewise."""
        for stats in self.protocols.values():
            if stats.unaggregated_sizes:
                stats.aggregate()

    # Topics.

    def topic_stats(self, topic: Topic) -> TopicStats:
        """Return where to count what is published on a topic."""
        stats = self.topics.get(topic)
        if stats is not None:
            return stats
        if len(self.topics) >= self._max_topics:
            self._uncounted_topics += 1
            if self._uncounted_topics < self._max_topics:
                return self.other_topics
            self._uncounted_topics = 0
            for evicted in _least_used(
                {name: topic_stats.publications for name, topic_stats in self.topics.items()}, self._max_topics
            ):
                del self.topics[evicted]
        stats = self.topics[topic] = TopicStats()
        return stats

    def count_missed(self, topic: Topic, subscribers: int = 1) -> None:
        """Count an event that did not go out to so many."""
        self.topic_stats(topic).missed += subscribers

    # Sums.

    def by_method(self, *, observers: bool = True) -> dict[str, CallStats]:
        """Return what is known of each method that has a name here, with the calls of observers or without."""
        self.aggregate_calls()
        cells = self.by_key.items()
        return _sum_by_name((method, stats) for (method, caller, _), stats in cells if observers or caller != OBSERVER)

    def by_protocol_pair(self) -> dict[ProtocolPair, CallStats]:
        """Return what is known of the calls from each protocol to each other one, whatever their methods are called."""
        self.aggregate_calls()
        named = ((key[1:], stats) for key, stats in self.by_key.items())
        return _sum_by_name(chain(named, self.evicted.items()))


def _sum_by_name(cells: Iterable[tuple[Name, CallStats]]) -> dict[Name, CallStats]:
    sums: dict[Name, CallStats] = {}
    for name, stats in cells:
        if name not in sums:
            sums[name] = CallStats()
        sums[name].add(stats)
    return sums


def _least_used(uses: Mapping[Name, int], room: int) -> set[Name]:
    """Return the names that were used least, as many as have to go so that there is room for others."""
    return set(nsmallest(max(1, len(uses) - int(room * _SHARE_AFTER_EVICTION)), uses, key=uses.__getitem__))
