"""The subscriptions of a UMQ conversation, in both directions."""

import msgspec

from fiveways.errors import LocalProtocolError, Reason
from fiveways.model.topics import Topic


class PeerSubscriptions:
    """Topic ids chosen by the peer: claimed by a request, active once granted, free after the end of the topic."""

    def __init__(self, max_subscriptions: int) -> None:
        self._max_subscriptions = max_subscriptions
        self._claimed: set[str] = set()
        self.active: set[str] = set()

    def claim(self, topic: str) -> tuple[Reason, str] | None:
        """Claim a topic id. Return None, or the reason for a refusal."""
        if topic in self._claimed:
            return Reason.BAD_ARGUMENTS, f"topic id {topic} is in use"
        if len(self._claimed) >= self._max_subscriptions:
            return Reason.OVERLOADED, "too many subscriptions"
        self._claimed.add(topic)
        return None

    def grant(self, topic: str) -> None:
        """Activate the subscription."""
        self.active.add(topic)

    def reject(self, topic: str) -> None:
        """Release the topic id of a denied subscription."""
        self._claimed.remove(topic)

    def end(self, topic: str) -> bool:
        """End an active subscription and release its id. Return whether it was active."""
        if topic not in self.active:
            return False
        self.active.remove(topic)
        self._claimed.remove(topic)
        return True

    def check_active(self, topic: str) -> None:
        """Raise LocalProtocolError if the peer has no such subscription."""
        if topic not in self.active:
            raise LocalProtocolError(f"the peer has no topic {topic}")


class OwnSubscription(msgspec.Struct, frozen=True, gc=False):
    """Our subscription at the peer."""

    subscription: str
    topic: Topic
    """The topic; empty for a pattern."""
    envelope: bool


class OwnSubscriptions:
    """Topic ids chosen by us, with the subscription of each."""

    def __init__(self) -> None:
        self._by_topic: dict[str, OwnSubscription] = {}
        self._by_subscription: dict[str, str] = {}

    def add(self, topic: str, subscription: OwnSubscription) -> None:
        """Add a subscription whose updates have this topic id."""
        self._by_topic[topic] = subscription
        self._by_subscription[subscription.subscription] = topic

    def get(self, topic: str) -> OwnSubscription | None:
        """Return the subscription with this topic id, if any."""
        return self._by_topic.get(topic)

    def remove(self, topic: str) -> str | None:
        """Remove a subscription by its topic id and return its name, if it exists."""
        subscription = self._by_topic.pop(topic, None)
        if subscription is None:
            return None
        del self._by_subscription[subscription.subscription]
        return subscription.subscription

    def topic_id(self, subscription: str) -> str:
        """Return the topic id of a subscription; LocalProtocolError if it is unknown."""
        topic = self._by_subscription.get(subscription)
        if topic is None:
            raise LocalProtocolError(f"no subscription {subscription} is open")
        return topic

    def check_free(self, subscription: str) -> None:
        """Raise LocalProtocolError if the subscription exists."""
        if subscription in self._by_subscription:
            raise LocalProtocolError(f"subscription {subscription} is open already")
