"""The show: everybody greets everybody, and then calls go to and fro at an easy pace."""

import asyncio
from contextlib import suppress
from typing import Final

from fiveways.demo.client_actions import DemoClient
from fiveways.demo.shop_peers import ShopPeers
from fiveways.demo.stats import CALLEES, DemoStats
from fiveways.errors import FivewaysError

FULL_RATE: Final = 100.0
"""Things that all clients together do each second, while somebody looks at the numbers."""
IDLE_RATE: Final = 5.0
"""And when all is told, so that the dashboard lives."""
_MAX_IN_FLIGHT: Final = 30
"""Things that one client has under way at once; beyond them it waits."""
_FINISH_TIMEOUT: Final = 12.0
"""Seconds for what is under way to end."""


class ShopTraffic:
    """What the clients of a company do."""

    def __init__(self, company: ShopPeers, ledger: DemoStats) -> None:
        self._peers = company
        self._stats = ledger

    async def call_every_service(self) -> None:
        """Let every client call every service once, one client after the other, and then do each thing that it does."""
        for client in self._peers.clients:
            for callee in CALLEES:
                if (client.protocol, callee) != ("mqtt-rpc", "mqtt-rpc"):
                    await client.call_service(callee)
        await asyncio.gather(*(client.run_each_action() for client in self._peers.clients))

    async def run(self, rate: float, seconds: float | None) -> None:
        """Let all clients do `rate` things a second together, for so long or for ever; what was begun is finished."""
        self._peers.is_paused.clear()
        pause, over = len(self._peers.clients) / rate, asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in self._peers.clients:
                group.create_task(self._run_client(client, pause, over))
            if seconds is not None:
                await asyncio.sleep(seconds)
                over.set()

    def pause(self) -> None:
        """Let nothing more be said."""
        self._peers.is_paused.set()

    async def _run_client(self, client: DemoClient, pause: float, over: asyncio.Event) -> None:
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not over.is_set():
                if len(under_way) < _MAX_IN_FLIGHT:
                    task = asyncio.create_task(self._run_action(client))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), client.next_delay(pause))
            if under_way:
                await asyncio.wait(under_way, timeout=_FINISH_TIMEOUT)
        finally:
            for task in under_way:
                task.cancel()

    async def _run_action(self, client: DemoClient) -> None:
        try:
            await client.run_random_action()
        except FivewaysError as exc:  # of what is no call: a publication, a token
            self._peers.errors.append(f"{client.name}: {exc}")
