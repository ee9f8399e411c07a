"""The hub's MQTT side: the embedded broker, if any, and the peers behind the broker."""

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
from fiveways.runtime.structured_logging import log_fields
from fiveways.settings.sections import Settings
from fiveways.transports.mqtt_link import Broker

_log = logging.getLogger("fiveways.mqtt")
_CONNECT_WAIT: Final = 2.0
"""Seconds for which the start waits for the broker; later, connecting continues in the background."""
_READY_WAIT: Final = 10.0
"""Seconds for which a connected hub then waits until it answers requests at the broker."""


class MqttGateway:
    """The connection to one broker."""

    def __init__(self, settings: Settings, exchange: Exchange, random: Random, new_peer: Callable[[], str]) -> None:
        self._settings = settings
        self._exchange = exchange
        self._random = random
        self._new_peer = new_peer
        self._embedded_broker: EmbeddedBroker | None = None
        self._peer: BrokerPeer | None = None
        self._ready = asyncio.Event()
        """Set once the hub has answered requests at the broker."""

    async def start(self, on_ready: Callable[[tuple[str, str]], None]) -> None:
        """Start; call `on_ready` with protocol and URL when the hub answers requests at the broker.

        Raises:
            BrokerStartError, BadBrokerConfig, SchemaError, BadFilters: The settings or the broker do not work.
        """
        settings, all_settings = self._settings.mqtt, self._settings
        path = all_settings.origin.path if all_settings.origin is not None else None
        config = BrokerConfig(settings, path.parent if path is not None else Path())
        if settings.identity and settings.identity not in {each.name for each in all_settings.auth.identity}:
            raise BadBrokerConfig(f"mqtt.identity: there is no [[auth.identity]] {settings.identity!r}")
        if not settings.url:
            storage_folder = Path(f"{all_settings.store.path}.broker") if all_settings.store.path else None
            self._embedded_broker = EmbeddedBroker(
                settings.port, storage_folder, settings.user, settings.password.reveal()
            )
            await self._embedded_broker.start()
        broker = _broker(settings.url or (self._embedded_broker.url if self._embedded_broker is not None else ""))
        if self._embedded_broker is not None:
            broker = replace(broker, user=self._embedded_broker.user, password=self._embedded_broker.password)
        elif settings.user:
            broker = replace(broker, user=settings.user, password=settings.password.reveal())
        url = f"mqtt-rpc+{'mqtts' if broker.tls else 'mqtt'}://{broker.host}:{broker.port}"
        self._peer = BrokerPeer(
            broker,
            config,
            settings.identity,
            self._exchange,
            all_settings.limits,
            self._random,
            self._new_peer,
            skip_unsafe_topics=self._embedded_broker is not None,
        )

        def is_ready() -> None:
            if not self._ready.is_set():
                self._ready.set()
                on_ready(("mqtt-rpc", url))

        self._peer.start(is_ready)
        await self._wait_until_ready(_CONNECT_WAIT)
        if self.is_connected:
            await self._wait_until_ready(_READY_WAIT)
        if not self._ready.is_set():
            _log.warning("not ready at the MQTT broker yet; still trying", extra=log_fields(url=url))

    async def _wait_until_ready(self, wait: float) -> None:
        with contextlib.suppress(TimeoutError):  # connecting continues in the background
            await asyncio.wait_for(self._ready.wait(), wait)

    @property
    def is_connected(self) -> bool:
        """Whether the hub is connected to the broker."""
        return self._peer is not None and self._peer.is_linked()

    @property
    def is_answering(self) -> bool:
        """Whether the hub answers requests at the broker."""
        return self._peer is not None and self._peer.is_answering()

    @property
    def has_answered(self) -> bool:
        """Whether the hub ever answered requests at the broker."""
        return self._ready.is_set()

    @property
    def claim_monitor(self) -> ClaimMonitor | None:
        """The monitor of claims at the broker."""
        return None if self._peer is None else self._peer.claim_monitor

    def register_services(self) -> None:
        """Register the services again after a change of permissions."""
        if self._peer is not None:
            self._peer.register_services()

    def withdraw(self) -> None:
        """Give up all topics, so that another hub can answer new requests."""
        if self._peer is not None:
            self._peer.withdraw()

    async def stop(self) -> None:
        """Disconnect from the broker, and stop it if it is embedded."""
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
        # Settings are displayed, and secrets in a URL would not be hidden.
        raise BadBrokerConfig(
            "mqtt.url must not contain credentials; set mqtt.user, and mqtt.password or mqtt.password_file"
        )
    return broker
