"""Hubs that are connected to a broker, and clients of this broker."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import ParamSpec

from fiveways.app import App
from fiveways.client.mqtt.peer import MqttConnector, MqttPeer, connect_mqtt
from fiveways.settings.sections import BridgeDirection, MqttSettings, Secret, Settings
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.raw_peers import PATIENCE, Place, hub, settings
from tests.support.waiting import until

P = ParamSpec("P")


def broker_settings(
    broker: RunningBroker,
    *,
    services: Mapping[str, str] | None = None,
    topics: Mapping[str, BridgeDirection] | None = None,
) -> Settings:
    """Return settings for a hub at a broker, with the schema of the tests."""
    options = broker.wanted
    mqtt = MqttSettings(
        enabled=True,
        url=broker.url.replace(f"{options.user}:{options.password}@", ""),
        user=options.user,
        password=Secret(options.password),
        ca_file=str(options.certificate.file) if options.certificate else "",
        schemas=(str(greeter().path),),
        services=services or {},
        topics=topics or {},
    )
    return replace(settings(), mqtt=mqtt)


@asynccontextmanager
async def hub_at(
    broker: RunningBroker, app: App | None = None, **mqtt_settings: Mapping[str, str]
) -> AsyncIterator[Place]:
    """Start a hub that is connected to a broker and owns its topics."""
    async with hub(broker_settings(broker, **mqtt_settings), app) as place:  # type: ignore[arg-type]
        await until(lambda: is_ready(place))
        yield place


def is_ready(place: Place) -> bool:
    """Return whether a hub has subscribed to all topics that it owns."""
    peer = place.server._mqtt._peer if place.server._mqtt is not None else None
    ownership = peer._ownership if peer is not None else None
    return (
        ownership is not None and ownership.election.is_confirmed and ownership.subscribed == ownership.election.owned
    )


def client_of(broker: RunningBroker) -> MqttConnector:
    """Return a client of the broker, with the schema of the tests."""
    certificate = broker.wanted.certificate
    trust = certificate.context() if certificate else None
    return connect_mqtt(broker.url, schema=[greeter().path], timeout=PATIENCE, ssl_context=trust)


async def wait_for_retained(peer: MqttPeer, pattern: str) -> object:
    """Return the retained value of a topic, once a new subscriber gets it.

    nats-server acknowledges a retained message before it stores it.
    """
    while True:
        async with peer.subscribe(pattern) as events:
            with suppress(TimeoutError):
                return (await asyncio.wait_for(anext(aiter(events)), 1.0)).data
