"""One run of the demo, from an empty folder to the last page."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fiveways.demo import analysis, stage
from fiveways.demo.analysis import Analysis
from fiveways.demo.closing import Outcome
from fiveways.demo.company import Company
from fiveways.demo.ledger import Ledger
from fiveways.demo.programme import Programme, Step
from fiveways.demo.show import FULL, SLOW, Show
from fiveways.demo.stage import Folder, Stage
from fiveways.demo.views import view_for

_SPARK: Final = 15.0
"""Seconds that Spark takes at the end, about: it has made tables once before."""
_SHARE: Final = 0.5
"""Of a short run, so much is traffic all the same."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    seconds: float = 60.0
    keep: bool = False
    port: int | None = None
    plain: bool = False
    pipeline: bool = True
    directory: Path | None = None


class Run:
    """Everything that happens in one run."""

    def __init__(self, wish: Wish, told: Callable[[Outcome, float], None]) -> None:
        """Make it, and its folder; `told` prints the last page, after so many seconds."""
        self._wish = wish
        self._told = told
        self._ledger = Ledger()
        stage.check(wish.port)
        self.outcome = Outcome(Folder.fresh(wish.directory), self._ledger)
        if wish.pipeline:
            self.outcome.lacking = analysis.lacking()
        self._has_spark = wish.pipeline and not self.outcome.lacking
        steps = [Step.HUB, Step.TRAFFIC, *([Step.JOURNAL, Step.TABLES, Step.REPORT] if self._has_spark else [])]
        self._programme = Programme(wish.seconds, tuple(steps))
        self._stage = Stage(self.outcome.folder, wish.port)

    async def perform(self) -> Outcome:
        """Do all of it, and return how it went; NoStage if it cannot begin, or if the hub ends before it should."""
        wish, outcome, programme = self._wish, self.outcome, self._programme
        async with AsyncExitStack() as house:
            async with AsyncExitStack() as viewing:
                await viewing.enter_async_context(view_for(programme, self._ledger, plain=wish.plain))
                await house.enter_async_context(self._stage)
                outcome.dashboard, outcome.places = self._stage.dashboard, self._stage.places
                self._note_places()
                spark = await viewing.enter_async_context(self._spark()) if self._has_spark else None
                company = await house.enter_async_context(Company(self._stage.places, self._ledger))
                show = Show(company, self._ledger)
                await self._while_up(self._traffic(show, spark))
                if spark is not None:
                    await self._while_up(self._analyse(spark))
            outcome.failed += [
                f"{caller} never got an answer from {callee}" for caller, callee in self._ledger.missing()
            ]
            outcome.failed += company.trouble
            if wish.keep:
                self._told(outcome, programme.elapsed)
                await self._stay(show)
        outcome.places = None
        if not wish.keep:
            self._told(outcome, programme.elapsed)
        return outcome

    def _note_places(self) -> None:
        programme = self._programme
        programme.dashboard = self.outcome.dashboard
        programme.notes += self._stage.ports.unusual() if self._wish.port is None else []
        programme.notes.append(f"the dashboard is at {self.outcome.dashboard} while this runs")
        if self.outcome.lacking:
            programme.notes.append(f"there will be no tables and no report: {self.outcome.lacking}")

    async def _while_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for which the hub has to be there."""
        doing, gone = asyncio.create_task(work), asyncio.create_task(self._stage.gone())
        try:
            await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
            await (doing if doing.done() else gone)
        finally:
            doing.cancel()
            gone.cancel()
            await asyncio.gather(doing, gone, return_exceptions=True)

    async def _traffic(self, show: Show, spark: Analysis | None) -> None:
        programme, wish = self._programme, self._wish
        programme.step = Step.TRAFFIC
        await show.greetings()
        if self._ledger.first_call_at is not None:
            self.outcome.first_call = self._ledger.first_call_at - programme.began_at
            programme.notes.append(f"the first call was answered after {self.outcome.first_call:.1f} s")
        end = wish.seconds if spark is None else max(wish.seconds - _SPARK, wish.seconds * _SHARE)
        await show.play(FULL, max(0.0, end - programme.elapsed))
        show.rest()

    async def _analyse(self, spark: Analysis) -> None:
        """Have tables made, and the report; what goes wrong there is told at the end."""
        programme, outcome = self._programme, self.outcome
        spark.curtain()
        try:
            programme.step = Step.JOURNAL
            await analysis.closed(outcome.folder)
            programme.step = Step.TABLES
            told = await spark.tables()
            programme.step = Step.REPORT
            await spark.report()
        except analysis.NoAnswer as exc:
            outcome.failed.append(str(exc))
            return
        outcome.tables, outcome.unreadable = told["rows"], told["unreadable"]
        outcome.report = programme.elapsed

    def _spark(self) -> Analysis:
        def told(what: str) -> None:
            self._programme.spark = what

        return Analysis(self.outcome.folder, told)

    async def _stay(self, show: Show) -> None:
        """Go on slowly until somebody has enough, which is a good end then."""
        task = asyncio.current_task()
        try:
            await self._while_up(show.play(SLOW, None))
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()
