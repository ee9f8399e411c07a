"""The hub's side of MQTT: its broker, if it has one of its own, and everybody behind it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from fiveways.runtime.exchange import Exchange
from fiveways.runtime.mqtt.broker_config import BadBrokerConfig, BrokerConfig
from fiveways.runtime.mqtt.broker_peer import BrokerPeer
from fiveways.runtime.mqtt.claim_monitor import ClaimMonitor
from fiveways.runtime.mqtt.embedded_broker import EmbeddedBroker
from fiveways.settings.sections import Settings
from fiveways.transports.mqtt_link import Broker

_log = logging.getLogger("fiveways.mqtt")
_LINKED_WITHIN: Final = 2.0
"""Seconds for which the hub's start waits for its broker; later the broker is tried in the background."""
_READY_WITHIN: Final = 10.0
"""Seconds for which the hub's start then waits until it answers there."""


class MqttGateway:
    """One broker, from the settings to its end."""

    def __init__(self, settings: Settings, exchange: Exchange, random: Random, new_peer: Callable[[], str]) -> None:
        self._settings = settings
        self._exchange = exchange
        self._random = random
        self._new_peer = new_peer
        self._embedded_broker: EmbeddedBroker | None = None
        self._peer: BrokerPeer | None = None
        self._ready = asyncio.Event()
        """The hub has been at the broker, and answered there what was its to answer."""

    async def start(self, serves: Callable[[tuple[str, str]], None]) -> None:
        """Begin; call `serves` with what is served where as soon as requests are answered there.

        Raises:
            NoBroker, BadPlan, SchemaError, BadFilters: that is impossible.
        """
        settings, given = self._settings.mqtt, self._settings
        path = given.origin.path if given.origin is not None else None
        plan = BrokerConfig(settings, path.parent if path is not None else Path())
        if settings.identity and settings.identity not in {each.name for each in given.auth.identity}:
            raise BadBrokerConfig(f"mqtt.identity: there is no [[auth.identity]] {settings.identity!r}")
        if not settings.url:
            kept = Path(f"{given.store.path}.broker") if given.store.path else None
            self._embedded_broker = EmbeddedBroker(settings.port, kept, settings.user, settings.password.reveal())
            await self._embedded_broker.start()
        broker = _broker(settings.url or (self._embedded_broker.url if self._embedded_broker is not None else ""))
        if self._embedded_broker is not None:
            broker = replace(broker, user=self._embedded_broker.user, password=self._embedded_broker.password)
        elif settings.user:
            broker = replace(broker, user=settings.user, password=settings.password.reveal())
        url = f"mqtt-rpc+{'mqtts' if broker.tls else 'mqtt'}://{broker.host}:{broker.port}"
        self._peer = BrokerPeer(
            broker,
            plan,
            settings.identity,
            self._exchange,
            given.limits,
            self._random,
            self._new_peer,
            is_wary=self._embedded_broker is not None,
        )

        def is_ready() -> None:
            if not self._ready.is_set():
                self._ready.set()
                serves(("mqtt-rpc", url))

        self._peer.start(is_ready)
        await self._wait_until_ready(_LINKED_WITHIN)
        if self.is_connected:
            await self._wait_until_ready(_READY_WITHIN)
        if not self._ready.is_set():
            _log.warning("the hub does not answer at %s yet", url)

    async def _wait_until_ready(self, patience: float) -> None:
        with contextlib.suppress(TimeoutError):  # it goes on trying
            await asyncio.wait_for(self._ready.wait(), patience)

    @property
    def is_connected(self) -> bool:
        """Whether there is a link to the broker."""
        return self._peer is not None and self._peer.is_linked()

    @property
    def is_answering(self) -> bool:
        """Whether requests that come by way of the broker are answered."""
        return self._peer is not None and self._peer.is_answering()

    @property
    def has_answered(self) -> bool:
        """Whether they ever were."""
        return self._ready.is_set()

    @property
    def claim_monitor(self) -> ClaimMonitor | None:
        """The claims of other hubs at the broker, or of others in their names."""
        return None if self._peer is None else self._peer.claim_monitor

    def register_services(self) -> None:
        """Offer anew what the rights may have taken away, and allow again."""
        if self._peer is not None:
            self._peer.register_services()

    def withdraw(self) -> None:
        """Leave what is new to other hubs at this broker."""
        if self._peer is not None:
            self._peer.withdraw()

    async def stop(self) -> None:
        """Leave the broker, and end it if it is ours."""
        if self._peer is not None:
            await self._peer.stop()
        if self._embedded_broker is not None:
            await self._embedded_broker.stop()


def _broker(url: str) -> Broker:
    try:
        broker = Broker.parse(url)
    except ValueError as exc:
        raise BadBrokerConfig(f"mqtt.url: {exc}") from exc
    if broker.user or broker.password:
        # Settings are shown to people, and those of a URL would be too.
        raise BadBrokerConfig(
            "mqtt.url holds no names or secrets: give mqtt.user, and mqtt.password or mqtt.password_file"
        )
    return broker
