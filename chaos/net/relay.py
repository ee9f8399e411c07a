"""Packets between two TUN devices: lost, delayed, reordered or held back, by chance from a seed."""

import asyncio
import os
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

_MTU: Final = 2048
_AT_ONCE: Final = 64
"""Packets that are read before other work gets its turn."""
_MOST_WAITING: Final = 2000
"""Packets on their way in one direction; more of them are dropped, as by a router."""
_STEP: Final = 0.002
"""Seconds that a reordered packet takes longer, besides half of the delay."""


@dataclass(frozen=True)
class Conditions:
    """The state of one direction."""

    loss: float = 0.0
    """The part of packets that are dropped."""
    delay: float = 0.0
    """Seconds that each packet takes."""
    jitter: float = 0.0
    """Seconds that some take longer, at most."""
    reorder: float = 0.0
    """The part of packets that others overtake."""
    is_cut: bool = False
    """Nothing passes."""


class Direction:
    """One way from a device to the other."""

    def __init__(self, source: int, target: int, random: Random) -> None:
        self.conditions = Conditions()
        self.passed = 0
        self.dropped = 0
        self._source = source
        self._target = target
        self._random = random
        self._waiting = 0
        self._line: deque[tuple[float, bytes]] = deque()
        """The packets that keep their order, and when each is due: timers of one moment would not."""
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to relay."""
        self._loop.add_reader(self._source, self._read)

    def stop(self) -> None:
        """Relay nothing more."""
        self._loop.remove_reader(self._source)

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(self._source, _MTU)
            except BlockingIOError:
                return
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        conditions, random = self.conditions, self._random
        if conditions.is_cut or random.random() < conditions.loss or self._waiting >= _MOST_WAITING:
            self.dropped += 1
            return
        due = self._loop.time() + conditions.delay + random.random() * conditions.jitter
        self._waiting += 1
        if random.random() < conditions.reorder:
            self._loop.call_at(due + conditions.delay / 2 + _STEP, self._write, packet)
            return
        self._line.append((due, packet))
        if len(self._line) == 1:
            self._loop.call_at(due, self._write_due)

    def _write_due(self) -> None:
        """Write the first packet, and all behind it that are due."""
        line, now = self._line, self._loop.time()
        self._write(line.popleft()[1])
        while line and line[0][0] <= now:
            self._write(line.popleft()[1])
        if line:
            self._loop.call_at(line[0][0], self._write_due)

    def _write(self, packet: bytes) -> None:
        self._waiting -= 1
        if self.conditions.is_cut:
            self.dropped += 1
            return
        try:
            os.write(self._target, packet)
            self.passed += 1
        except OSError:  # the queue of the device is full, or it is gone
            self.dropped += 1
