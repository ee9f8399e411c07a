"""All peers of the demo: their connections, services and subscriptions."""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from fiveways.app.app import App
from fiveways.client.connect import connect
from fiveways.client.mqtt.peer import MqttPeer, connect_mqtt
from fiveways.client.mqtt.subscriptions import MqttSubscription
from fiveways.client.peer import Peer
from fiveways.client.subscriptions import Subscription
from fiveways.demo import schema, shop
from fiveways.demo.client_actions import DemoClient
from fiveways.demo.stats import PROTOCOLS, DemoStats
from fiveways.errors import FivewaysError
from fiveways.schemas import load_services

_MEASURE_INTERVAL: Final = 0.5
_MAX_ERRORS: Final = 20
_MESSAGE_INTERVAL: Final = 10
"""One packed order in this number is shown."""


@dataclass(frozen=True, slots=True)
class HubEndpoints:
    """The ports of the hub, and the schema of its MQTT services."""

    http: int
    """The port for WebSocket and HTTP."""
    zmq: int
    mqtt: int
    schema: Path

    def url(self, protocol: str) -> str:
        """Return the URL for a peer of a protocol."""
        return {
            "umq": f"umq+ws://127.0.0.1:{self.http}",
            "umq36": f"umq36+ws://127.0.0.1:{self.http}",
            "lrpm-json": f"lrpm+ws://127.0.0.1:{self.http}",
            "lrpm-cbor": f"lrpm+ws://127.0.0.1:{self.http}?encoding=cbor",
            "nq": f"nq+ws://127.0.0.1:{self.http}",
            "nq over ZeroMQ": f"nq+zmq://127.0.0.1:{self.zmq}",
            "mqtt-rpc": f"mqtt://127.0.0.1:{self.mqtt}",
        }[protocol]


class ShopPeers:
    """All services and clients: `async with ShopPeers(endpoints, stats) as peers:`."""

    def __init__(self, endpoints: HubEndpoints, stats: DemoStats) -> None:
        self._endpoints = endpoints
        self._stats = stats
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.clients: list[DemoClient] = []
        self.errors: deque[str] = deque(maxlen=_MAX_ERRORS)
        """The latest unexpected errors."""
        self.is_paused = asyncio.Event()
        """While set, no temperatures are published."""

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*map(self._serve, PROTOCOLS))
            clients = await asyncio.gather(*map(self._connect_client, PROTOCOLS))
        except BaseException:
            await self._close()
            raise
        self.clients += clients
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None], description: str) -> None:
        """Run a coroutine until the end of the demo, and record its errors."""

        async def run() -> None:
            try:
                await coroutine
            except FivewaysError as exc:
                self.errors.append(f"{description}: {exc}")

        self._tasks.append(asyncio.create_task(run(), name=f"fiveways.demo.{description}"))

    # Services.

    async def _serve(self, protocol: str) -> None:
        if protocol == "mqtt-rpc":
            await self._serve_greenhouse()
            return
        peer = await self._connect_peer(protocol)
        apps: dict[str, App] = {
            "umq": shop.front_app(),
            "umq36": shop.till_app(),
            "lrpm-json": shop.books_app(),
            "lrpm-cbor": shop.prices_app(),
            "nq": shop.orders_app(self._stats, peer),
        }
        await peer.serve(apps[protocol])
        if protocol == "lrpm-json":
            self._run_in_background(self._pull_orders(peer), "packing")

    async def _serve_greenhouse(self) -> None:
        device = await self._connect_device()
        service = load_services([self._endpoints.schema])[f"{schema.PACKAGE}.Greenhouse"]
        greenhouse = shop.Greenhouse(service)
        await self._stack.enter_async_context(device.serve(service, greenhouse))
        self._run_in_background(self._publish_temperatures(device, greenhouse), "measuring")

    async def _publish_temperatures(self, device: MqttPeer, greenhouse: shop.Greenhouse) -> None:
        """Publish the temperatures of all measured beds."""
        while True:
            await asyncio.sleep(_MEASURE_INTERVAL)
            if self.is_paused.is_set():
                continue
            for bed in shop.MEASURED_BEDS:
                await device.publish(f"sensors/bed{bed}/temperature", greenhouse.temperature(bed, time.monotonic()))
                self._stats.publications += 1

    async def _pull_orders(self, peer: Peer) -> None:
        """Handle the jobs of the packing queue."""
        while True:
            async with peer.pull(shop.PACKING_QUEUE) as job:
                self._stats.jobs += 1
                if self._stats.jobs % _MESSAGE_INTERVAL == 1 and isinstance(job.data, dict):
                    self._stats.add_message(f"order {job.data.get('order')} is packed (queue, nq ► lrpm-json)")

    # Clients.

    async def _connect_client(self, protocol: str) -> DemoClient:
        peer: Peer | MqttPeer
        if protocol == "mqtt-rpc":
            peer = await self._connect_device()
            self._run_in_background(
                self._count_broker_events(await self._stack.enter_async_context(peer.subscribe("shop/#"))),
                "news by MQTT",
            )
        else:
            # NQ services use WebSocket, NQ clients ZeroMQ.
            peer = await self._connect_peer("nq over ZeroMQ" if protocol == "nq" else protocol)
            for pattern in (shop.SENSORS_PATTERN, shop.NEWS_TOPIC):
                events = await self._stack.enter_async_context(peer.subscribe(pattern))
                self._run_in_background(self._count_events(protocol, events), f"news by {protocol}")
        return DemoClient(protocol, peer, self._stats, Random(protocol))  # noqa: S311  not for security

    async def _count_events(self, protocol: str, events: Subscription) -> None:
        async for event in events:
            self._stats.count_event(protocol, event.topic, event.data)

    async def _count_broker_events(self, events: MqttSubscription) -> None:
        async for event in events:
            self._stats.count_event("mqtt-rpc", event.topic.replace("/", "."), event.data)

    # Connections.

    async def _connect_peer(self, protocol: str) -> Peer:
        return await self._stack.enter_async_context(connect(self._endpoints.url(protocol)))

    async def _connect_device(self) -> MqttPeer:
        opening = connect_mqtt(self._endpoints.url("mqtt-rpc"), schema=[self._endpoints.schema])
        return await self._stack.enter_async_context(opening)
