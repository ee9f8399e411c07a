"""Two ways to show a run: a screen that changes, for who sits in front of it, and lines for everybody else."""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from fiveways.demo.drawing import SMALLEST, drawn
from fiveways.demo.ledger import PROTOCOLS, Ledger
from fiveways.demo.programme import Pace, Programme, Step

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the numbers."""
_DRAW_EVERY: Final = 0.25
_SAY_EVERY: Final = 5.0


class View(ABC):
    """Shows a run from the beginning to the end: `async with view_for(...):`."""

    def __init__(self, programme: Programme, ledger: Ledger) -> None:
        self._programme = programme
        self._ledger = ledger
        self._pace = Pace(ledger)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._show())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _look(self) -> None:
        while True:
            self._pace.look(time.monotonic())
            await asyncio.sleep(_LOOK_EVERY)

    @abstractmethod
    async def _show(self) -> None:
        """Show it until nobody looks any more."""


class Screen(View):
    """The whole terminal, drawn anew four times a second."""

    def __init__(self, programme: Programme, ledger: Ledger, console: Console) -> None:
        super().__init__(programme, ledger)
        self._console = console

    async def _show(self) -> None:
        with Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
            while True:
                width, height = self._console.size
                live.update(drawn(self._programme, self._ledger, self._pace, width, height), refresh=True)
                await asyncio.sleep(_DRAW_EVERY)


class Lines(View):
    """A line for each step, and every few seconds one with numbers."""

    def __init__(self, programme: Programme, ledger: Ledger) -> None:
        super().__init__(programme, ledger)
        self._said = 0

    async def _show(self) -> None:
        step: Step | None = None
        spoken = 0.0
        while True:
            self._say_notes()
            if self._programme.step is not step:
                step, spoken = self._programme.step, time.monotonic()
                self._say(step.value)
            elif time.monotonic() - spoken >= _SAY_EVERY:
                spoken = time.monotonic()
                self._say(self._numbers())
            await asyncio.sleep(_DRAW_EVERY)

    async def __aexit__(self, *args: object) -> None:
        await super().__aexit__(*args)
        self._say_notes()

    def _say_notes(self) -> None:
        for note in self._programme.notes[self._said :]:
            self._say(note)
        self._said = len(self._programme.notes)

    def _numbers(self) -> str:
        ledger, pace = self._ledger, self._pace
        shares = ", ".join(f"{protocol} {pace.rate(protocol):.0f}" for protocol in PROTOCOLS)
        spark = f"; Spark: {self._programme.spark}" if self._programme.spark else ""
        if self._programme.step not in {Step.HUB, Step.TRAFFIC}:
            return spark.removeprefix("; ")
        return f"{ledger.calls:,} calls, {pace.total():.0f}/s ({shares}), {ledger.failed:,} failed{spark}"

    def _say(self, text: str) -> None:
        print(f"{self._programme.elapsed:5.1f} s  {text}", flush=True)  # noqa: T201


def view_for(programme: Programme, ledger: Ledger, *, plain: bool, console: Console | None = None) -> View:
    """Return the screen if there is one that is large enough and nobody asked for lines."""
    console = console or Console(highlight=False)
    is_dumb = os.environ.get("TERM") in {"dumb", "unknown"} or bool(os.environ.get("NO_COLOR"))
    fits = console.width >= SMALLEST[0] and console.height >= SMALLEST[1]
    if plain or is_dumb or not console.is_terminal or not fits:
        return Lines(programme, ledger)
    return Screen(programme, ledger, console)
