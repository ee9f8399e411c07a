"""The show: everybody greets everybody, and then calls go to and fro at an easy pace."""

import asyncio
from contextlib import suppress
from typing import Final

from fiveways.demo.acts import Client
from fiveways.demo.company import Company
from fiveways.demo.ledger import CALLEES, Ledger
from fiveways.errors import FivewaysError

FULL: Final = 100.0
"""Things that all clients together do each second, while somebody looks at the numbers."""
SLOW: Final = 5.0
"""And when all is told, so that the dashboard lives."""
_OPEN: Final = 30
"""Things that one client has under way at once; beyond them it waits."""
_CURTAIN: Final = 12.0
"""Seconds for what is under way to end."""


class Show:
    """What the clients of a company do."""

    def __init__(self, company: Company, ledger: Ledger) -> None:
        self._company = company
        self._ledger = ledger

    async def greetings(self) -> None:
        """Let every client call every service once, one client after the other, and then do each thing that it does."""
        for client in self._company.clients:
            for callee in CALLEES:
                if (client.protocol, callee) != ("mqtt-rpc", "mqtt-rpc"):
                    await client.greet(callee)
        await asyncio.gather(*(client.rehearse() for client in self._company.clients))

    async def play(self, rate: float, seconds: float | None) -> None:
        """Let all clients do `rate` things a second together, for so long or for ever; what was begun is finished."""
        self._company.is_resting.clear()
        pause, over = len(self._company.clients) / rate, asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in self._company.clients:
                group.create_task(self._play(client, pause, over))
            if seconds is not None:
                await asyncio.sleep(seconds)
                over.set()

    def rest(self) -> None:
        """Let nothing more be said."""
        self._company.is_resting.set()

    async def _play(self, client: Client, pause: float, over: asyncio.Event) -> None:
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not over.is_set():
                if len(under_way) < _OPEN:
                    task = asyncio.create_task(self._act(client))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), client.moment(pause))
            if under_way:
                await asyncio.wait(under_way, timeout=_CURTAIN)
        finally:
            for task in under_way:
                task.cancel()

    async def _act(self, client: Client) -> None:
        try:
            await client.act()
        except FivewaysError as exc:  # of what is no call: a publication, a token
            self._company.trouble.append(f"{client.name}: {exc}")
