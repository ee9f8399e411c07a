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

from fiveways.hub.histogram import Histogram
from fiveways.hub.traits import OBSERVER
from fiveways.model.failures import Reason
from fiveways.model.topics import Topic

OTHER: Final = "(other)"
"""All methods, or topics, for which there was no room."""
UNKNOWN: Final = "(unknown)"
"""All methods that nobody offers."""
CALLBACK: Final = "(callback)"
"""All callbacks: their tokens are nobody else's business."""
HUB: Final = "hub"
"""Who is called where the hub answers by itself."""
_OWN_NAMES: Final = frozenset({OTHER, UNKNOWN, CALLBACK})
_BUILT_IN: Final = f"{HUB}."
"""How the names of the hub's own methods begin: they are few, and nobody else offers one, so that all have room."""
MOST_FAILURES: Final = 50
"""The latest of them that are remembered."""
MOST_SLOW: Final = 20
LONGEST_TEXT: Final = 200
"""Characters of what a callee says about a failure."""
_KEPT: Final = 0.75
"""Of the names that there is room for, so many stay when room is made for others."""

Name = TypeVar("Name", bound=Hashable)
Key: TypeAlias = tuple[str, str, str]
"""Method, protocol of the caller, protocol of the callee."""
Bridge: TypeAlias = tuple[str, str]
"""The same without the method."""


