"""Reloads: at random moments the configuration file changes and the hub receives SIGHUP.

Tokens are rotated in two steps, as an operator does it: first both are valid, then the old one is removed. A step is
complete when the hub was observed to apply it. The rate limit changes in between.
"""

import asyncio
import secrets
from itertools import count
from random import Random
from typing import Final

from chaos.configuration import Configuration
from chaos.hubs import KillableHub
from chaos.identities import OwnerTokens
from chaos.participants import Participant, Report
from chaos.raw_peers import RawUmq, Refused
from chaos.raw_websocket import ConnectionGone

_PATIENCE: Final = 60.0
_RATES: Final = (0, 50_000, 100_000)
"""Messages per second of one session; above the rate of every participant."""


class Reloader(Participant):
    """The operator, who rotates tokens and changes the rate limit."""

    def __init__(self, hub: KillableHub, random: Random, configuration: Configuration, tokens: OwnerTokens) -> None:
        super().__init__(hub, random)
        self._process = hub
        self._configuration = configuration
        self._tokens = tokens
        self._names = count(1)
        self._report = Report("reloads")

    def report(self) -> Report:
        """Return the number of reloads and rotations."""
        return self._report

    async def run(self) -> None:
        """Change one setting at random intervals."""
        while not self.is_finishing:
            await asyncio.sleep(self.random.uniform(0.1, 0.8))
            await self._process.ready.wait()
            if self.random.random() < 0.5:
                self._configuration.rate = self.random.choice(_RATES)
                self._reload()
            else:
                await self._rotate()

    async def _rotate(self) -> None:
        configuration, tokens, new = self._configuration, self._tokens, secrets.token_hex(24)
        (old_name, old), *_ = configuration.owners.items()
        new_name = f"owner{next(self._names)}"
        configuration.owners[new_name] = new
        self._reload()
        if not await self._until(new, is_admitted=True):
            return
        tokens.valid.append(new)
        await asyncio.sleep(self.random.uniform(0.2, 1.0))
        tokens.valid.remove(old)
        del configuration.owners[old_name]
        self._reload()
        if await self._until(old, is_admitted=False):
            tokens.revoked.append(old)
            self._report.figures["rotations"] += 1

    def _reload(self) -> None:
        self._configuration.write()
        self._report.figures["reloads"] += self._process.reload()

    async def _until(self, token: str, *, is_admitted: bool) -> bool:
        """Wait until the hub admits or refuses a token."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while await self._is_admitted(token) is not is_admitted:  # noqa: ASYNC110  the hub is another process
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self._report.failures.append(f"after a reload, the hub {'refuses' if is_admitted else 'admits'} a token")
            return False
        return True

    async def _is_admitted(self, token: str) -> bool | None:
        try:
            async with await RawUmq.connect(self.hub.host, self.hub.port, token):
                return True
        except Refused:
            return False
        except ConnectionGone:
            return None
