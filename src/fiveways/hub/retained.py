"""The last value of each topic whose publisher wanted it kept."""

from collections.abc import Iterator

import msgspec

from fiveways.hub.refusal import busy
from fiveways.hub.settings import DEFAULTS, HubSettings
from fiveways.hub.shares import HUB, Owner, SizedPool
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import Payload


class Retained(msgspec.Struct, frozen=True, gc=False):
    """One value that is kept."""

    topic: Topic
    body: Payload
    publication: int
    size: int
    owner: Owner = HUB
    """The publisher, as the limits know it."""


class _Node:
    """One segment of the topics that have a value."""

    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.value: Retained | None = None


class RetainedValues:
    """A tree, so that a pattern meets only topics that begin like it."""

    def __init__(self, settings: HubSettings = DEFAULTS) -> None:
        self._root = _Node()
        self._pool = SizedPool(settings.max_retained, settings.max_retained_bytes, settings.shares)

    def __len__(self) -> int:
        return self._pool.number

    def configure(self, settings: HubSettings) -> None:
        """Let these bounds hold from now on."""
        self._pool.configure(settings.max_retained, settings.max_retained_bytes, settings.shares)

    def check_room(self, value: Retained) -> None:
        """Raise a Refusal if there is no room for a value in place of the one before."""
        old, pool = self.get(value.topic), self._pool
        if old is not None:
            pool.release(old.owner, old.size)
        why = pool.excess(value.owner, value.size)
        if old is not None:
            pool.acquire(old.owner, old.size)
        if why:
            raise busy(f"too many values are retained: {why}")

    def put(self, value: Retained) -> None:
        """Keep a value in place of the one before, whether or not there is room."""
        node = self._root
        for segment in value.topic:
            node = node.below.setdefault(segment, _Node())
        if (old := node.value) is not None:
            self._pool.release(old.owner, old.size)
        node.value = value
        self._pool.acquire(value.owner, value.size)

    def remove(self, topic: Topic) -> None:
        """Forget the value of a topic, if there is one."""
        path = [self._root]
        for segment in topic:
            node = path[-1].below.get(segment)
            if node is None:
                return
            path.append(node)
        if (value := path[-1].value) is None:
            return
        path[-1].value = None
        self._pool.release(value.owner, value.size)
        for segment in reversed(topic):
            node = path.pop()
            if node.below or node.value is not None:
                break
            del path[-1].below[segment]

    def matching(self, pattern: Pattern) -> Iterator[Retained]:
        """Give all values whose topics match."""
        nodes = [self._root]
        for level in pattern.levels:
            if len(level) == 1:
                nodes = [below for node in nodes if (below := node.below.get(level[0])) is not None]
            else:
                nodes = [below for node in nodes for below in node.below.values()]
        while nodes:
            node = nodes.pop()
            if node.value is not None and pattern.matches(node.value.topic):
                yield node.value
            if pattern.rest:
                nodes += node.below.values()

    def __iter__(self) -> Iterator[Retained]:
        """Yield all values."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                yield node.value
            nodes += node.below.values()

    def get(self, topic: Topic) -> Retained | None:
        """Return what is kept for a topic."""
        node = self._root
        for segment in topic:
            below = node.below.get(segment)
            if below is None:
                return None
            node = below
        return node.value
