"""Subscriptions: exact topics in a table, patterns in an index, and a cache of the subscribers of each topic."""

from itertools import chain
from operator import is_
from sys import getsizeof
from typing import Final

import msgspec

from fiveways.hub.delivery import Subscriber
from fiveways.hub.pattern_index import PatternIndex, Subscribers, SubscriberSet
from fiveways.hub.permissions import Glob, topic_text
from fiveways.hub.refusal import bad_arguments, overloaded
from fiveways.hub.settings import DEFAULTS, HubSettings
from fiveways.hub.shares import Owner, Pool
from fiveways.model.topics import Pattern, Topic
from fiveways.wire.limits import Limits

_MAX_CACHED_TOPICS: Final = 4096
_MAX_CACHED_SUBSCRIBERS: Final = 1 << 20
"""Total length of the joined lists, each of which belongs to one topic."""
_NO_LIST: Final[tuple[list[Subscribers], Subscribers]] = ([], ())
_SUBSCRIPTION_BYTES: Final = 1000
"""The objects and table entries of a subscription, without the text and the levels of its pattern."""
_LEVEL_BYTES: Final = 40
"""The entries of a level in the tuples that hold it."""


class Subscription(msgspec.Struct, frozen=True):
    """A subscription with its size for the limits."""

    pattern: Pattern
    subscriber: Subscriber
    owner: Owner
    size: int