class Tally:
    """What has passed in one protocol. Whoever sees something pass counts it here."""

    __slots__ = ("bytes_in", "bytes_out", "deliveries", "frames_in", "frames_out", "publications", "sessions", "sizes")

    def __init__(self) -> None:
        self.sessions = 0
        """Those that are there now."""
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Of frames without what the transport adds to them."""
        self.sizes: list[int] = []
        """Bytes of each frame that has come since somebody looked."""
        self.publications = 0
        self.deliveries = 0

    def fold(self) -> None:
        """Count what has come."""
        self.frames_in += len(self.sizes)
        self.bytes_in += sum(self.sizes)
        self.sizes.clear()

    def heard(self, size: int) -> None:
        """Count a frame that came."""
        self.frames_in += 1
        self.bytes_in += size

    def said(self, size: int) -> None:
        """Count a frame that went."""
        self.frames_out += 1
        self.bytes_out += size


class Cell:
    """The calls of one method, from peers of one protocol, to peers of one protocol."""

    __slots__ = ("at_once", "calls", "failed", "histogram", "waits")

    def __init__(self) -> None:
        self.calls = 0
        self.at_once = 0
        """Of these, those that the hub has answered by itself; no time is known of them."""
        self.waits: list[float] = []
        """Seconds of each call that has ended since somebody looked."""
        self.failed: Counter[Reason] = Counter()
        self.histogram = Histogram()

    def fold(self) -> None:
        """Count what has ended."""
        if self.waits:
            self.histogram.add(self.waits)
            self.waits.clear()

    def results(self) -> int:
        """Return how many calls ended with a result, of those that were folded."""
        return len(self.histogram) + self.at_once - self.failed.total()

    def absorb(self, other: "Cell") -> None:
        """Count what another one has counted, and what it will."""
        other.fold()
        self.add(other)
        other.waits, other.failed = self.waits, self.failed

    def add(self, other: "Cell") -> None:
        """Count what another one has counted, too."""
        self.calls += other.calls
        self.at_once += other.at_once
        if other.failed:
            self.failed.update(other.failed)
        self.histogram.merge(other.histogram)


Table: TypeAlias = dict[str, dict[str, Cell]]
"""By the protocol of the callee, and by method."""


class Passed:
    """The publications of one topic."""

    __slots__ = ("deliveries", "missed", "publications")

    def __init__(self) -> None:
        self.publications = 0
        self.deliveries = 0
        """Events, one for each subscriber, whether it got it or not."""
        self.missed = 0
        """Of these, those that did not go out: the subscriber was too slow, or cannot be told."""


class Failed(NamedTuple):
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


class Slow(NamedTuple):
    """A peer that is too slow for what it wants to hear."""

    peer: str
    """Its public name."""
    protocol: str
    missed: int
    """Events that it did not get."""
    waiting: int
    """Bytes that wait for it."""


def _nobody() -> Iterable[Slow]:
    return ()


class Traffic:
    """All numbers. Whoever counts often has the cell, or the tally, at hand."""

    def __init__(self, max_methods: int, max_topics: int) -> None:
        self.tallies: dict[str, Tally] = {}
        self.cells: dict[Key, Cell] = {}
        self.forgotten: dict[Bridge, Cell] = {}
        """All that was counted by names that have made room for others; calls of theirs that were open end here."""
        self._tables: dict[str, Table] = {}
        """The same by caller, callee and method, one after the other: that is quicker than a key of three."""
        self.topics: dict[Topic, Passed] = {}
        self.other_topics = Passed()
        self.failures: deque[Failed] = deque(maxlen=MOST_FAILURES)
        self.slow: Callable[[], Iterable[Slow]] = _nobody
        """Tells who is too slow; whoever writes to peers knows."""
        self.is_journaled = False
        """The hub writes a journal, in which operations can be looked up."""
        self._names: dict[str, None] = {}
        """Methods that have a name of their own, in the order in which they came."""
        self._turned_away = 0
        self._topics_turned_away = 0
        self.configure(max_methods, max_topics)

    def configure(self, max_methods: int, max_topics: int) -> None:
        """Let these bounds hold from now on."""
        self._max_methods, self._max_topics = max_methods, max_topics

    def tally(self, protocol: str) -> Tally:
        """Return where to count what passes in a protocol."""
        tally = self.tallies.get(protocol)
        if tally is None:
            tally = self.tallies[protocol] = Tally()
        return tally

    # Calls.

    def table(self, caller: str) -> Table:
        """Return the cells of calls that come in one protocol, those that there are now and those that will be."""
        return self._tables.setdefault(caller, {})

    def cell(self, method: str, caller: str, callee: str) -> Cell:
        """Return where to count calls; the caller and the callee are protocols."""
        found = self.cells.get((method, caller, callee))
        if found is not None:
            return found
        if method not in self._names and method not in _OWN_NAMES and not method.startswith(_BUILT_IN):
            if len(self._names) >= self._max_methods:
                self._turned_away += 1
                if self._turned_away < self._max_methods:
                    return self.cell(OTHER, caller, callee)
                self._turned_away = 0
                self._forget_methods()
            self._names[method] = None
        found = self.cells[method, caller, callee] = Cell()
        self.table(caller).setdefault(callee, {})[method] = found
        return found

    def _forget_methods(self) -> None:
        """Make room, where the names turn up often for which there is none: those go that were called least."""
        calls = Counter[str](dict.fromkeys(self._names, 0))
        for (method, _, _), cell in self.cells.items():
            if method in calls:
                calls[method] += cell.calls
        gone = _least(calls, self._max_methods)
        self._names = {name: None for name in self._names if name not in gone}
        for method, caller, callee in [key for key in self.cells if key[0] in gone]:
            del self._tables[caller][callee][method]
            self.forgotten.setdefault((caller, callee), Cell()).absorb(self.cells.pop((method, caller, callee)))

    def answered(self, method: str, caller: str) -> None:
        """Count a call that the hub has answered by itself."""
        cell = self.cell(method, caller, HUB)
        cell.calls += 1
        cell.at_once += 1

    def unanswered(self, counted_as: str, failure: Failed) -> None:
        """Know that the caller could not be given what the hub has answered."""
        self.failed(self.cell(failure.method, counted_as, HUB), failure)

    def refused(self, label: str, failure: Failed) -> None:
        """Count a call that went to nobody, under a label: the name itself may be anything."""
        cell = self.cell(label, failure.caller, HUB)
        cell.calls += 1
        cell.at_once += 1
        self.failed(cell, failure)

    def failed(self, cell: Cell, failure: Failed) -> None:
        """Count a failure, and remember it for a while."""
        cell.failed[failure.reason] += 1
        self.failures.append(failure._replace(text=failure.text[:LONGEST_TEXT]))

    def fold(self) -> None:
        """Count calls that have ended; as long as this is not called, lists grow."""
        for cells in (self.cells, self.forgotten):
            for cell in cells.values():
                if cell.waits:
                    cell.fold()

    def fold_frames(self) -> None:
        """Count frames that have come, likewise."""
        for tally in self.tallies.values():
            if tally.sizes:
                tally.fold()

    # Topics.

    def topic(self, topic: Topic) -> Passed:
        """Return where to count what is published on a topic."""
        found = self.topics.get(topic)
        if found is not None:
            return found
        if len(self.topics) >= self._max_topics:
            self._topics_turned_away += 1
            if self._topics_turned_away < self._max_topics:
                return self.other_topics
            self._topics_turned_away = 0
            for gone in _least({name: each.publications for name, each in self.topics.items()}, self._max_topics):
                del self.topics[gone]
        found = self.topics[topic] = Passed()
        return found

    def missed(self, topic: Topic, subscribers: int = 1) -> None:
        """Count an event that did not go out to so many."""
        self.topic(topic).missed += subscribers

    # Sums.

    def by_method(self, *, observers: bool = True) -> dict[str, Cell]:
        """Return what is known of each method that has a name here, with the calls of observers or without."""
        self.fold()
        cells = self.cells.items()
        return _summed((method, cell) for (method, caller, _), cell in cells if observers or caller != OBSERVER)

    def by_bridge(self) -> dict[Bridge, Cell]:
        """Return what is known of the calls from each protocol to each other one, whatever their methods are called."""
        self.fold()
        named = ((key[1:], cell) for key, cell in self.cells.items())
        return _summed(chain(named, self.forgotten.items()))


def _summed(cells: Iterable[tuple[Name, Cell]]) -> dict[Name, Cell]:
    sums: dict[Name, Cell] = {}
    for name, cell in cells:
        if name not in sums:
            sums[name] = Cell()
        sums[name].add(cell)
    return sums


def _least(uses: Mapping[Name, int], room: int) -> set[Name]:
    """Return the names that were used least, as many as have to go so that there is room for others."""
    return set(nsmallest(max(1, len(uses) - int(room * _KEPT)), uses, key=uses.__getitem__))
