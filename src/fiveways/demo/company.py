"""Everybody who takes part: connected in their protocols, offering what they do, hearing what is published."""

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
from fiveways.client.mqtt.feeds import MqttSubscription
from fiveways.client.mqtt.peer import MqttPeer, connect_mqtt
from fiveways.client.peer import Peer
from fiveways.client.subscriptions import Subscription
from fiveways.demo import cast, schema
from fiveways.demo.acts import Client
from fiveways.demo.ledger import PROTOCOLS, Ledger
from fiveways.errors import FivewaysError
from fiveways.schemas import load

_MEASURED_EVERY: Final = 0.5
_MOST: Final = 20
_NOTED_EVERY: Final = 10
"""Of so many packed orders one is told of."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the hub answers, and what its services look like."""

    http: int
    """The port for WebSocket and HTTP."""
    zmq: int
    mqtt: int
    schema: Path

    def url(self, way: str) -> str:
        """Return where a peer of a protocol connects to."""
        return {
            "umq": f"umq+ws://127.0.0.1:{self.http}",
            "umq36": f"umq36+ws://127.0.0.1:{self.http}",
            "lrpm-json": f"lrpm+ws://127.0.0.1:{self.http}",
            "lrpm-cbor": f"lrpm+ws://127.0.0.1:{self.http}?encoding=cbor",
            "nq": f"nq+ws://127.0.0.1:{self.http}",
            "nq over ZeroMQ": f"nq+zmq://127.0.0.1:{self.zmq}",
            "mqtt-rpc": f"mqtt://127.0.0.1:{self.mqtt}",
        }[way]


class Company:
    """All of them, from the first to come in to the last to leave: `async with Company(places, ledger) as company:`."""

    def __init__(self, places: Places, ledger: Ledger) -> None:
        self._places = places
        self._ledger = ledger
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.clients: list[Client] = []
        self.trouble: deque[str] = deque(maxlen=_MOST)
        """What went wrong that is no part of the show, the latest of it."""
        self.is_resting = asyncio.Event()
        """While it is set, nothing is measured."""

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*map(self._serve, PROTOCOLS))
            found = await asyncio.gather(*map(self._connect, PROTOCOLS))
        except BaseException:
            await self._leave()
            raise
        self.clients += found
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def _keep(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Have something done for as long as the show is on; if it ends with an error, that is trouble."""

        async def kept() -> None:
            try:
                await work
            except FivewaysError as exc:
                self.trouble.append(f"{what}: {exc}")

        self._tasks.append(asyncio.create_task(kept(), name=f"fiveways.demo.{what}"))

    # Services.

    async def _serve(self, protocol: str) -> None:
        if protocol == "mqtt-rpc":
            await self._serve_greenhouse()
            return
        peer = await self._peer(protocol)
        made: dict[str, App] = {
            "umq": cast.front(),
            "umq36": cast.till(),
            "lrpm-json": cast.books(),
            "lrpm-cbor": cast.prices(),
            "nq": cast.orders(self._ledger, peer),
        }
        await peer.serve(made[protocol])
        if protocol == "lrpm-json":
            self._keep(self._pack(peer), "packing")

    async def _serve_greenhouse(self) -> None:
        device = await self._device()
        known = load([self._places.schema])[f"{schema.PACKAGE}.Greenhouse"]
        greenhouse = cast.Greenhouse(known)
        await self._stack.enter_async_context(device.serve(known, greenhouse))
        self._keep(self._measure(device, greenhouse), "measuring")

    async def _measure(self, device: MqttPeer, greenhouse: cast.Greenhouse) -> None:
        """Publish how warm each bed is."""
        while True:
            await asyncio.sleep(_MEASURED_EVERY)
            if self.is_resting.is_set():
                continue
            for bed in cast.MEASURED:
                await device.publish(f"sensors/bed{bed}/temperature", greenhouse.temperature(bed, time.monotonic()))
                self._ledger.publications += 1

    async def _pack(self, peer: Peer) -> None:
        """Take orders from the queue, one after the other."""
        while True:
            async with peer.pull(cast.PACKING) as job:
                self._ledger.jobs += 1
                if self._ledger.jobs % _NOTED_EVERY == 1 and isinstance(job.data, dict):
                    self._ledger.tell(f"order {job.data.get('order')} is packed (queue, nq ► lrpm-json)")

    # Clients.

    async def _connect(self, protocol: str) -> Client:
        peer: Peer | MqttPeer
        if protocol == "mqtt-rpc":
            peer = await self._device()
            self._keep(
                self._read_broker(await self._stack.enter_async_context(peer.subscribe("shop/#"))), "news by MQTT"
            )
        else:
            # Of the two ways that NQ's peers go, services take the one and clients the other.
            peer = await self._peer("nq over ZeroMQ" if protocol == "nq" else protocol)
            for pattern in (cast.SENSORS, cast.NEWS):
                events = await self._stack.enter_async_context(peer.subscribe(pattern))
                self._keep(self._read(protocol, events), f"news by {protocol}")
        return Client(protocol, peer, self._ledger, Random(protocol))  # noqa: S311  a show is no secret

    async def _read(self, protocol: str, events: Subscription) -> None:
        async for event in events:
            self._ledger.heard(protocol, event.topic, event.data)

    async def _read_broker(self, events: MqttSubscription) -> None:
        async for event in events:
            self._ledger.heard("mqtt-rpc", event.topic.replace("/", "."), event.data)

    # Connections.

    async def _peer(self, way: str) -> Peer:
        return await self._stack.enter_async_context(connect(self._places.url(way)))

    async def _device(self) -> MqttPeer:
        opening = connect_mqtt(self._places.url("mqtt-rpc"), schema=[self._places.schema])
        return await self._stack.enter_async_context(opening)
