"""Hubs with a broker, and what a test says to them by way of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from fiveways.app import App
from fiveways.client.mqtt.peer import MqttConnector, MqttPeer, connect_mqtt
from fiveways.settings.sections import BridgeDirection, MqttSettings, Secret, Settings
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.raw_peers import PATIENCE, Place, hub, settings

P = ParamSpec("P")


def bounded(test: Callable[P, object]) -> Callable[P, None]:
    """Run a test in a loop, and end it if it waits for what never comes."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 3 * PATIENCE))  # type: ignore[arg-type]

    return run


def given(
    broker: RunningBroker,
    *,
    services: Mapping[str, str] | None = None,
    topics: Mapping[str, BridgeDirection] | None = None,
) -> Settings:
    """Settings for a hub at a broker that knows the schema of the tests."""
    wanted = broker.wanted
    mqtt = MqttSettings(
        enabled=True,
        url=broker.url.replace(f"{wanted.user}:{wanted.password}@", ""),
        user=wanted.user,
        password=Secret(wanted.password),
        ca_file=str(wanted.certificate.file) if wanted.certificate else "",
        schemas=(str(greeter().path),),
        services=services or {},
        topics=topics or {},
    )
    return replace(settings(), mqtt=mqtt)


@asynccontextmanager
async def at(broker: RunningBroker, app: App | None = None, **more: Mapping[str, str]) -> AsyncIterator[Place]:
    """A hub that is linked to a broker, and answers there."""
    async with hub(given(broker, **more), app) as place:  # type: ignore[arg-type]
        await until(lambda: is_linked(place))
        yield place


def is_linked(place: Place) -> bool:
    """Whether a hub has said all that it has to say to its broker."""
    peer = place.server._mqtt._peer if place.server._mqtt is not None else None
    territory = peer._ownership if peer is not None else None
    return (
        territory is not None and territory.election.is_confirmed and territory.subscribed == territory.election.owned
    )


def linked_to(broker: RunningBroker) -> MqttConnector:
    """A client of the broker that knows the schema of the tests."""
    certificate = broker.wanted.certificate
    trust = certificate.context() if certificate else None
    return connect_mqtt(broker.url, schema=[greeter().path], timeout=PATIENCE, ssl_context=trust)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that nobody tells of; the test has a bound."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def retained(peer: MqttPeer, pattern: str) -> object:
    """What newcomers are told, once they are: nats-server acknowledges a message before it knows that it retains it."""
    while True:
        async with peer.subscribe(pattern) as events:
            with suppress(TimeoutError):
                return (await asyncio.wait_for(anext(aiter(events)), 1.0)).data
