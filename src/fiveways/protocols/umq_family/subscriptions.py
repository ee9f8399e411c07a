"""The topics of one UMQ conversation: those that the peer follows, and those that we follow."""

import msgspec

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model.topics import Topic


class PeerSubscriptions:
    """Topic ids that the peer chose: claimed when it asks, live once that is granted, free when the topic ends."""

    def __init__(self, most: int) -> None:
        self._max_subscriptions = most
        self._claimed: set[str] = set()
        self.active: set[str] = set()

    def claim(self, topic: str) -> tuple[Reason, str] | None:
        """Take an id; or why it cannot be had."""
        if topic in self._claimed:
            return Reason.BAD_ARGUMENTS, f"topic id {topic} is in use"
        if len(self._claimed) >= self._max_subscriptions:
            return Reason.OVERLOADED, "too many subscriptions"
        self._claimed.add(topic)
        return None

    def grant(self, topic: str) -> None:
        """From now on there may be updates."""
        self.active.add(topic)

    def reject(self, topic: str) -> None:
        """It was not granted."""
        self._claimed.remove(topic)

    def end(self, topic: str) -> bool:
        """If the topic is live it ends, and its id is free again; whether it was."""
        if topic not in self.active:
            return False
        self.active.remove(topic)
        self._claimed.remove(topic)
        return True

    def check_active(self, topic: str) -> None:
        """LocalProtocolError if there can be no update."""
        if topic not in self.active:
            raise LocalProtocolError(f"the peer has no topic {topic}")


class OwnSubscription(msgspec.Struct, frozen=True, gc=False):
    """A topic that we follow at the peer."""

    subscription: str
    topic: Topic
    """The topic itself, where it is not a pattern; else nothing."""
    envelope: bool


class OwnSubscriptions:
    """Topic ids that we chose, and the subscription that each stands for."""

    def __init__(self) -> None:
        self._by_topic: dict[str, OwnSubscription] = {}
        self._by_subscription: dict[str, str] = {}

    def add(self, topic: str, following: OwnSubscription) -> None:
        """Expect updates under this id."""
        self._by_topic[topic] = following
        self._by_subscription[following.subscription] = topic

    def get(self, topic: str) -> OwnSubscription | None:
        """What an update belongs to; None if to nothing."""
        return self._by_topic.get(topic)

    def remove(self, topic: str) -> str | None:
        """No more updates; the subscription that ends, if there is one."""
        following = self._by_topic.pop(topic, None)
        if following is None:
            return None
        del self._by_subscription[following.subscription]
        return following.subscription

    def topic_id(self, subscription: str) -> str:
        """The id under which we follow it; LocalProtocolError if we do not."""
        topic = self._by_subscription.get(subscription)
        if topic is None:
            raise LocalProtocolError(f"no subscription {subscription} is open")
        return topic

    def check_free(self, subscription: str) -> None:
        """LocalProtocolError if we follow it already."""
        if subscription in self._by_subscription:
            raise LocalProtocolError(f"subscription {subscription} is open already")
