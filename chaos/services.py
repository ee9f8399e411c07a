"""Services with the hub's own client: they leave and return at random."""

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
    """One that leaves and returns until it is told to stay."""

    is_background = True

    def __init__(self, hub: HubAddress, random: Random, number: int) -> None:
        super().__init__(hub, random)
        self._url = f"{_PROTOCOLS[number % len(_PROTOCOLS)]}+ws://{hub.host}:{hub.port}"
        self._runs = 0
        self.is_known = asyncio.Event()
        """It has offered its method at least once: what was never offered is refused, and rightly so."""

    def report(self) -> Report:
        """Return how often the method ran."""
        report = Report("services")
        report.figures["runs"] = self._runs
        return report

    async def run(self) -> None:
        """Serve, leave, return."""
        while True:
            try:
                async with fiveways.connect(self._url, backoff=(0.05, 0.2), timeout=5.0) as peer:
                    await peer.register(METHOD, self._work)
                    self.is_known.set()
                    await self._stay()
            except (FivewaysError, OSError):
                await asyncio.sleep(0.05)
            if not self.is_finishing:
                await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def _stay(self) -> None:
        """Stay a while; and once all should stay, to the end."""
        try:
            await asyncio.wait_for(self.finishing.wait(), self.random.uniform(0.2, 3.0))
        except TimeoutError:
            return
        await asyncio.Event().wait()

    async def _work(self, n: int) -> dict[str, object]:
        """Take a little time, or none."""
        self._runs += 1
        if self.random.random() < 0.05:
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
        return answer_to(n)
