"""The topics that we have asked the broker for, as we call or serve methods there."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from fiveways.client.mqtt.reconnector import BrokerReconnector
from fiveways.client.mqtt.retry import NotSent
from fiveways.errors import ConnectionLost, NotExecuted, Reason
from fiveways.transports.mqtt_link import SubscriptionRefused


class TopicSubscriptions:
    """Each is asked for once, before its first call, and given back when nobody has used it for a while.

    Brokers allow so many subscriptions and no more. Where one is refused, or there would be too many, the one that was
    used least recently makes room, if nothing is expected on it.
    """

    def __init__(self, keeper: BrokerReconnector, in_use: Callable[[], set[str]]) -> None:
        """Make it; `in_use` tells on which topics answers are expected."""
        self._reconnector = keeper
        self._topics_in_use = in_use
        self._loop = asyncio.get_running_loop()
        self.subscribed: dict[str, float] = {}
        """Those that the broker has confirmed, and when each was used; a new link is subscribed to them, too."""
        self.served: set[str] = set()
        """Those that are served here."""
        self._subscribing: dict[str, asyncio.Task[None]] = {}
        self._unsubscribing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ensure_subscribed(self, topic: str, wait: float) -> float:
        """Wait until what is said on a topic comes to us; return what is left of the time.

        Raises:
            NotExecuted: the broker refuses it, or there is no link, or no word of the broker, in time.
            ConnectionLost: there will be no link.
        """
        deadline, left = self._loop.time() + wait, wait
        while topic not in self.subscribed:
            left = await self._reconnector.wait_ready(left)
            task = self._subscribing.get(topic)
            if task is None:
                task = self._subscribing[topic] = asyncio.create_task(self._subscribe(topic))
                task.add_done_callback(lambda _: self._subscribing.pop(topic, None))
            # The task is not one caller's alone: who stops waiting leaves it to the others.
            await asyncio.wait([task], timeout=left)
            left = deadline - self._loop.time()
            if not task.done() or left <= 0:
                text = f"{self._reconnector.broker} did not confirm the subscription to {topic} within {wait:g} seconds"
                raise NotSent(Reason.UNAVAILABLE, text)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, SubscriptionRefused):
                raise NotExecuted(Reason.DENIED, str(error)) from error
            if error is not None and not isinstance(error, ConnectionLost):
                raise error
        return left

    def release(self, topic: str) -> None:
        """Know that a topic is served no longer."""
        self.served.discard(topic)
        if topic in self.subscribed and topic not in self._topics_in_use():
            self._release_topics([topic])

    def subscription_refused(self, topic: str) -> None:
        """Know that the broker does not grant it on a new link."""
        self.subscribed.pop(topic, None)

    def close(self) -> None:
        """Ask for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._subscribing.values(), *self._unsubscribing):
            task.cancel()

    async def _subscribe(self, topic: str) -> None:
        link = self._reconnector.link
        if link is None:
            return  # whoever waits for it looks again
        if len(self.subscribed) >= self._reconnector.settings.max_topics and not await self._evict_oldest():
            raise NotSent(
                Reason.OVERLOADED, f"calls are open on {len(self.subscribed)} topics, and no more are allowed here"
            )
        try:
            await self._reconnector.subscribe(link, [topic])
        except SubscriptionRefused:
            if link is not self._reconnector.link or not await self._evict_oldest():
                raise
            await self._reconnector.subscribe(link, [topic])
        if link is self._reconnector.link:
            self.subscribed[topic] = self._loop.time()
            if self._timer is None:
                self._unsubscribe_idle()

    async def _evict_oldest(self) -> bool:
        """Give the topic back that was used least recently; False if all are needed."""
        idle = self._idle()
        link = self._reconnector.link
        if not idle or link is None:
            return False
        oldest = min(idle, key=self.subscribed.__getitem__)
        del self.subscribed[oldest]
        await link.unsubscribe([oldest])
        return True

    def _idle(self) -> list[str]:
        needed = self.served | self._topics_in_use()
        return [topic for topic in self.subscribed if topic not in needed]

    def _unsubscribe_idle(self) -> None:
        idle = self._reconnector.settings.topic_idle
        self._timer = self._loop.call_later(idle / 2, self._unsubscribe_idle) if self.subscribed else None
        before = self._loop.time() - idle
        unused = [topic for topic in self._idle() if self.subscribed[topic] <= before]
        if unused:
            self._release_topics(unused)

    def _release_topics(self, topics: list[str]) -> None:
        for topic in topics:
            del self.subscribed[topic]
        task = asyncio.create_task(self._unsubscribe(topics))
        self._unsubscribing.add(task)
        task.add_done_callback(self._unsubscribing.discard)

    async def _unsubscribe(self, topics: list[str]) -> None:
        link = self._reconnector.link
        if link is not None:
            with suppress(ConnectionLost):
                await link.unsubscribe(topics)
