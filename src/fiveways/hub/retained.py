"""Retained values: the last value of each topic that was published with `retain`."""

from collections.abc import Iterator
from sys import getsizeof
from typing import Final

import msgspec

from fiveways.hub.refusal import overloaded
from fiveways.hub.settings import DEFAULTS, HubSettings
from fiveways.hub.shares import HUB_OWNER, Owner, SizedPool
from fiveways.hub.sizes import memory_of
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.payload import Payload

_VALUE_BYTES: Final = 300
"""The objects of a value, without its topic and its body."""
_SEGMENT_BYTES: Final = 320
"""A node of the tree, as if no other topic shared it, with its entry in the parent node."""


class RetainedValue(msgspec.Struct, frozen=True, gc=False):
    """One retained value and its size for the limits."""

    topic: Topic
    body: Payload
    publication: int
    size: int
    owner: Owner = HUB_OWNER
    """The publisher's owner."""
    last_event: int = 0
    """The last event on the topic that did not replace the value, if a delivery of retained values was active then."""


class _Node:
    """One segment of the topics that have a value."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.value: RetainedValue | None = None


class RetainedValues:
    """A tree of values: a pattern visits only topics with the same first segments. It also enforces the limits."""

    def __init__(self, settings: HubSettings = DEFAULTS) -> None:
        self._root = _Node()
        self._pool = SizedPool(settings.max_retained, settings.max_retained_bytes, settings.shares)

    def __len__(self) -> int:
        return self._pool.number

    @property
    def size(self) -> int:
        """Estimated bytes of all values."""
        return self._pool.size

    def configure(self, settings: HubSettings) -> None:
        """Set the limits; values beyond them stay."""
        self._pool.configure(settings.max_retained, settings.max_retained_bytes, settings.shares)

    def check_room(self, value: RetainedValue) -> None:
        """Raise Refusal if there is no room for a value that replaces the previous one."""
        old = self.get(value.topic)
        if old is not None:
            self._pool.release(old.owner, old.size)
        excess = self._pool.excess(value.owner, value.size)
        if old is not None:
            self._pool.acquire(old.owner, old.size)
        if excess:
            raise overloaded(f"too many values are retained: {excess}")

    def store(self, value: RetainedValue) -> None:
        """Replace the value of a topic, whether or not there is room."""
        node = self._root
        for segment in value.topic:
            if node.children is None:
                node.children = {}
            child = node.children.get(segment)
            if child is None:
                child = node.children[segment] = _Node()
            node = child
        if (old := node.value) is not None:
            self._pool.release(old.owner, old.size)
        node.value = value
        self._pool.acquire(value.owner, value.size)

    def remove(self, topic: Topic) -> None:
        """Delete the value of a topic, if there is one."""
        path = [self._root]
        for segment in topic:
            node = path[-1].children.get(segment) if path[-1].children else None
            if node is None:
                return
            path.append(node)
        if (value := path[-1].value) is None:
            return
        path[-1].value = None
        self._pool.release(value.owner, value.size)
        for segment in reversed(topic):
            node = path.pop()
            if node.children or node.value is not None:
                break
            siblings = path[-1].children
            if siblings is not None:
                del siblings[segment]

    def note_event(self, value: RetainedValue, publication: int) -> None:
        """Note the number of an event on the topic that does not replace the value."""
        node = self._root
        for segment in value.topic:
            node = (node.children or {})[segment]
        node.value = msgspec.structs.replace(value, last_event=publication)

    def matching(self, pattern: Pattern, steps: int) -> Iterator[list[RetainedValue]]:
        """Yield the matching values in lists, each after a visit of at most `steps` nodes.

        Values may change between two lists; values that are new since the first list may be missing.
        """
        levels, matches, steps_left = pattern.levels, list[RetainedValue](), steps
        stack: list[tuple[Iterator[_Node], int]] = [(iter((self._root,)), 0)]
        while stack:
            nodes, depth = stack[-1]
            node = next(nodes, None)
            if node is None:
                stack.pop()
                continue
            if steps_left == 0:
                yield matches
                matches, steps_left = [], steps
            steps_left -= 1
            if depth == len(levels) and node.value is not None and pattern.matches(node.value.topic):
                matches.append(node.value)
            if not node.children:
                continue
            if depth == len(levels):
                if pattern.matches_deeper:
                    stack.append((iter(list(node.children.values())), depth))
            elif len(levels[depth]) == 1:
                child = node.children.get(levels[depth][0])
                if child is not None:
                    stack.append((iter((child,)), depth + 1))
            else:
                stack.append((iter(list(node.children.values())), depth + 1))
        yield matches

    def get(self, topic: Topic) -> RetainedValue | None:
        """Return the retained value of a topic."""
        node = self._root
        for segment in topic:
            child = node.children.get(segment) if node.children else None
            if child is None:
                return None
            node = child
        return node.value

    def __iter__(self) -> Iterator[RetainedValue]:
        """Yield all values."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                yield node.value
            nodes += (node.children or {}).values()


def retained_memory(topic: Topic, body: Payload) -> int:
    """Return the approximate memory of a value: slightly more than CPython allocates, never less."""
    return _VALUE_BYTES + len(topic) * _SEGMENT_BYTES + sum(map(getsizeof, topic)) + memory_of(body)
