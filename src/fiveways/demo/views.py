"""Two ways to show a run: a screen that changes, for who sits in front of it, and lines for everybody else."""

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

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the numbers."""
_DRAW_EVERY: Final = 0.25
_SAY_EVERY: Final = 5.0


class View(ABC):
    """Shows a run from the beginning to the end: `async with view_for(...):`."""

    def __init__(self, programme: DemoProgress, ledger: DemoStats) -> None:
        self._progress = programme
        self._stats = ledger
        self._rate = CallRate(ledger)
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
            await asyncio.sleep(_LOOK_EVERY)

    @abstractmethod
    async def _run(self) -> None:
        """Show it until nobody looks any more."""


class ScreenView(View):
    """The whole terminal, drawn anew four times a second."""

    def __init__(self, programme: DemoProgress, ledger: DemoStats, console: Console) -> None:
        super().__init__(programme, ledger)
        self._console = console

    async def _run(self) -> None:
        with Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
            while True:
                width, height = self._console.size
                live.update(render_view(self._progress, self._stats, self._rate, width, height), refresh=True)
                await asyncio.sleep(_DRAW_EVERY)


class LineView(View):
    """A line for each step, and every few seconds one with numbers."""

    def __init__(self, programme: DemoProgress, ledger: DemoStats) -> None:
        super().__init__(programme, ledger)
        self._printed_notes = 0

    async def _run(self) -> None:
        step: DemoStep | None = None
        spoken = 0.0
        while True:
            self._print_notes()
            if self._progress.step is not step:
                step, spoken = self._progress.step, time.monotonic()
                self._print(step.value)
            elif time.monotonic() - spoken >= _SAY_EVERY:
                spoken = time.monotonic()
                self._print(self._status_line())
            await asyncio.sleep(_DRAW_EVERY)

    async def __aexit__(self, *args: object) -> None:
        await super().__aexit__(*args)
        self._print_notes()

    def _print_notes(self) -> None:
        for note in self._progress.notes[self._printed_notes :]:
            self._print(note)
        self._printed_notes = len(self._progress.notes)

    def _status_line(self) -> str:
        ledger, pace = self._stats, self._rate
        shares = ", ".join(f"{protocol} {pace.rate(protocol):.0f}" for protocol in PROTOCOLS)
        spark = f"; Spark: {self._progress.spark_status}" if self._progress.spark_status else ""
        if self._progress.step not in {DemoStep.HUB, DemoStep.TRAFFIC}:
            return spark.removeprefix("; ")
        return f"{ledger.calls:,} calls, {pace.total_rate():.0f}/s ({shares}), {ledger.failed:,} failed{spark}"

    def _print(self, text: str) -> None:
        print(f"{self._progress.elapsed:5.1f} s  {text}", flush=True)  # noqa: T201


def create_view(programme: DemoProgress, ledger: DemoStats, *, plain: bool, console: Console | None = None) -> View:
    """Return the screen if there is one that is large enough and nobody asked for lines."""
    console = console or Console(highlight=False)
    is_dumb = os.environ.get("TERM") in {"dumb", "unknown"} or bool(os.environ.get("NO_COLOR"))
    fits = console.width >= MIN_SIZE[0] and console.height >= MIN_SIZE[1]
    if plain or is_dumb or not console.is_terminal or not fits:
        return LineView(programme, ledger)
    return ScreenView(programme, ledger, console)
