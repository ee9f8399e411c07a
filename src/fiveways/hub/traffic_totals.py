"""Traffic totals by protocol, by method, by topic, and by pair of protocols.

Names come from peers, so their number is limited; all further names are counted as `(other)`. Counts of an evicted
name are not added to `(other)`, where they would look like new traffic.
The work for each call is minimal: its duration is appended to a list, and the lists are aggregated from time to time.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias, TypeVar

from fiveways.errors import Reason
from fiveways.hub.histogram import Histogram
from fiveways.hub.traits import OBSERVER
from fiveways.model.topics import Topic

if TYPE_CHECKING:
    from fiveways.hub.session import Session

OTHER_LABEL: Final = "(other)"
"""All methods, or topics, beyond the limit."""
UNKNOWN_LABEL: Final = "(unknown)"
"""All unknown methods."""
CALLBACK_LABEL: Final = "(callback)"
"""All callbacks: their tokens are secrets."""
HUB_LABEL: Final = "hub"
"""The callee of calls that the hub answers itself."""
_RESERVED_LABELS: Final = frozenset({OTHER_LABEL, UNKNOWN_LABEL, CALLBACK_LABEL})
_BUILT_IN_PREFIX: Final = f"{HUB_LABEL}."
"""Prefix of the built-in methods: they are few and reserved for the hub, so each has counters of its own."""
MAX_RECENT_FAILURES: Final = 50
"""Number of the latest failures that are remembered."""
MAX_SLOW_CONSUMERS: Final = 20
MAX_FAILURE_TEXT: Final = 200
"""Characters of a failure text."""
_SHARE_AFTER_EVICTION: Final = 0.75
"""The part of the names that stays after an eviction."""

Name = TypeVar("Name", bound=Hashable)
CallKey: TypeAlias = tuple[str, str, str]
"""Method, protocol of the caller, protocol of the callee."""
ProtocolPair: TypeAlias = tuple[str, str]
"""Protocols of caller and callee."""


class ProtocolStats:
    """Traffic of one protocol."""

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
        """Current sessions."""
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Payload bytes, excluding transport framing."""
        self.unaggregated_sizes: list[int] = []
        """Bytes of each frame received since the last aggregation."""
        self.publications = 0
        self.deliveries = 0

    def aggregate(self) -> None:
        """Add the received frames to the totals."""
        self.frames_in += len(self.unaggregated_sizes)
        self.bytes_in += sum(self.unaggregated_sizes)
        self.unaggregated_sizes.clear()

    def count_received(self, size: int) -> None:
        """Count a received frame."""
        self.frames_in += 1
        self.bytes_in += size

    def count_sent(self, size: int) -> None:
        """Count a sent frame."""
        self.frames_out += 1
        self.bytes_out += size


class CallStats:
    """The calls of one method between two protocols."""

    __slots__ = ("answered_by_hub", "calls", "durations", "failures", "histogram")

    def __init__(self) -> None:
        self.calls = 0
        self.answered_by_hub = 0
        """Calls that the hub answered itself; they have no durations."""
        self.durations: list[float] = []
        """Seconds of each call that ended since the last aggregation."""
        self.failures: Counter[Reason] = Counter()
        self.histogram = Histogram()

    def aggregate(self) -> None:
        """Add the ended calls to the histogram."""
        if self.durations:
            self.histogram.add(self.durations)
            self.durations.clear()

    def results(self) -> int:
        """Return the number of aggregated calls with a result."""
        return len(self.histogram) + self.answered_by_hub - self.failures.total()

    def absorb(self, other: "CallStats") -> None:
        """Add the counts of another object, and share its counters of calls that are still pending."""
        other.aggregate()
        self.add(other)
        other.durations, other.failures = self.durations, self.failures

    def add(self, other: "CallStats") -> None:
        """Add the counts of another object."""
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
        """Events, one for each subscriber, delivered or not."""
        self.missed = 0
        """Events that were not sent, to a slow consumer or to a protocol that cannot represent them."""


class FailureRecord(NamedTuple):
    """A failed call."""

    at: float
    """By the hub's clock."""
    method: str
    caller: str
    """Protocol of the caller."""
    callee: str
    reason: Reason
    text: str
    caller_peer: str = ""
    """Public name of the caller; empty if there is none."""
    callee_peer: str = ""
    op: str = ""
    """The operation in the journal; empty if the call was not routed."""
    seconds: float = 0.0
    """From the request to the failure."""
    trace: str = ""
    """The trace id, if the call is recorded as a span."""

    @classmethod
    def at_hub(cls, at: float, method: str, caller: "Session", reason: Reason, text: str) -> Self:
        """Return the record of a call that failed in the hub itself."""
        return cls(at, method, caller.traits.protocol, HUB_LABEL, reason, text, caller.name)