class Subscriptions:
    """All subscriptions."""

    def __init__(self, limits: Limits) -> None:
        self._max_per_peer = limits.max_subscriptions
        self._max_depth = limits.max_topic_depth
        shares = DEFAULTS.shares
        self._bytes = Pool(DEFAULTS.max_subscription_bytes, shares)
        self._steps = Pool(DEFAULTS.max_match_steps, shares)
        self._by_peer: dict[str, dict[str, Subscription]] = {}
        self._exact: dict[Topic, SubscriberSet] = {}
        self._patterns = PatternIndex(self._steps)
        self._cache: dict[Topic, Subscribers] = {}
        self._by_first: dict[str, set[Topic]] = {}
        """The topics in the cache by their first segment; some may have left it."""
        self._joined_lists: dict[Topic, tuple[list[Subscribers], Subscribers]] = {}
        """For topics with several matching patterns or with a policy: the parts of the joined list, and the list."""
        self._joined_length = 0
        """Total length of these lists."""
        self._policies: tuple[tuple[Glob, str], ...] = ()
        self._count = 0
        self.cached = self._cache.get
        """Return the subscribers of a topic from the cache, if `match` found them recently."""

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Estimated bytes of all subscriptions."""
        return self._bytes.used

    def configure(self, settings: HubSettings) -> None:
        """Set the limits and the overflow policies by topic."""
        self._bytes.configure(settings.max_subscription_bytes, settings.shares)
        self._steps.configure(settings.max_match_steps, settings.shares)
        self._policies = tuple((Glob(pattern), policy) for pattern, policy in settings.topic_policies)
        self._clear_caches()

    def check_depth(self, segments: int) -> None:
        """Refuse a topic or a pattern with too many segments."""
        if segments > self._max_depth:
            raise bad_arguments(f"the topic has {segments} segments, more than {self._max_depth}")

    def add(self, pattern: Pattern, subscriber: Subscriber, owner: Owner) -> None:
        """Add a subscription; raise Refusal if there is no room, or if its name is taken."""
        peer_subscriptions = self._by_peer.get(subscriber.peer, {})
        name = subscriber.subscription
        self.check_depth(len(pattern.levels))
        if name in peer_subscriptions:
            raise bad_arguments(f"subscription {name} is in use")
        if len(peer_subscriptions) >= self._max_per_peer:
            raise overloaded(f"more than {self._max_per_peer} subscriptions")
        size = subscription_memory(pattern, name)
        if excess := self._bytes.excess(owner, size):
            raise overloaded(f"no room for a subscription: {excess} (bytes)")
        if pattern.is_wildcard and (excess := self._patterns.excess(pattern, owner)):
            raise overloaded(f"no room for another shape of pattern: {excess} (steps of a match)")
        self._by_peer.setdefault(subscriber.peer, peer_subscriptions)[name] = Subscription(
            pattern, subscriber, owner, size
        )
        self._count += 1
        self._bytes.acquire(owner, size)
        if pattern.is_wildcard:
            self._patterns.add(pattern, subscriber, owner)
            self._invalidate_matches(pattern)
        else:
            topic = pattern.literal
            self._exact.setdefault(topic, SubscriberSet()).add(subscriber)
            self._cache.pop(topic, None)

    def of_peer(self, peer: str) -> list[Subscription]:
        """Return all subscriptions of a peer."""
        return list(self._by_peer.get(peer, {}).values())

    def remove(self, peer: str, name: str) -> bool:
        """End a subscription; return whether there was one."""
        peer_subscriptions = self._by_peer.get(peer, {})
        subscription = peer_subscriptions.pop(name, None)
        if subscription is None:
            return False
        if not peer_subscriptions:
            del self._by_peer[peer]
        self._remove(subscription)
        return True

    def leave(self, peer: str) -> None:
        """End all subscriptions of a peer."""
        for subscription in self._by_peer.pop(peer, {}).values():
            self._remove(subscription)

    def exact_subscribers(self, topic: Topic) -> list[Subscriber]:
        """Return the subscribers to exactly this topic."""
        bucket = self._exact.get(topic)
        return [] if bucket is None else list(bucket.members)

    def close_topic(self, topic: Topic) -> list[Subscriber]:
        """End all subscriptions to exactly this topic, and return their subscribers."""
        ended = self.exact_subscribers(topic)
        for subscriber in ended:
            self.remove(subscriber.peer, subscriber.subscription)
        return ended

    def match(self, topic: Topic) -> Subscribers:
        """Return all subscribers of a topic: the same tuple until one of them changes.

        Raise Refusal if the topic has too many segments.
        """
        cached = self._cache.get(topic)
        if cached is not None:
            return cached
        self.check_depth(len(topic))
        buckets = self._patterns.match(topic)
        if (literal := self._exact.get(topic)) is not None:
            buckets.insert(0, literal)
        if len(self._cache) >= _MAX_CACHED_TOPICS:
            self._clear_caches()
        if not buckets:
            subscribers: Subscribers = ()
        elif len(buckets) == 1 and not self._policies:
            subscribers = buckets[0].snapshot()
        else:
            subscribers = self._join(topic, [bucket.snapshot() for bucket in buckets])
        self._cache[topic] = subscribers
        same_first = self._by_first.get(topic[0])
        if same_first is None:
            self._by_first[topic[0]] = {topic}
        else:
            same_first.add(topic)
        return subscribers

    def _join(self, topic: Topic, parts: list[Subscribers]) -> Subscribers:
        """Return one list for several parts; the same object as before if the parts are the same."""
        old_parts, old_joined = self._joined_lists.get(topic, _NO_LIST)
        if len(parts) == len(old_parts) and all(map(is_, parts, old_parts)):
            return old_joined
        joined = tuple(chain.from_iterable(parts))
        policy = self._overflow_policy(topic)
        if policy:
            joined = tuple([msgspec.structs.replace(subscriber, when_full=policy) for subscriber in joined])
        if len(self._joined_lists) >= _MAX_CACHED_TOPICS or self._joined_length + len(joined) > _MAX_CACHED_SUBSCRIBERS:
            self._clear_caches()
            old_joined = ()
        self._joined_lists[topic] = parts, joined
        self._joined_length += len(joined) - len(old_joined)
        return joined

    def _overflow_policy(self, topic: Topic) -> str:
        text = topic_text(topic) if self._policies else ""
        return next((policy for glob, policy in self._policies if glob.matches(text)), "")

    def _remove(self, subscription: Subscription) -> None:
        pattern, subscriber, owner = subscription.pattern, subscription.subscriber, subscription.owner
        self._count -= 1
        self._bytes.release(owner, subscription.size)
        if pattern.is_wildcard:
            self._invalidate_matches(pattern)
            self._patterns.remove(pattern, subscriber, owner)
            return
        topic = pattern.literal
        bucket = self._exact[topic]
        bucket.remove(subscriber)
        if not bucket.members:
            del self._exact[topic]
        self._cache.pop(topic, None)

    def _clear_caches(self) -> None:
        self._cache.clear()
        self._by_first.clear()
        self._joined_lists.clear()
        self._joined_length = 0

    def _invalidate_matches(self, pattern: Pattern) -> None:
        """Remove the topics that may match from the cache; joined lists without this pattern are reused."""
        if pattern.levels and len(pattern.levels[0]) == 1:
            for topic in self._by_first.pop(pattern.levels[0][0], ()):
                self._cache.pop(topic, None)
        else:
            self._cache.clear()
            self._by_first.clear()


def subscription_memory(pattern: Pattern, name: str) -> int:
    """Return the approximate memory of a subscription: slightly more than CPython allocates, never less."""
    levels = sum(getsizeof(level) + _LEVEL_BYTES + sum(map(getsizeof, level)) for level in pattern.levels)
    return _SUBSCRIPTION_BYTES + getsizeof(name) + levels
