"""Keeps a link to a broker open: a lost link is replaced, with the same subscriptions."""

import asyncio
import logging
from collections.abc import Sequence
from typing import ClassVar, Protocol

from fiveways.client.mqtt.retry import NotSent
from fiveways.client.mqtt.settings import MqttSettings
from fiveways.client.reconnector import Reconnector
from fiveways.errors import ConnectionLost
from fiveways.transports.mqtt_link import Broker, MqttLink, MqttMessage, SubscriptionRefused, open_mqtt

_log = logging.getLogger("fiveways.client.mqtt")


class LinkOwner(Protocol):
    """Owner of the links. None of its methods may raise."""

    def filters(self) -> Sequence[str]:
        """Return the topic filters that a new link must subscribe to."""

    def subscription_refused(self, topic_filter: str, error: SubscriptionRefused) -> None:
        """Handle that the broker refuses one of the filters."""

    def link_opened(self, link: MqttLink) -> None:
        """Handle a new link with its subscriptions."""

    def message_received(self, message: MqttMessage) -> None:
        """Handle a message."""

    def link_lost(self, error: ConnectionLost) -> None:
        """Handle the loss of the link."""

    def connection_closed(self, error: ConnectionLost) -> None:
        """Handle that there will be no further link."""


class LinkReceiver:
    """Receives the messages and the end of one link. Implements `MqttReceiver`."""

    def __init__(self, reconnector: "BrokerReconnector") -> None:
        self._reconnector = reconnector
        self.ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        self.received = reconnector.owner.message_received

    def check_open(self) -> None:
        """Raise the reason if the link has ended."""
        if self.ended.done():
            raise self.ended.result()

    def writable(self) -> None:
        """Wake writers."""
        self._reconnector.check_writable()

    def lost(self, reason: str) -> None:
        """End the link."""
        if not self.ended.done():
            error = ConnectionLost(reason or "the link to the broker was lost")
            self.ended.set_result(error)
            self._reconnector.link_ended(self, error)


class BrokerReconnector(Reconnector[LinkReceiver]):
    """Opens one link after another to a broker."""

    not_sent_error = NotSent
    min_jitter: ClassVar[float] = 0.5

    def __init__(self, broker: Broker, settings: MqttSettings, owner: LinkOwner) -> None:
        super().__init__(settings, str(broker), _log)
        self.broker = broker
        self.settings = settings
        self.owner = owner
        self.link: MqttLink | None = None
        """The open link with its subscriptions, or None."""
        self._receiver: LinkReceiver | None = None
        self._writable = asyncio.Event()

    async def wait_ready(self, wait: float) -> float:
        """Wait until there is a link that accepts messages; return the remaining seconds.

        Raises:
            NotSent: there is no link in time, or too many requests wait for one.
            ConnectionLost: there will be no further link.
            ValueError: `wait` is not positive.
        """
        _, remaining = await self._wait_connection(wait, self.wait_writable, self._unavailable_text)
        return remaining

    def _unavailable_text(self) -> str:
        return f"no link to {self.broker}" if self.link is None else f"too much data waits for {self.broker}"

    async def wait_writable(self) -> None:
        """Wait until there is a link that accepts messages; ConnectionLost if there will be none."""
        while True:
            link = self.link
            if link is None:
                self._raise_if_closed()
                await self._changed.wait()
            elif link.is_full:
                self._writable.clear()
                await self._writable.wait()
            else:
                return

    async def subscribe(self, link: MqttLink, filters: Sequence[str]) -> None:
        """Subscribe, and wait for the broker's acknowledgement. If there is none, the link is aborted.

        Raises:
            SubscriptionRefused: the broker refuses one of the filters.
            ConnectionLost: the link was lost.
        """
        try:
            async with asyncio.timeout(self.settings.open_timeout):
                await link.subscribe(filters, 1)
        except TimeoutError:
            link.abort()
            text = f"{self.broker} did not confirm a subscription within {self.settings.open_timeout:g} seconds"
            raise ConnectionLost(text) from None

    async def close(self) -> None:
        """Close the link and stop to reconnect."""
        receiver, link = self._receiver, self.link
        await self._stop()
        if link is not None and receiver is not None:
            link.close()
            await asyncio.wait([receiver.ended], timeout=self.settings.longest_wait)
            if not receiver.ended.done():
                link.abort()

    def check_writable(self) -> None:
        """Wake writers if the link accepts more."""
        if self.link is not None and not self.link.is_full:
            self._writable.set()

    def link_ended(self, receiver: LinkReceiver, error: ConnectionLost) -> None:
        """Remove a link that was lost."""
        if self._receiver is receiver and self.link is not None:
            self.link = None
            self._changed.clear()
            self._writable.set()
            self.owner.link_lost(error)

    # Lifecycle of a link.

    async def _connect(self) -> LinkReceiver:
        """Open a link, restore its subscriptions and publish it."""
        settings, receiver = self.settings, LinkReceiver(self)
        link = await open_mqtt(
            self.broker,
            receiver,
            client_id=settings.client_id,
            keepalive=settings.keepalive,
            ssl_context=settings.ssl_context,
            timeout=settings.open_timeout,
        )
        try:
            await self._restore(link)
            self._check_open()
            receiver.check_open()
        except BaseException:
            link.abort()
            raise
        self._receiver, self.link = receiver, link
        self.owner.link_opened(link)
        self._changed.set()
        self._writable.set()
        return receiver

    async def _restore(self, link: MqttLink) -> None:
        filters = self.owner.filters()
        if not filters:
            return
        try:
            await self.subscribe(link, filters)
        except SubscriptionRefused:
            # Subscribe one by one to find the filters that the broker refuses.
            for topic_filter in filters:
                try:
                    await self.subscribe(link, [topic_filter])
                except SubscriptionRefused as exc:
                    self.owner.subscription_refused(topic_filter, exc)

    def _may_replace(self, _error: ConnectionLost) -> bool:
        return self.settings.reconnect

    def _on_finished(self, error: ConnectionLost) -> None:
        if self.link is not None:
            self.link = None
            self.owner.link_lost(error)
        self.owner.connection_closed(error)
        self._writable.set()
