"""Keeps a link to a broker open: when one is lost another is opened, with the same subscriptions."""

import asyncio
import logging
from collections.abc import Sequence
from random import SystemRandom
from typing import Protocol

from fiveways.client import first_connection
from fiveways.client.connection_state import ConnectionState, ConnectionStatus, StatusTracker
from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.settings import BAD_TIMEOUT
from fiveways.errors import ConnectionLost, Reason, Refused
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, SubscriptionRefused, open_mqtt

_log = logging.getLogger("fiveways.client.mqtt")


class LinkOwner(Protocol):
    """Whose links these are. None of these may raise."""

    def filters(self) -> Sequence[str]:
        """Return what a new link must be subscribed to."""

    def subscription_refused(self, topic_filter: str, error: SubscriptionRefused) -> None:
        """Know that the broker no longer grants one of these."""

    def link_opened(self, link: MqttLink) -> None:
        """Know that there is a link, and that it is subscribed."""

    def message_received(self, message: MqttMessage) -> None:
        """Take a message."""

    def link_lost(self, error: ConnectionLost) -> None:
        """Know that the link is gone."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """Know that there will be none any more."""


class _LinkReceiver:
    """What one link tells. Fulfils `MqttReceiver`."""

    def __init__(self, keeper: "BrokerReconnector") -> None:
        self._reconnector = keeper
        self.ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        self.received = keeper.owner.message_received

    def check_open(self) -> None:
        if self.ended.done():
            raise self.ended.result()

    def writable(self) -> None:
        self._reconnector.check_writable()

    def lost(self, reason: str) -> None:
        if not self.ended.done():
            error = ConnectionLost(reason or "the link to the broker was lost")
            self.ended.set_result(error)
            self._reconnector.link_ended(self, error)


class BrokerReconnector:
    """One link after the other, until it is closed, refused, or not to be opened again."""

    def __init__(self, broker: Broker, settings: MqttSettings, owner: LinkOwner) -> None:
        self.broker = broker
        self.settings = settings
        self.owner = owner
        self.states = StatusTracker()
        self.link: MqttLink | None = None
        """The one that is open and subscribed, None while there is none."""
        self._receiver: _LinkReceiver | None = None
        self._changed = asyncio.Event()
        """There is a link, or there never will be."""
        self._writable = asyncio.Event()
        self._waiting_requests = 0
        self._close_error: ConnectionLost | None = None
        self._backoff = settings.first_wait
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first link, tried again for `wait` seconds; Refused or ConnectionLost if that fails."""
        try:
            ear = await first_connection.connect_first(self._connect(), self._reconnect, self.settings.wait, _log)
        except ConnectionLost as exc:
            self._finish(exc)
            raise
        self._set_status(ConnectionStatus(ConnectionState.CONNECTED, str(self.broker)), logging.INFO)
        self._task = asyncio.create_task(self._run(ear), name="fiveways.client.mqtt")

    async def wait_ready(self, wait: float) -> float:
        """Wait until there is a link that takes messages; return what is left of the time.

        Raises:
            NotSent: there is none in time, or too many wait for one.
            ConnectionLost: there will be none.
            ValueError: no time was given.
        """
        if wait <= 0:
            raise ValueError(BAD_TIMEOUT)
        if self._waiting_requests >= self.settings.limits.max_pending:
            raise NotSent(Reason.OVERLOADED, f"{self._waiting_requests} requests wait for the broker already")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._waiting_requests += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self.wait_writable()
        except TimeoutError:
            why = "no link to" if self.link is None else "too much waits for"
            raise NotSent(Reason.UNAVAILABLE, f"{why} {self.broker} within {wait:g} seconds") from None
        finally:
            self._waiting_requests -= 1
        return max(deadline - loop.time(), 0.001)

    async def wait_writable(self) -> None:
        """Wait until there is a link that takes messages; ConnectionLost if there never will be."""
        while True:
            link = self.link
            if link is None:
                if self._close_error is not None:
                    raise type(self._close_error)(str(self._close_error))
                await self._changed.wait()
            elif link.is_full:
                self._writable.clear()
                await self._writable.wait()
            else:
                return

    async def subscribe(self, link: MqttLink, filters: Sequence[str]) -> None:
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
        ear, link, task = self._receiver, self.link, self._task
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

    async def _connect(self) -> _LinkReceiver:
        """Open a link, subscribe it, and let all use it."""
        settings, ear = self.settings, _LinkReceiver(self)
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
            self._check_open()
            ear.check_open()
        except BaseException:
            link.abort()
            raise
        self._receiver, self.link = ear, link
        self.owner.link_opened(link)
        self._changed.set()
        self._writable.set()
        return ear

    async def _restore(self, link: MqttLink) -> None:
        filters = self.owner.filters()
        if not filters:
            return
        try:
            await self.subscribe(link, filters)
        except SubscriptionRefused:
            # Which of them it was is found one by one.
            for each in filters:
                try:
                    await self.subscribe(link, [each])
                except SubscriptionRefused as exc:
                    self.owner.subscription_refused(each, exc)

    async def _run(self, ear: _LinkReceiver) -> None:
        loop = asyncio.get_running_loop()
        while True:
            opened_at = loop.time()
            error = await asyncio.shield(ear.ended)
            if loop.time() - opened_at > self.settings.longest_wait:
                self._backoff = self.settings.first_wait
            if not self.settings.reconnect:
                self._finish(error)
                return
            self._set_status(ConnectionStatus(ConnectionState.RECONNECTING, str(error)), logging.WARNING)
            try:
                ear = await self._reconnect()
            except Refused as refused:
                self._finish(refused)
                return
            self._set_status(ConnectionStatus(ConnectionState.RECONNECTED, str(self.broker)), logging.WARNING)

    async def _reconnect(self) -> _LinkReceiver:
        """Try until it works, after waits that grow and differ: many clients lose one broker at once."""
        chance = SystemRandom()
        while True:
            await asyncio.sleep(chance.uniform(self._backoff / 2, self._backoff))
            self._check_open()
            self._backoff = min(2 * self._backoff, self.settings.longest_wait)
            try:
                return await self._connect()
            except Refused:
                raise
            except ConnectionLost as exc:
                _log.info("still no link: %s", exc)

    def _check_open(self) -> None:
        # To be cancelled is not enough: `timeout` may lose that when what it waits for fails in the same moment.
        if self._close_error is not None:
            raise asyncio.CancelledError

    def check_writable(self) -> None:
        """Let those go on that wait, if the link takes more."""
        if self.link is not None and not self.link.is_full:
            self._writable.set()

    def link_ended(self, ear: _LinkReceiver, error: ConnectionLost) -> None:
        """Use a link no longer that is gone."""
        if self._receiver is ear and self.link is not None:
            self.link = None
            self._changed.clear()
            self._writable.set()
            self.owner.link_lost(error)

    def _finish(self, error: ConnectionLost) -> None:
        if self._close_error is not None:
            return
        self._close_error = error
        if self.link is not None:
            self.link = None
            self.owner.link_lost(error)
        self.owner.connection_closed(error)
        self._set_status(ConnectionStatus(ConnectionState.CLOSED, str(error)), logging.INFO)
        self._changed.set()
        self._writable.set()

    def _set_status(self, status: ConnectionStatus, level: int) -> None:
        _log.log(level, "%s", status)
        self.states.publish(status)
