"""Traffic of the demo: each client calls each service once, then random actions at a steady rate."""

import asyncio
from contextlib import suppress
from typing import Final

from fiveways.demo.client_actions import DemoClient
from fiveways.demo.shop_peers import ShopPeers
from fiveways.demo.stats import CALLEES, DemoStats
from fiveways.errors import FivewaysError

FULL_RATE: Final = 100.0
"""Actions per second of all clients during the traffic step."""
IDLE_RATE: Final = 5.0
"""Actions per second with --keep, after the report."""
_MAX_IN_FLIGHT: Final = 30
"""Maximum concurrent actions per client."""
_FINISH_TIMEOUT: Final = 12.0
"""Seconds for running actions to end."""


class ShopTraffic:
    """Drives the clients of the shop."""

    def __init__(self, peers: ShopPeers, stats: DemoStats) -> None:
        self._peers = peers
        self._stats = stats

    async def call_every_service(self) -> None:
        """Call every service from every client, one client after the other.

        Then run each action of each client once.
        """
        for client in self._peers.clients:
            for callee in CALLEES:
                if (client.protocol, callee) != ("mqtt-rpc", "mqtt-rpc"):
                    await client.call_service(callee)
        await asyncio.gather(*(client.run_each_action() for client in self._peers.clients))

    async def run(self, rate: float, seconds: float | None) -> None:
        """Run `rate` random actions per second, for `seconds` or until cancelled; then wait for running actions."""
        self._peers.is_paused.clear()
        interval, stop_event = len(self._peers.clients) / rate, asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in self._peers.clients:
                group.create_task(self._run_client(client, interval, stop_event))
            if seconds is not None:
                await asyncio.sleep(seconds)
                stop_event.set()

    def pause(self) -> None:
        """Pause the background publications."""
        self._peers.is_paused.set()

    async def _run_client(self, client: DemoClient, interval: float, stop_event: asyncio.Event) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while not stop_event.is_set():
                if len(running) < _MAX_IN_FLIGHT:
                    task = asyncio.create_task(self._run_action(client))
                    running.add(task)
                    task.add_done_callback(running.discard)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop_event.wait(), client.next_delay(interval))
            if running:
                await asyncio.wait(running, timeout=_FINISH_TIMEOUT)
        finally:
            for task in running:
                task.cancel()

    async def _run_action(self, client: DemoClient) -> None:
        try:
            await client.run_random_action()
        except FivewaysError as exc:  # from publications and callbacks; failed calls are counted elsewhere
            self._peers.errors.append(f"{client.name}: {exc}")
