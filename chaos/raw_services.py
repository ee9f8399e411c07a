"""Services over raw WebSockets, in LRPM and UMQ, that disconnect and reconnect at random."""

import asyncio
from itertools import count
from random import Random
from typing import Final

from chaos.hubs import HubAddress
from chaos.methods import answer_to
from chaos.participants import Participant, Report
from chaos.raw_peers import RawPeer, Refused, Reply, Value
from chaos.raw_websocket import ConnectionGone

_RUNS: Final = count(1)
"""Numbers the runs of all methods."""


class RawService(Participant):
    """Serves some methods, and registers them again after each connection loss."""

    is_background = True

    def __init__(
        self, hub: HubAddress, random: Random, kind: type[RawPeer], methods: tuple[str, ...], token: str = ""
    ) -> None:
        super().__init__(hub, random)
        self._kind = kind
        self._methods = methods
        self._token = token
        self._report = Report("raw services")
        self.has_registered = asyncio.Event()

    def report(self) -> Report:
        """Return the number of runs."""
        return self._report

    async def run(self) -> None:
        """Serve, disconnect, reconnect."""
        while True:
            try:
                async with await self._kind.connect(self.hub.host, self.hub.port, self._token) as peer:
                    for method in self._methods:
                        peer.call_handlers[method] = lambda body, reply, name=method: self._work(name, body, reply)  # type: ignore[misc]
                        await peer.call("hub.register", {"name": method})
                    self.has_registered.set()
                    await self._stay(peer)
            except Refused as exc:
                if not exc.is_absence:
                    self._report.failures.append(f"register: {exc}")
                await asyncio.sleep(0.05)
            except ConnectionGone:
                await asyncio.sleep(0.05)
            if not self.is_finishing:
                await asyncio.sleep(self.random.uniform(0.0, 0.3))

    async def _stay(self, peer: RawPeer) -> None:
        """Stay connected for a random time, or after `finish` to the end."""
        gone, finishing = asyncio.create_task(peer.gone()), asyncio.create_task(self.finishing.wait())
        try:
            await asyncio.wait(
                [gone, finishing], timeout=self.random.uniform(0.2, 3.0), return_when=asyncio.FIRST_COMPLETED
            )
            if self.is_finishing:
                await gone
        finally:
            gone.cancel()
            finishing.cancel()

    def _work(self, method: str, body: Value, reply: Reply) -> None:
        """Reply at once, or with probability 0.05 after a delay."""
        number = body[0] if isinstance(body, list) else body
        if not isinstance(number, int):
            self._report.wrong.append(f"{method} was called with {body!r}")
            reply(False, f"not a number: {body!r}")
            return
        self._report.figures["runs"] += 1
        answer = answer_to(number)
        if method.endswith("stamped"):
            answer["run"] = next(_RUNS)
        if self.random.random() < 0.05:
            asyncio.get_running_loop().call_later(self.random.uniform(0.0, 0.2), reply, True, answer)
        else:
            reply(True, answer)
