"""The process of the healthy peer: it pings the hub over UMQ, and counts refused newcomers.

It prints one JSON object for each line that it reads.
"""

import asyncio
import json
import sys
from contextlib import suppress
from statistics import quantiles
from time import perf_counter
from typing import Final

import uvloop

from chaos.attacks.raw_sockets import RawSocket, answer, connect, post, upgrade

ADDRESS: Final = "127.0.0.9"
_PAUSE: Final = 0.02
_TIMEOUT: Final = 30.0


class PingingPeer:
    """The healthy peer, and its measurements since the last report."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = f"Authorization: Bearer {token}\r\n" if token else ""
        self.pings: list[float] = []
        self.is_lost = False
        self.tried = self.refused = 0
        self._ping_sent_at = 0.0
        """Time of the pending ping, or 0."""

    async def ping(self) -> None:
        """Ping until the process ends."""
        try:
            wire = await upgrade(self._port, "/umq", ADDRESS, headers=self._headers, hello="H1.0.0\n")
            while True:
                self._ping_sent_at = perf_counter()
                await wire.ask("M1\nhub:ping\n")
                self.pings.append(perf_counter() - self._ping_sent_at)
                self._ping_sent_at = 0.0
                await asyncio.sleep(_PAUSE)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.is_lost = True

    async def open_as_newcomer(self) -> None:
        """Connect repeatedly as a newcomer: by WebSocket, POST and health check."""
        while True:
            for newcomer in (self._open, self._post, self._check):
                self.tried += 1
                try:
                    async with asyncio.timeout(_TIMEOUT):
                        self.refused += not await newcomer()
                except (OSError, asyncio.IncompleteReadError, TimeoutError):
                    self.refused += 1
            await asyncio.sleep(0.2)

    async def _open(self) -> bool:
        wire = await upgrade(self._port, "/umq", ADDRESS, headers=self._headers)
        try:
            return (await wire.ask("H1.0.0\n")).startswith("W")
        finally:
            wire.reset()

    async def _post(self) -> bool:
        return await self._status(post(b'{"t":"hub-ping","r":"1"}', headers=self._headers)) == 200

    async def _check(self) -> bool:
        return await self._status(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200

    async def _status(self, request: bytes) -> int:
        wire: RawSocket = await connect(self._port, ADDRESS)
        try:
            wire.writer.write(request)
            return (await answer(wire))[0]
        finally:
            wire.reset()

    def report(self) -> dict[str, float]:
        """Return the numbers since the last report; a pending ping counts with its time so far."""
        durations = [*self.pings, perf_counter() - self._ping_sent_at] if self._ping_sent_at else self.pings
        report: dict[str, float] = {
            "tried": self.tried,
            "refused": self.refused,
            "lost": self.is_lost,
            "pings": len(durations),
        }
        if len(durations) > 1:
            cuts = quantiles(durations, n=20, method="inclusive")
            report |= {"p50": cuts[9] * 1000, "p95": cuts[18] * 1000, "max": max(durations) * 1000}
        self.pings, self.tried, self.refused = [], 0, 0
        return report


async def main(port: int, token: str) -> None:
    """Print a report for each line of the standard input until it ends."""
    healthy = PingingPeer(port, token)
    tasks = [asyncio.create_task(healthy.ping()), asyncio.create_task(healthy.open_as_newcomer())]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps(healthy.report()), flush=True)
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
