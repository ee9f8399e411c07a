"""A relay of packets between two TUN devices with loss, delay, reordering and partitions, by seeded random numbers."""

import asyncio
import os
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

_MTU: Final = 2048
_AT_ONCE: Final = 64
"""Packets that are read before other tasks get their turn."""
_MAX_WAITING: Final = 2000
"""Limit of packets in flight in one direction; further packets are dropped, as by a router."""
_STEP: Final = 0.002
"""Seconds added to half of the delay for a reordered packet."""


@dataclass(frozen=True)
class Conditions:
    """The state of one direction."""

    loss: float = 0.0
    """Fraction of packets that are dropped."""
    delay: float = 0.0
    """Seconds that each packet takes."""
    jitter: float = 0.0
    """Upper limit of additional seconds, random per packet."""
    reorder: float = 0.0
    """Fraction of packets that others overtake."""
    is_cut: bool = False
    """Whether all packets are dropped."""


class Direction:
    """The relay from one device to the other."""

    def __init__(self, source: int, target: int, random: Random) -> None:
        self.conditions = Conditions()
        self.passed = 0
        self.dropped = 0
        self._source = source
        self._target = target
        self._random = random
        self._waiting = 0
        self._queue: deque[tuple[float, bytes]] = deque()
        """Packets in order with their due times. Timers that are due at the same time would not keep the order."""
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Start to relay."""
        self._loop.add_reader(self._source, self._read)

    def stop(self) -> None:
        """Stop to relay."""
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
        if conditions.is_cut or random.random() < conditions.loss or self._waiting >= _MAX_WAITING:
            self.dropped += 1
            return
        due = self._loop.time() + conditions.delay + random.random() * conditions.jitter
        self._waiting += 1
        if random.random() < conditions.reorder:
            self._loop.call_at(due + conditions.delay / 2 + _STEP, self._write, packet)
            return
        self._queue.append((due, packet))
        if len(self._queue) == 1:
            self._loop.call_at(due, self._write_due)

    def _write_due(self) -> None:
        """Write the first packet and all following ones that are due."""
        queue, now = self._queue, self._loop.time()
        self._write(queue.popleft()[1])
        while queue and queue[0][0] <= now:
            self._write(queue.popleft()[1])
        if queue:
            self._loop.call_at(queue[0][0], self._write_due)

    def _write(self, packet: bytes) -> None:
        self._waiting -= 1
        if self.conditions.is_cut:
            self.dropped += 1
            return
        try:
            os.write(self._target, packet)
            self.passed += 1
        except OSError:  # the queue of the device is full, or the device is gone
            self.dropped += 1
