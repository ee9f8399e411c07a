"""Services with the hub's own client that disconnect and reconnect at random."""

import asyncio
from random import Random
from typing import Final

import fiveways
from chaos.hubs import HubAddress
from chaos.methods import METHOD, answer_to
from chaos.participants import Participant, Report
from fiveways.errors import FivewaysError

_PROTOCOLS: Final = ("lrpm", "umq", "umq36")


class Service(Participant):
    """Serves a method, and disconnects and reconnects until it is told to stay."""

    is_background = True

    def __init__(self, hub: HubAddress, random: Random, number: int) -> None:
        super().__init__(hub, random)
        self._url = f"{_PROTOCOLS[number % len(_PROTOCOLS)]}+ws://{hub.host}:{hub.port}"
        self._runs = 0
        self.has_registered = asyncio.Event()
        """Set after the first registration: the hub refuses requests for a method that was never registered."""

    def report(self) -> Report:
        """Return the number of runs."""
        report = Report("services")
        report.figures["runs"] = self._runs
        return report

    async def run(self) -> None:
        """Serve, disconnect, reconnect."""
        while True:
            try:
                async with fiveways.connect(self._url, backoff=(0.05, 0.2), timeout=5.0) as peer:
                    await peer.register(METHOD, self._work)
                    self.has_registered.set()
                    await self._stay()
            except (FivewaysError, OSError):
                await asyncio.sleep(0.05)
            if not self.is_finishing:
                await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def _stay(self) -> None:
        """Stay connected for a random time, or after `finish` to the end."""
        try:
            await asyncio.wait_for(self.finishing.wait(), self.random.uniform(0.2, 3.0))
        except TimeoutError:
            return
        await asyncio.Event().wait()

    async def _work(self, n: int) -> dict[str, object]:
        """Return the result, with probability 0.05 after a delay."""
        self._runs += 1
        if self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
        return answer_to(n)
