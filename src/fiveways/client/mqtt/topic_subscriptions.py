"""Subscriptions of the topics on which this client calls or serves methods."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from fiveways.client.mqtt.reconnector import BrokerReconnector
from fiveways.client.mqtt.retry import NotSent
from fiveways.errors import ConnectionLost, NotExecuted, Reason
from fiveways.transports.mqtt_link import SubscriptionRefused


class TopicSubscriptions:
    """Subscribes to a topic before its first call, and unsubscribes when it is idle.

    Brokers limit subscriptions. When one is refused, or at the limit, the least recently used topic without pending
    calls is evicted.
    """

    def __init__(self, reconnector: BrokerReconnector, topics_in_use: Callable[[], set[str]]) -> None:
        """Create it; `topics_in_use` returns the topics with pending calls."""
        self._reconnector = reconnector
        self._topics_in_use = topics_in_use
        self._loop = asyncio.get_running_loop()
        self.subscribed: dict[str, float] = {}
        """Confirmed topics with the time of their last use; a new link subscribes to all of them."""
        self.served: set[str] = set()
        """Topics with a service of this client."""
        self._subscribing: dict[str, asyncio.Task[None]] = {}
        self._unsubscribing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ensure_subscribed(self, topic: str, wait: float) -> float:
        """Wait until the subscription of a topic is confirmed; return the remaining seconds.

        Raises:
            NotExecuted: the broker refuses the subscription, or does not confirm it in time, or there is no link in
                time.
            ConnectionLost: the connection is closed for good.
        """
        deadline, remaining = self._loop.time() + wait, wait
        while topic not in self.subscribed:
            remaining = await self._reconnector.wait_ready(remaining)
            task = self._subscribing.get(topic)
            if task is None:
                task = self._subscribing[topic] = asyncio.create_task(self._subscribe(topic))
                task.add_done_callback(lambda _: self._subscribing.pop(topic, None))
            # Callers share the task: one that stops waiting must not cancel it.
            await asyncio.wait([task], timeout=remaining)
            remaining = deadline - self._loop.time()
            if not task.done() or remaining <= 0:
                text = f"{self._reconnector.broker} did not confirm the subscription to {topic} within {wait:g} seconds"
                raise NotSent(Reason.UNAVAILABLE, text)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, SubscriptionRefused):
                raise NotExecuted(Reason.DENIED, str(error)) from error
            if error is not None and not isinstance(error, ConnectionLost):
                raise error
        return remaining

    def release(self, topic: str) -> None:
        """Handle that a topic is no longer served."""
        self.served.discard(topic)
        if topic in self.subscribed and topic not in self._topics_in_use():
            self._release_topics([topic])

    def subscription_refused(self, topic: str) -> None:
        """Handle that the broker refuses a topic on a new link."""
        self.subscribed.pop(topic, None)

    def close(self) -> None:
        """Cancel all tasks and timers."""
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._subscribing.values(), *self._unsubscribing):
            task.cancel()

    async def _subscribe(self, topic: str) -> None:
        link = self._reconnector.link
        if link is None:
            return  # the waiting callers check again
        if len(self.subscribed) >= self._reconnector.settings.max_topics and not await self._evict_oldest():
            raise NotSent(
                Reason.OVERLOADED,
                f"too many topics: calls are pending on {len(self.subscribed)}, the limit of this client",
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
        """Unsubscribe from the least recently used topic; return False if all are in use."""
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
        max_idle = self._reconnector.settings.topic_idle
        self._timer = self._loop.call_later(max_idle / 2, self._unsubscribe_idle) if self.subscribed else None
        before = self._loop.time() - max_idle
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
