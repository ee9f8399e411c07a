"""The last value of each topic whose publisher wanted it kept."""

from collections.abc import Iterator

import msgspec

from fiveways.hub.refusal import busy
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import Payload


class Retained(msgspec.Struct, frozen=True, gc=False):
    """One value that is kept."""

    topic: Topic
    body: Payload
    publication: int
    size: int


class _Node:
    """One segment of the topics that have a value."""

    __slots__ = ("below", "value")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.value: Retained | None = None


class RetainedValues:
    """A tree, so that a pattern meets only topics that begin like it."""

    def __init__(self) -> None:
        self._root = _Node()
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def put(self, value: Retained, most: int, most_bytes: int) -> None:
        """Keep a value in place of the one before; a Refusal if there is no room."""
        old = self.get(value.topic)
        count = self._count + (old is None)
        size = self._bytes + value.size - (old.size if old else 0)
        if count > most or size > most_bytes:
            raise busy("too many values are retained")
        node = self._root
        for segment in value.topic:
            node = node.below.setdefault(segment, _Node())
        node.value = value
        self._count, self._bytes = count, size

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
        self._count -= 1
        self._bytes -= value.size
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

    def get(self, topic: Topic) -> Retained | None:
        """Return what is kept for a topic."""
        node = self._root
        for segment in topic:
            below = node.below.get(segment)
            if below is None:
                return None
            node = below
        return node.value
