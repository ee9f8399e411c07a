"""One run of the demo, from an empty folder to the last page."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fiveways.demo import demo_hub, spark_client
from fiveways.demo.demo_hub import DemoHub, RunFolder
from fiveways.demo.progress import DemoProgress, DemoStep
from fiveways.demo.shop_peers import ShopPeers
from fiveways.demo.shop_traffic import FULL_RATE, IDLE_RATE, ShopTraffic
from fiveways.demo.spark_client import SparkClient
from fiveways.demo.stats import DemoStats
from fiveways.demo.summary import DemoOutcome
from fiveways.demo.views import create_view

_SPARK_SECONDS: Final = 15.0
"""Seconds that Spark takes at the end, about: it has made tables once before."""
_MIN_TRAFFIC_SHARE: Final = 0.5
"""Of a short run, so much is traffic all the same."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the user typed."""

    seconds: float = 60.0
    keep: bool = False
    port: int | None = None
    plain: bool = False
    pipeline: bool = True
    directory: Path | None = None


class DemoRun:
    """Everything that happens in one run."""

    def __init__(self, wish: DemoOptions, told: Callable[[DemoOutcome, float], None]) -> None:
        """Make it, and its folder; `told` prints the last page, after so many seconds."""
        self._options = wish
        self._print_summary = told
        self._stats = DemoStats()
        demo_hub.check_port(wish.port)
        self.outcome = DemoOutcome(RunFolder.create(wish.directory), self._stats)
        if wish.pipeline:
            self.outcome.missing_requirement = spark_client.missing_requirement()
        self._has_spark = wish.pipeline and not self.outcome.missing_requirement
        steps = [
            DemoStep.HUB,
            DemoStep.TRAFFIC,
            *([DemoStep.JOURNAL, DemoStep.TABLES, DemoStep.REPORT] if self._has_spark else []),
        ]
        self._progress = DemoProgress(wish.seconds, tuple(steps))
        self._hub = DemoHub(self.outcome.folder, wish.port)

    async def run(self) -> DemoOutcome:
        """Do all of it, and return how it went; NoStage if it cannot begin, or if the hub ends before it should."""
        wish, outcome, programme = self._options, self.outcome, self._progress
        async with AsyncExitStack() as house:
            async with AsyncExitStack() as viewing:
                await viewing.enter_async_context(create_view(programme, self._stats, plain=wish.plain))
                await house.enter_async_context(self._hub)
                outcome.dashboard, outcome.endpoints = self._hub.dashboard, self._hub.endpoints
                self._add_start_notes()
                spark = await viewing.enter_async_context(self._spark_client()) if self._has_spark else None
                company = await house.enter_async_context(ShopPeers(self._hub.endpoints, self._stats))
                show = ShopTraffic(company, self._stats)
                await self._while_hub_runs(self._run_traffic(show, spark))
                if spark is not None:
                    await self._while_hub_runs(self._run_analysis(spark))
            outcome.failures += [
                f"{caller} never got an answer from {callee}" for caller, callee in self._stats.missing_pairs()
            ]
            outcome.failures += company.errors
            if wish.keep:
                self._print_summary(outcome, programme.elapsed)
                await self._keep_running(show)
        outcome.endpoints = None
        if not wish.keep:
            self._print_summary(outcome, programme.elapsed)
        return outcome

    def _add_start_notes(self) -> None:
        programme = self._progress
        programme.dashboard = self.outcome.dashboard
        programme.notes += self._hub.ports.non_default() if self._options.port is None else []
        programme.notes.append(f"the dashboard is at {self.outcome.dashboard} while this runs")
        if self.outcome.missing_requirement:
            programme.notes.append(f"there will be no tables and no report: {self.outcome.missing_requirement}")

    async def _while_hub_runs(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for which the hub has to be there."""
        doing, gone = asyncio.create_task(work), asyncio.create_task(self._hub.wait_for_exit())
        try:
            await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
            await (doing if doing.done() else gone)
        finally:
            doing.cancel()
            gone.cancel()
            await asyncio.gather(doing, gone, return_exceptions=True)

    async def _run_traffic(self, show: ShopTraffic, spark: SparkClient | None) -> None:
        programme, wish = self._progress, self._options
        programme.step = DemoStep.TRAFFIC
        await show.call_every_service()
        if self._stats.first_call_at is not None:
            self.outcome.first_call_seconds = self._stats.first_call_at - programme.started_at
            programme.notes.append(f"the first call was answered after {self.outcome.first_call_seconds:.1f} s")
        end = wish.seconds if spark is None else max(wish.seconds - _SPARK_SECONDS, wish.seconds * _MIN_TRAFFIC_SHARE)
        await show.run(FULL_RATE, max(0.0, end - programme.elapsed))
        show.pause()

    async def _run_analysis(self, spark: SparkClient) -> None:
        """Have tables made, and the report; what goes wrong there is told at the end."""
        programme, outcome = self._progress, self.outcome
        spark.skip_warm_up()
        try:
            programme.step = DemoStep.JOURNAL
            await spark_client.wait_for_closed_segments(outcome.folder)
            programme.step = DemoStep.TABLES
            told = await spark.make_tables()
            programme.step = DemoStep.REPORT
            await spark.make_report()
        except spark_client.AnalysisFailed as exc:
            outcome.failures.append(str(exc))
            return
        outcome.table_rows, outcome.unreadable = told["rows"], told["unreadable"]
        outcome.report_seconds = programme.elapsed

    def _spark_client(self) -> SparkClient:
        def told(what: str) -> None:
            self._progress.spark_status = what

        return SparkClient(self.outcome.folder, told)

    async def _keep_running(self, show: ShopTraffic) -> None:
        """Go on slowly until somebody has enough, which is a good end then."""
        task = asyncio.current_task()
        try:
            await self._while_hub_runs(show.run(IDLE_RATE, None))
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()
