"""Who has subscribed to what: literal topics by themselves, patterns in a tree, and what was found before."""

from typing import Final, TypeAlias

import msgspec

from fiveways.hub.delivery import Subscriber
from fiveways.hub.policy import Glob, written
from fiveways.hub.refusal import bad, busy
from fiveways.model.topics import Pattern, Topic

_CACHED_TOPICS: Final = 4096
_CACHED_SUBSCRIBERS: Final = 1 << 20
"""Of all topics in the cache together: each may have many."""

Subscribers: TypeAlias = tuple[Subscriber, ...]
Key: TypeAlias = tuple[str, str]
"""Peer and subscription."""
Ends: TypeAlias = dict[Pattern, dict[Key, Subscriber]]


class Subscription(msgspec.Struct, frozen=True):
    """What a peer asked for."""

    pattern: Pattern
    subscriber: Subscriber


class _Node:
    """The patterns that agree up to here: in literal segments, or in that there is some wildcard."""

    __slots__ = ("ends", "literal", "rests", "wild")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.wild: _Node | None = None
        self.ends: Ends = {}
        self.rests: Ends = {}
        """Those that end in `#`, and match whatever follows."""

    def is_empty(self) -> bool:
        return not (self.literal or self.wild or self.ends or self.rests)


class Subscriptions:
    """All subscriptions. The tree only narrows down: `Pattern.matches` has the last word."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_peer: dict[str, dict[str, Subscription]] = {}
        self._literal: dict[Topic, dict[Key, Subscriber]] = {}
        self._root = _Node()
        self._cache: dict[Topic, Subscribers] = {}
        self._cached = 0
        self._policies: tuple[tuple[Glob, str], ...] = ()
        self._count = 0
        self.cached = self._cache.get
        """Return those who get a topic, if somebody has asked `match` for it lately."""

    def __len__(self) -> int:
        return self._count

    def set_policies(self, policies: tuple[tuple[str, str], ...]) -> None:
        """Let these globs over topics decide what happens to slow readers."""
        self._policies = tuple((Glob(pattern), policy) for pattern, policy in policies)
        self._forget()

    def add(self, pattern: Pattern, subscriber: Subscriber) -> None:
        """Take a subscription; a Refusal if there is no room, or its name is taken."""
        mine = self._by_peer.get(subscriber.peer, {})
        name = subscriber.subscription
        if name in mine:
            raise bad(f"subscription {name} is in use")
        if len(mine) >= self._most:
            raise busy(f"more than {self._most} subscriptions")
        self._by_peer.setdefault(subscriber.peer, mine)[name] = Subscription(pattern, subscriber)
        self._count += 1
        key = subscriber.peer, name
        if pattern.is_wildcard:
            self._ends(pattern).setdefault(pattern, {})[key] = subscriber
            self._forget()
        else:
            self._literal.setdefault(pattern.literal, {})[key] = subscriber
            self._forget_topic(pattern.literal)

    def of(self, peer: str) -> list[Subscription]:
        """Return all that a peer has."""
        return list(self._by_peer.get(peer, {}).values())

    def remove(self, peer: str, name: str) -> bool:
        """End a subscription; say whether there was one."""
        mine = self._by_peer.get(peer, {})
        subscription = mine.pop(name, None)
        if subscription is None:
            return False
        if not mine:
            del self._by_peer[peer]
        self._drop(subscription)
        return True

    def leave(self, peer: str) -> None:
        """End all that a peer has."""
        for subscription in self._by_peer.pop(peer, {}).values():
            self._drop(subscription)

    def to(self, topic: Topic) -> list[Subscriber]:
        """Return all who subscribed to this very topic."""
        return list(self._literal.get(topic, {}).values())

    def close(self, topic: Topic) -> list[Subscriber]:
        """End all subscriptions to this very topic; return who had them."""
        ended = self.to(topic)
        for subscriber in ended:
            self.remove(subscriber.peer, subscriber.subscription)
        return ended

    def match(self, topic: Topic) -> Subscribers:
        """Return all who get what is published on a topic: the same tuple until somebody comes or goes."""
        known = self._cache.get(topic)
        if known is not None:
            return known
        found = [*self._literal.get(topic, {}).values(), *self._wild(topic)]
        policy = self._policy(topic) if self._policies and found else ""
        if policy:
            found = [msgspec.structs.replace(each, when_full=policy) for each in found]
        subscribers = tuple(found)
        if len(self._cache) >= _CACHED_TOPICS or self._cached + len(found) > _CACHED_SUBSCRIBERS:
            self._forget()
        self._cache[topic] = subscribers
        self._cached += len(found)
        return subscribers

    def _policy(self, topic: Topic) -> str:
        text = written(topic)
        return next((policy for glob, policy in self._policies if glob.matches(text)), "")

    def _wild(self, topic: Topic) -> list[Subscriber]:
        found: list[Subscriber] = []
        nodes = [self._root]
        for segment in topic:
            below: list[_Node] = []
            for node in nodes:
                if node.rests:
                    found += _matching(node.rests, topic)
                if (literal := node.literal.get(segment)) is not None:
                    below.append(literal)
                if node.wild is not None:
                    below.append(node.wild)
            nodes = below
        for node in nodes:
            found += _matching(node.rests, topic)
            found += _matching(node.ends, topic)
        return found

    def _ends(self, pattern: Pattern) -> Ends:
        """Return where in the tree a pattern ends, and grow it until there."""
        node = self._root
        for level in pattern.levels:
            if len(level) == 1:
                node = node.literal.setdefault(level[0], _Node())
            else:
                if node.wild is None:
                    node.wild = _Node()
                node = node.wild
        return node.rests if pattern.rest else node.ends

    def _drop(self, subscription: Subscription) -> None:
        pattern, subscriber = subscription.pattern, subscription.subscriber
        key = subscriber.peer, subscriber.subscription
        self._count -= 1
        if pattern.is_wildcard:
            self._prune(pattern, key)
            self._forget()
            return
        topic = pattern.literal
        del self._literal[topic][key]
        if not self._literal[topic]:
            del self._literal[topic]
        self._forget_topic(topic)

    def _prune(self, pattern: Pattern, key: Key) -> None:
        """Take a subscription out of the tree, and all branches that it leaves bare."""
        path = [self._root]
        for level in pattern.levels:
            node = path[-1].literal[level[0]] if len(level) == 1 else path[-1].wild
            assert node is not None  # noqa: S101  it was grown for this pattern
            path.append(node)
        ends = path[-1].rests if pattern.rest else path[-1].ends
        del ends[pattern][key]
        if not ends[pattern]:
            del ends[pattern]
        for level in reversed(pattern.levels):
            if not path.pop().is_empty():
                break
            if len(level) == 1:
                del path[-1].literal[level[0]]
            else:
                path[-1].wild = None

    def _forget(self) -> None:
        self._cache.clear()
        self._cached = 0

    def _forget_topic(self, topic: Topic) -> None:
        self._cached -= len(self._cache.pop(topic, ()))


def _matching(ends: Ends, topic: Topic) -> list[Subscriber]:
    return [each for pattern, found in ends.items() if pattern.matches(topic) for each in found.values()]
