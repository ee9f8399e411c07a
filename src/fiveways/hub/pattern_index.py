"""Index of wildcard subscriptions: one hash lookup for each shape of pattern, however many patterns there are.

The shape of a pattern is its levels without their literal text: which levels are literal, and for a partial wildcard
such as `sens*` the lengths of the text before and behind the `*`. All patterns of one shape are in one table. The key
of a topic in it consists of those segments, and parts of segments, that are literal in the patterns.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Final, TypeAlias

from fiveways.hub.delivery import Subscriber
from fiveways.hub.shares import Owner, Pool
from fiveways.model.topics import Pattern, SegmentPattern, Topic, segment_matches

Subscribers: TypeAlias = tuple[Subscriber, ...]
PatternKey: TypeAlias = tuple[str, ...]
LevelShape: TypeAlias = int | tuple[int, int] | SegmentPattern
"""The contribution of one level to a shape. A level with several `*` contributes its text, because it has no key."""

_LITERAL: Final = 0
_ANY: Final = 1
_NOT_EMPTY: Final = 2
_STAR: Final = ("", "")
_PIECES_AROUND_STAR: Final = 2
"""The pieces of a level around one `*`."""


class SubscriberSet:
    """The subscribers of one pattern or of one topic."""

    __slots__ = ("_all", "members")

    def __init__(self) -> None:
        self.members: dict[Subscriber, None] = {}
        self._all: Subscribers | None = None

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber."""
        self.members[subscriber] = None
        self._all = None

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        del self.members[subscriber]
        self._all = None

    def snapshot(self) -> Subscribers:
        """Return all subscribers: the same tuple until the set changes."""
        if self._all is None:
            self._all = tuple(self.members)
        return self._all


class PatternShape:
    """All patterns of one shape."""

    __slots__ = (
        "_literal_segments",
        "_not_empty",
        "_partial",
        "_with_several_stars",
        "begins_wild",
        "buckets",
        "length",
        "owners",
        "rest",
        "steps",
    )

    def __init__(self, pattern: Pattern) -> None:
        levels = pattern.levels
        self.length = len(levels)
        self.rest = pattern.matches_deeper
        self.begins_wild = pattern.begins_with_wildcard
        self._literal_segments = _segment_picker([index for index, level in enumerate(levels) if len(level) == 1])
        self._not_empty = tuple(index for index, level in enumerate(levels) if level == _STAR)
        partial = [(index, level) for index, level in enumerate(levels) if len(level) > 1 and level != _STAR]
        self._partial = tuple(
            (index, *map(len, level)) for index, level in partial if len(level) == _PIECES_AROUND_STAR
        )
        self._with_several_stars = tuple((index, level) for index, level in partial if len(level) > _PIECES_AROUND_STAR)
        self.steps = steps_of(pattern)
        self.buckets: dict[PatternKey, SubscriberSet] = {}
        self.owners: dict[Owner, int] = {}
        """Number of subscriptions by owner; the first owner is charged for the steps."""

    def find(self, topic: Topic) -> SubscriberSet | None:
        """Return the subscribers of the pattern that matches a topic; at most one pattern of a shape does."""
        for index in self._not_empty:
            if not topic[index]:
                return None
        key = self._literal_segments(topic)
        for index, before, after in self._partial:
            segment = topic[index]
            end = len(segment) - after
            if end <= before:
                return None
            key += segment[:before], segment[end:]
        for index, level in self._with_several_stars:
            if not segment_matches(level, topic[index]):
                return None
        return self.buckets.get(key)

    def key(self, pattern: Pattern) -> PatternKey:
        """Return the key of a pattern of this shape."""
        levels = pattern.levels
        literals = [level[0] for level in levels if len(level) == 1]
        return tuple(literals) + tuple(text for index, _, _ in self._partial for text in levels[index])


class PatternIndex:
    """Wildcard subscriptions by shape."""

    def __init__(self, steps: Pool) -> None:
        """Create an index; `steps` bounds the work of one `match`."""
        self._steps = steps
        self._shapes: dict[tuple[LevelShape | bool, ...], PatternShape] = {}
        self._by_length: dict[int, list[PatternShape]] = {}
        """By number of levels."""
        self._open_ended: list[PatternShape] = []
        """Shapes that end in `#`."""

    def __len__(self) -> int:
        return len(self._shapes)

    def excess(self, pattern: Pattern, owner: Owner) -> str:
        """Return the limit that a new pattern would exceed, as the end of a sentence; empty if there is room."""
        return "" if _shape_of(pattern) in self._shapes else self._steps.excess(owner, steps_of(pattern))

    def add(self, pattern: Pattern, subscriber: Subscriber, owner: Owner) -> None:
        """Add a subscription, whether or not there is room."""
        shape_key = _shape_of(pattern)
        shape = self._shapes.get(shape_key)
        if shape is None:
            shape = self._shapes[shape_key] = PatternShape(pattern)
            (self._open_ended if shape.rest else self._by_length.setdefault(shape.length, [])).append(shape)
            self._steps.acquire(owner, shape.steps)
        shape.owners[owner] = shape.owners.get(owner, 0) + 1
        shape.buckets.setdefault(shape.key(pattern), SubscriberSet()).add(subscriber)

    def remove(self, pattern: Pattern, subscriber: Subscriber, owner: Owner) -> None:
        """Remove a subscription; the arguments are those of `add`."""
        shape_key = _shape_of(pattern)
        shape = self._shapes[shape_key]
        key = shape.key(pattern)
        bucket = shape.buckets[key]
        bucket.remove(subscriber)
        if not bucket.members:
            del shape.buckets[key]
        charged = next(iter(shape.owners))
        shape.owners[owner] -= 1
        if shape.owners[owner]:
            return
        del shape.owners[owner]
        if owner == charged:
            self._steps.release(owner, shape.steps)
            if shape.owners:
                self._steps.acquire(next(iter(shape.owners)), shape.steps)
        if not shape.owners:
            del self._shapes[shape_key]
            if shape.rest:
                self._open_ended.remove(shape)
            else:
                self._by_length[shape.length].remove(shape)
                if not self._by_length[shape.length]:
                    del self._by_length[shape.length]

    def match(self, topic: Topic) -> list[SubscriberSet]:
        """Return the subscribers of each matching pattern."""
        is_system, length = topic[0][:1] == "$", len(topic)
        shapes = [*self._by_length.get(length, ()), *(shape for shape in self._open_ended if shape.length <= length)]
        if is_system:
            shapes = [shape for shape in shapes if not shape.begins_wild]
        return [bucket for shape in shapes if (bucket := shape.find(topic)) is not None]


def steps_of(pattern: Pattern) -> int:
    """Return the lookups and comparisons that one topic costs for all patterns of the same shape."""
    return 1 + sum(len(level) - 1 for level in pattern.levels if any(level))


def _shape_of(pattern: Pattern) -> tuple[LevelShape | bool, ...]:
    return (pattern.matches_deeper, *map(_level_shape, pattern.levels))


def _level_shape(level: SegmentPattern) -> LevelShape:
    match level:
        case (_,):
            return _LITERAL
        case ():
            return _ANY
        case ("", ""):
            return _NOT_EMPTY
        case (before, after):
            return len(before), len(after)
        case _:
            return level


def _segment_picker(indexes: list[int]) -> Callable[[Topic], Topic]:
    """Return a function that picks these segments of a topic; `itemgetter` runs in C and is the fastest way."""
    match indexes:
        case []:
            return itemgetter(slice(0))
        case [index]:
            return itemgetter(slice(index, index + 1))
        case _:
            return itemgetter(*indexes)
