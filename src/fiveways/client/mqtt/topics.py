"""The topics that we have asked the broker for, as we call or serve methods there."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from fiveways.client.mqtt.keeper import Keeper
from fiveways.client.mqtt.retry import NotSent
from fiveways.errors import ConnectionLost, NotExecuted
from fiveways.model.failures import Reason
from fiveways.transports.mqtt_link import BrokerRefused


class Topics:
    """Each is asked for once, before its first call, and given back when nobody has used it for a while.

    Brokers allow so many subscriptions and no more. Where one is refused, or there would be too many, the one that was
    used least recently makes room, if nothing is expected on it.
    """

    def __init__(self, keeper: Keeper, in_use: Callable[[], set[str]]) -> None:
        """Make it; `in_use` tells on which topics answers are expected."""
        self._keeper = keeper
        self._in_use = in_use
        self._loop = asyncio.get_running_loop()
        self.live: dict[str, float] = {}
        """Those that the broker has confirmed, and when each was used; a new link is subscribed to them, too."""
        self.held: set[str] = set()
        """Those that are served here."""
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, topic: str, wait: float) -> float:
        """Wait until what is said on a topic comes to us; return what is left of the time.

        Raises:
            NotExecuted: the broker refuses it, or there is no link, or no word of the broker, in time.
            ConnectionLost: there will be no link.
        """
        deadline, left = self._loop.time() + wait, wait
        while topic not in self.live:
            left = await self._keeper.ready(left)
            task = self._opening.get(topic)
            if task is None:
                task = self._opening[topic] = asyncio.create_task(self._subscribe(topic))
                task.add_done_callback(lambda _: self._opening.pop(topic, None))
            # The task is not one caller's alone: who stops waiting leaves it to the others.
            await asyncio.wait([task], timeout=left)
            left = deadline - self._loop.time()
            if not task.done() or left <= 0:
                text = f"{self._keeper.broker} did not confirm the subscription to {topic} within {wait:g} seconds"
                raise NotSent(Reason.UNAVAILABLE, text)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, BrokerRefused):
                raise NotExecuted(Reason.DENIED, str(error)) from error
            if error is not None and not isinstance(error, ConnectionLost):
                raise error
        return left

    def release(self, topic: str) -> None:
        """Know that a topic is served no longer."""
        self.held.discard(topic)
        if topic in self.live and topic not in self._in_use():
            self._give_back([topic])

    def refused(self, topic: str) -> None:
        """Know that the broker does not grant it on a new link."""
        self.live.pop(topic, None)

    def close(self) -> None:
        """Ask for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        for task in (*self._opening.values(), *self._giving_back):
            task.cancel()

    async def _subscribe(self, topic: str) -> None:
        link = self._keeper.link
        if link is None:
            return  # whoever waits for it looks again
        if len(self.live) >= self._keeper.settings.max_topics and not await self._make_room():
            raise NotSent(Reason.BUSY, f"calls are open on {len(self.live)} topics, and no more are allowed here")
        try:
            await self._keeper.confirmed(link, [topic])
        except BrokerRefused:
            if link is not self._keeper.link or not await self._make_room():
                raise
            await self._keeper.confirmed(link, [topic])
        if link is self._keeper.link:
            self.live[topic] = self._loop.time()
            if self._timer is None:
                self._sweep()

    async def _make_room(self) -> bool:
        """Give the topic back that was used least recently; False if all are needed."""
        idle = self._idle()
        link = self._keeper.link
        if not idle or link is None:
            return False
        oldest = min(idle, key=self.live.__getitem__)
        del self.live[oldest]
        await link.unsubscribe([oldest])
        return True

    def _idle(self) -> list[str]:
        needed = self.held | self._in_use()
        return [topic for topic in self.live if topic not in needed]

    def _sweep(self) -> None:
        idle = self._keeper.settings.topic_idle
        self._timer = self._loop.call_later(idle / 2, self._sweep) if self.live else None
        before = self._loop.time() - idle
        unused = [topic for topic in self._idle() if self.live[topic] <= before]
        if unused:
            self._give_back(unused)

    def _give_back(self, topics: list[str]) -> None:
        for topic in topics:
            del self.live[topic]
        task = asyncio.create_task(self._unsubscribe(topics))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _unsubscribe(self, topics: list[str]) -> None:
        link = self._keeper.link
        if link is not None:
            with suppress(ConnectionLost):
                await link.unsubscribe(topics)
