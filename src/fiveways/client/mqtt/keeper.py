"""Keeps a link to a broker open: when one is lost another is opened, with the same subscriptions."""

import asyncio
import logging
from collections.abc import Sequence
from random import SystemRandom
from typing import Protocol

from fiveways.client import first
from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.settings import NO_TIME
from fiveways.client.states import State, States, Status
from fiveways.errors import ConnectionLost, Refused
from fiveways.model.failures import Reason
from fiveways.transports.mqtt_link import Broker, BrokerRefused, Delivered, MqttLink, open_mqtt

_log = logging.getLogger("fiveways.client.mqtt")


class Owner(Protocol):
    """Whose links these are. None of these may raise."""

    def filters(self) -> Sequence[str]:
        """Return what a new link must be subscribed to."""

    def refused(self, topic_filter: str, error: BrokerRefused) -> None:
        """Know that the broker no longer grants one of these."""

    def opened(self, link: MqttLink) -> None:
        """Know that there is a link, and that it is subscribed."""

    def received(self, message: Delivered) -> None:
        """Take a message."""

    def lost(self, error: ConnectionLost) -> None:
        """Know that the link is gone."""

    def finished(self, error: ConnectionLost) -> None:
        """Know that there will be none any more."""


class _Ear:
    """What one link tells. Fulfils `MqttReceiver`."""

    def __init__(self, keeper: "Keeper") -> None:
        self._keeper = keeper
        self.ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        self.received = keeper.owner.received

    def check(self) -> None:
        if self.ended.done():
            raise self.ended.result()

    def writable(self) -> None:
        self._keeper.look_for_room()

    def lost(self, reason: str) -> None:
        if not self.ended.done():
            error = ConnectionLost(reason or "the link to the broker was lost")
            self.ended.set_result(error)
            self._keeper.ended(self, error)