class SlowConsumer(NamedTuple):
    """A subscriber that reads more slowly than the hub sends."""

    peer: str
    """Its public name."""
    protocol: str
    missed: int
    """Number of events that it did not get."""
    waiting_bytes: int
    """Bytes in its outbox."""


def _no_slow_consumers() -> Iterable[SlowConsumer]:
    return ()


class TrafficTotals:
    """All counters. A frequent user keeps a reference to the object that it counts in."""

    def __init__(self, max_methods: int, max_topics: int) -> None:
        self.protocols: dict[str, ProtocolStats] = {}
        self.by_key: dict[CallKey, CallStats] = {}
        self.evicted: dict[ProtocolPair, CallStats] = {}
        """Counts of evicted names; their calls that were pending at the eviction end here too."""
        self._tables: dict[str, CallStatsTable] = {}
        """The same objects by caller, callee and method in nested tables, which are faster than a key of three."""
        self.topics: dict[Topic, TopicStats] = {}
        self.other_topics = TopicStats()
        self.failures: deque[FailureRecord] = deque(maxlen=MAX_RECENT_FAILURES)
        self.slow_consumers: Callable[[], Iterable[SlowConsumer]] = _no_slow_consumers
        """Returns the slow consumers; set by the runtime."""
        self.is_journaled = False
        """The hub writes a journal, so operations can be looked up."""
        self._method_names: dict[str, None] = {}
        """Methods with counters of their own, in the order of their first call."""
        self._uncounted_methods = 0
        self._uncounted_topics = 0
        self.configure(max_methods, max_topics)

    def configure(self, max_methods: int, max_topics: int) -> None:
        """Set the numbers of methods and topics with counters of their own."""
        self._max_methods, self._max_topics = max_methods, max_topics

    def protocol_stats(self, protocol: str) -> ProtocolStats:
        """Return the counters of a protocol."""
        stats = self.protocols.get(protocol)
        if stats is None:
            stats = self.protocols[protocol] = ProtocolStats()
        return stats

    # Calls.

    def caller_table(self, caller: str) -> CallStatsTable:
        """Return the live table of calls from one protocol."""
        return self._tables.setdefault(caller, {})

    def call_stats(self, method: str, caller: str, callee: str) -> CallStats:
        """Return the counters of a method's calls; caller and callee are protocols."""
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
        """Evict the least called methods when calls without counters of their own are frequent."""
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
        """Count a call that the hub answered itself."""
        stats = self.call_stats(method, caller, HUB_LABEL)
        stats.calls += 1
        stats.answered_by_hub += 1

    def count_undeliverable(self, caller: str, failure: FailureRecord) -> None:
        """Count a failure to deliver a response of the hub itself."""
        self.count_failure(self.call_stats(failure.method, caller, HUB_LABEL), failure)

    def count_refused(self, label: str, failure: FailureRecord) -> None:
        """Count a refused call under a label, because its name may be anything."""
        stats = self.call_stats(label, failure.caller, HUB_LABEL)
        stats.calls += 1
        stats.answered_by_hub += 1
        self.count_failure(stats, failure)

    def count_failure(self, stats: CallStats, failure: FailureRecord) -> None:
        """Count a failure, and remember it among the latest ones."""
        stats.failures[failure.reason] += 1
        self.failures.append(failure._replace(text=failure.text[:MAX_FAILURE_TEXT]))

    def aggregate_calls(self) -> None:
        """Aggregate the durations of ended calls; the lists grow until the next call."""
        for cells in (self.by_key, self.evicted):
            for stats in cells.values():
                if stats.durations:
                    stats.aggregate()

    def aggregate_frames(self) -> None:
        """Aggregate received frames; the lists grow until the next call."""
        for stats in self.protocols.values():
            if stats.unaggregated_sizes:
                stats.aggregate()

    # Topics.

    def topic_stats(self, topic: Topic) -> TopicStats:
        """Return the counters of a topic."""
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
        """Count an event that this number of subscribers did not get."""
        self.topic_stats(topic).missed += subscribers

    # Sums.

    def by_method(self, *, observers: bool = True) -> dict[str, CallStats]:
        """Return the counters of each method, with the calls of observers or without."""
        self.aggregate_calls()
        cells = self.by_key.items()
        return _sum_by_name((method, stats) for (method, caller, _), stats in cells if observers or caller != OBSERVER)

    def by_protocol_pair(self) -> dict[ProtocolPair, CallStats]:
        """Return the counters of all calls by protocol pair."""
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
    """Return the least used names, as many as must be evicted."""
    return set(nsmallest(max(1, len(uses) - int(room * _SHARE_AFTER_EVICTION)), uses, key=uses.__getitem__))
