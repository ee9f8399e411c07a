"""Retained values: publishers publish rising numbers, and subscribers subscribe again and again.

A new subscriber must get a value that is not older than the last acknowledged one, and that was published. Most
publishers wait after each start until their value was read, so a new publication cannot hide a lost one.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import Final

from chaos.hubs import HubAddress
from chaos.participants import Participant, Report
from chaos.raw_peers import KINDS, RawPeer, Refused
from chaos.raw_websocket import ConnectionGone

TOPICS: Final = 3
_PAUSE: Final = 0.05
_PATIENCE: Final = 3.0


class RetainedWriter(Participant):
    """Publishes on its own topic."""

    def __init__(self, hub: HubAddress, random: Random, number: int) -> None:
        super().__init__(hub, random)
        self.topic = f"chaos.values.v{number}"
        self.sent = 0
        self.acknowledged = 0
        self.was_read = asyncio.Event()
        """Set after a reader verified its value."""
        self._waits = number > 0
        self._kind = KINDS[number % len(KINDS)]
        self._report = Report("retained")

    def report(self) -> Report:
        """Return the number of published values."""
        self._report.figures["values"] = self.sent
        return self._report

    async def run(self) -> None:
        """Publish until the run ends."""
        while not self.is_finishing:
            try:
                async with await self._kind.connect(self.hub.host, self.hub.port) as peer:
                    await self._until_read()
                    while not self.is_finishing:
                        self.sent += 1
                        number = self.sent
                        await peer.retain(self.topic, number)
                        self.acknowledged = number
                        self._report.figures["acknowledged"] += 1
                        await asyncio.sleep(self.random.uniform(0.0, 0.05))
            except Refused as exc:
                self._report.failures.append(f"retain: {exc}")
                await asyncio.sleep(_PAUSE)
            except ConnectionGone:
                await asyncio.sleep(_PAUSE)

    async def _until_read(self) -> None:
        if self._waits and self.acknowledged and not self.is_finishing:
            self.was_read.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.was_read.wait(), _PATIENCE)


class RetainedReader(Participant):
    """Subscribes over a new connection each time."""

    def __init__(self, hub: HubAddress, random: Random, writers: list[RetainedWriter]) -> None:
        super().__init__(hub, random)
        self._writers = writers
        self._lives: set[int] = set()
        self._report = Report("retained")

    def report(self) -> Report:
        """Return the number of starts of the hub that were checked."""
        self._report.figures["starts checked"] = len(self._lives)
        return self._report

    async def run(self) -> None:
        """Read until the run ends, and once more after that."""
        is_last = False
        while not is_last:
            is_last = self.is_finishing
            for kind in KINDS:
                await self._read(kind, is_last)
            await asyncio.sleep(self.random.uniform(_PAUSE, 4 * _PAUSE))

    async def _read(self, kind: type[RawPeer], is_last: bool) -> None:
        while True:
            try:
                async with await kind.connect(self.hub.host, self.hub.port) as peer:
                    for writer in self._writers:
                        await self._check(peer, writer)
            except ConnectionGone:
                await asyncio.sleep(_PAUSE)
                if is_last:
                    continue
            return

    async def _check(self, peer: RawPeer, writer: RetainedWriter) -> None:
        """Compare the first value of a new subscription with the publisher's state."""
        life, oldest = len(self.hub.lives), writer.acknowledged
        if not oldest:
            return
        first: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        await peer.subscribe(writer.topic, lambda value: None if first.done() else first.set_result(value))
        await peer.call("hub.ping")  # its response arrives after the value
        if not first.done():
            self._report.lost += 1
            self._report.wrong.append(f"{writer.topic}: no value, though {oldest} was acknowledged")
            return
        writer.was_read.set()
        value = first.result()
        self._report.figures["reads"] += 1
        self._lives.add(life)
        if not isinstance(value, int) or value > writer.sent:
            self._report.wrong.append(f"{writer.topic}: {value!r} was never published, only up to {writer.sent}")
        elif value < oldest:
            self._report.lost += 1
            self._report.wrong.append(f"{writer.topic}: {value} is older than {oldest}, which was acknowledged")