class Keeper:
    """One link after the other, until it is closed, refused, or not to be opened again."""

    def __init__(self, broker: Broker, settings: MqttSettings, owner: Owner) -> None:
        self.broker = broker
        self.settings = settings
        self.owner = owner
        self.states = States()
        self.link: MqttLink | None = None
        """The one that is open and subscribed, None while there is none."""
        self._ear: _Ear | None = None
        self._changed = asyncio.Event()
        """There is a link, or there never will be."""
        self._room = asyncio.Event()
        self._waiters = 0
        self._error: ConnectionLost | None = None
        self._wait = settings.first_wait
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first link, tried again for `wait` seconds; Refused or ConnectionLost if that fails."""
        try:
            ear = await first.connected(self._opened(), self._reopen, self.settings.wait, _log)
        except ConnectionLost as exc:
            self._finish(exc)
            raise
        self._tell(Status(State.CONNECTED, str(self.broker)), logging.INFO)
        self._task = asyncio.create_task(self._keep(ear), name="fiveways.client.mqtt")

    async def ready(self, wait: float) -> float:
        """Wait until there is a link that takes messages; return what is left of the time.

        Raises:
            NotSent: there is none in time, or too many wait for one.
            ConnectionLost: there will be none.
            ValueError: no time was given.
        """
        if wait <= 0:
            raise ValueError(NO_TIME)
        if self._waiters >= self.settings.limits.max_pending:
            raise NotSent(Reason.BUSY, f"{self._waiters} requests wait for the broker already")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._waiters += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self.room()
        except TimeoutError:
            why = "no link to" if self.link is None else "too much waits for"
            raise NotSent(Reason.UNAVAILABLE, f"{why} {self.broker} within {wait:g} seconds") from None
        finally:
            self._waiters -= 1
        return max(deadline - loop.time(), 0.001)

    async def room(self) -> None:
        """Wait until there is a link that takes messages; ConnectionLost if there never will be."""
        while True:
            link = self.link
            if link is None:
                if self._error is not None:
                    raise type(self._error)(str(self._error))
                await self._changed.wait()
            elif link.is_full:
                self._room.clear()
                await self._room.wait()
            else:
                return

    async def confirmed(self, link: MqttLink, filters: Sequence[str]) -> None:
        """Subscribe, and wait for the broker's word. A broker that gives none is gone.

        Raises:
            BrokerRefused: it does not grant one of these.
            ConnectionLost: the link is gone.
        """
        try:
            async with asyncio.timeout(self.settings.open_timeout):
                await link.subscribe(filters, 1)
        except TimeoutError:
            link.abort()
            text = f"{self.broker} confirmed no subscription within {self.settings.open_timeout:g} seconds"
            raise ConnectionLost(text) from None

    async def close(self) -> None:
        """Part from the broker, for good."""
        ear, link, task = self._ear, self.link, self._task
        self._finish(ConnectionLost("the connection is closed"))
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])
        if link is not None and ear is not None:
            link.close()
            await asyncio.wait([ear.ended], timeout=self.settings.longest_wait)
            if not ear.ended.done():
                link.abort()

    # The life of a link.

    async def _opened(self) -> _Ear:
        """Open a link, subscribe it, and let all use it."""
        settings, ear = self.settings, _Ear(self)
        link = await open_mqtt(
            self.broker,
            ear,
            client_id=settings.client_id,
            keepalive=settings.keepalive,
            ssl_context=settings.ssl_context,
            timeout=settings.open_timeout,
        )
        try:
            await self._restore(link)
            self._check_wanted()
            ear.check()
        except BaseException:
            link.abort()
            raise
        self._ear, self.link = ear, link
        self.owner.opened(link)
        self._changed.set()
        self._room.set()
        return ear

    async def _restore(self, link: MqttLink) -> None:
        filters = self.owner.filters()
        if not filters:
            return
        try:
            await self.confirmed(link, filters)
        except BrokerRefused:
            # Which of them it was is found one by one.
            for each in filters:
                try:
                    await self.confirmed(link, [each])
                except BrokerRefused as exc:
                    self.owner.refused(each, exc)

    async def _keep(self, ear: _Ear) -> None:
        loop = asyncio.get_running_loop()
        while True:
            opened_at = loop.time()
            error = await asyncio.shield(ear.ended)
            if loop.time() - opened_at > self.settings.longest_wait:
                self._wait = self.settings.first_wait
            if not self.settings.reconnect:
                self._finish(error)
                return
            self._tell(Status(State.RECONNECTING, str(error)), logging.WARNING)
            try:
                ear = await self._reopen()
            except Refused as refused:
                self._finish(refused)
                return
            self._tell(Status(State.RECONNECTED, str(self.broker)), logging.WARNING)

    async def _reopen(self) -> _Ear:
        """Try until it works, after waits that grow and differ: many clients lose one broker at once."""
        chance = SystemRandom()
        while True:
            await asyncio.sleep(chance.uniform(self._wait / 2, self._wait))
            self._check_wanted()
            self._wait = min(2 * self._wait, self.settings.longest_wait)
            try:
                return await self._opened()
            except Refused:
                raise
            except ConnectionLost as exc:
                _log.info("still no link: %s", exc)

    def _check_wanted(self) -> None:
        # To be cancelled is not enough: `timeout` may lose that when what it waits for fails in the same moment.
        if self._error is not None:
            raise asyncio.CancelledError

    def look_for_room(self) -> None:
        """Let those go on that wait, if the link takes more."""
        if self.link is not None and not self.link.is_full:
            self._room.set()

    def ended(self, ear: _Ear, error: ConnectionLost) -> None:
        """Use a link no longer that is gone."""
        if self._ear is ear and self.link is not None:
            self.link = None
            self._changed.clear()
            self._room.set()
            self.owner.lost(error)

    def _finish(self, error: ConnectionLost) -> None:
        if self._error is not None:
            return
        self._error = error
        if self.link is not None:
            self.link = None
            self.owner.lost(error)
        self.owner.finished(error)
        self._tell(Status(State.CLOSED, str(error)), logging.INFO)
        self._changed.set()
        self._room.set()

    def _tell(self, status: Status, level: int) -> None:
        _log.log(level, "%s", status)
        self.states.tell(status)
