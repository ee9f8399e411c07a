"""Those who answer: they come and go at random."""

import asyncio
from random import Random
from typing import Final

import fiveways
from chaos.requesters import METHOD, answer_to
from fiveways.errors import FivewaysError

_PROTOCOLS: Final = ("lrpm", "umq", "umq36")


class Service:
    """One that leaves and returns until it is told to stay."""

    def __init__(self, number: int, port: int, random: Random) -> None:
        self._url = f"{_PROTOCOLS[number % len(_PROTOCOLS)]}+ws://127.0.0.1:{port}"
        self._random = random
        self.runs = 0
        self.is_known = asyncio.Event()
        """It has offered its method at least once: what was never offered is refused, and rightly so."""
        self.stays = asyncio.Event()
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Leave for good."""
        self.stays.set()
        self._ended.set()

    async def run(self) -> None:
        """Serve, leave, return."""
        while not self._ended.is_set():
            try:
                async with fiveways.connect(self._url, backoff=(0.05, 0.2), timeout=5.0) as peer:
                    await peer.register(METHOD, self._work)
                    self.is_known.set()
                    await self._stay()
            except (FivewaysError, OSError):
                await asyncio.sleep(0.05)
            if not self.stays.is_set():
                await asyncio.sleep(self._random.uniform(0.0, 0.3))

    async def _stay(self) -> None:
        """Stay a while; and once all should stay, to the end."""
        try:
            await asyncio.wait_for(self.stays.wait(), self._random.uniform(0.2, 3.0))
        except TimeoutError:
            return
        await self._ended.wait()

    async def _work(self, n: int) -> dict[str, object]:
        """Take a little time, or none."""
        self.runs += 1
        if self._random.random() < 0.05:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
        return answer_to(n)
