"""Views of a run: a live screen on a terminal, else lines."""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from fiveways.demo.live_view import MIN_SIZE, render_view
from fiveways.demo.progress import CallRate, DemoProgress, DemoStep
from fiveways.demo.stats import PROTOCOLS, DemoStats

_SAMPLE_INTERVAL: Final = 1.0
"""Seconds between two samples of the call rate."""
_DRAW_INTERVAL: Final = 0.25
_STATUS_INTERVAL: Final = 5.0


class View(ABC):
    """A view of a run: `async with create_view(...):`."""

    def __init__(self, progress: DemoProgress, stats: DemoStats) -> None:
        self._progress = progress
        self._stats = stats
        self._rate = CallRate(stats)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._sample_rates()), asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _sample_rates(self) -> None:
        while True:
            self._rate.sample(time.monotonic())
            await asyncio.sleep(_SAMPLE_INTERVAL)

    @abstractmethod
    async def _run(self) -> None:
        """Update the view until cancelled."""


class ScreenView(View):
    """The live view on the whole terminal, drawn four times per second."""

    def __init__(self, progress: DemoProgress, stats: DemoStats, console: Console) -> None:
        super().__init__(progress, stats)
        self._console = console

    async def _run(self) -> None:
        with Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
            while True:
                width, height = self._console.size
                live.update(render_view(self._progress, self._stats, self._rate, width, height), refresh=True)
                await asyncio.sleep(_DRAW_INTERVAL)


class LineView(View):
    """A line per step, and a status line every few seconds."""

    def __init__(self, progress: DemoProgress, stats: DemoStats) -> None:
        super().__init__(progress, stats)
        self._printed_notes = 0

    async def _run(self) -> None:
        step: DemoStep | None = None
        printed_at = 0.0
        while True:
            self._print_notes()
            if self._progress.step is not step:
                step, printed_at = self._progress.step, time.monotonic()
                self._print(step.value)
            elif time.monotonic() - printed_at >= _STATUS_INTERVAL:
                printed_at = time.monotonic()
                self._print(self._status_line())
            await asyncio.sleep(_DRAW_INTERVAL)

    async def __aexit__(self, *args: object) -> None:
        await super().__aexit__(*args)
        self._print_notes()

    def _print_notes(self) -> None:
        for note in self._progress.notes[self._printed_notes :]:
            self._print(note)
        self._printed_notes = len(self._progress.notes)

    def _status_line(self) -> str:
        stats, call_rate = self._stats, self._rate
        rates = ", ".join(f"{protocol} {call_rate.rate(protocol):.0f}" for protocol in PROTOCOLS)
        spark = f"; Spark: {self._progress.spark_status}" if self._progress.spark_status else ""
        if self._progress.step not in {DemoStep.HUB, DemoStep.TRAFFIC}:
            return spark.removeprefix("; ")
        return f"{stats.calls:,} calls, {call_rate.total_rate():.0f}/s ({rates}), {stats.failed:,} failed{spark}"

    def _print(self, text: str) -> None:
        print(f"{self._progress.elapsed:5.1f} s  {text}", flush=True)  # noqa: T201


def create_view(progress: DemoProgress, stats: DemoStats, *, plain: bool, console: Console | None = None) -> View:
    """Return the screen on a sufficiently large terminal, unless `plain` is set; else lines."""
    console = console or Console(highlight=False)
    is_dumb = os.environ.get("TERM") in {"dumb", "unknown"} or bool(os.environ.get("NO_COLOR"))
    fits = console.width >= MIN_SIZE[0] and console.height >= MIN_SIZE[1]
    if plain or is_dumb or not console.is_terminal or not fits:
        return LineView(progress, stats)
    return ScreenView(progress, stats, console)
