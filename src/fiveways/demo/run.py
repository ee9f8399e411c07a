"""One run of the demo, from the empty directory to the summary."""

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
"""Approximate seconds of the final Spark run, after a warm-up run."""
_MIN_TRAFFIC_SHARE: Final = 0.5
"""Minimum share of the run for traffic."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `fiveways demo`."""

    seconds: float = 60.0
    keep: bool = False
    port: int | None = None
    plain: bool = False
    pipeline: bool = True
    directory: Path | None = None


class DemoRun:
    """The sequence of all steps of a run."""

    def __init__(self, options: DemoOptions, print_summary: Callable[[DemoOutcome, float], None]) -> None:
        """Create the run and its directory; `print_summary` prints the summary after the given seconds."""
        self._options = options
        self._print_summary = print_summary
        self._stats = DemoStats()
        demo_hub.check_port(options.port)
        self.outcome = DemoOutcome(RunFolder.create(options.directory), self._stats)
        if options.pipeline:
            self.outcome.missing_requirement = spark_client.missing_requirement()
        self._has_spark = options.pipeline and not self.outcome.missing_requirement
        steps = [
            DemoStep.HUB,
            DemoStep.TRAFFIC,
            *([DemoStep.JOURNAL, DemoStep.TABLES, DemoStep.REPORT] if self._has_spark else []),
        ]
        self._progress = DemoProgress(options.seconds, tuple(steps))
        self._hub = DemoHub(self.outcome.folder, options.port)

    async def run(self) -> DemoOutcome:
        """Run all steps and return the outcome; StartFailed if the hub does not start or ends early."""
        options, outcome, progress = self._options, self.outcome, self._progress
        async with AsyncExitStack() as peer_stack:
            async with AsyncExitStack() as view_stack:
                await view_stack.enter_async_context(create_view(progress, self._stats, plain=options.plain))
                await peer_stack.enter_async_context(self._hub)
                outcome.dashboard, outcome.endpoints = self._hub.dashboard, self._hub.endpoints
                self._add_start_notes()
                spark = await view_stack.enter_async_context(self._spark_client()) if self._has_spark else None
                peers = await peer_stack.enter_async_context(ShopPeers(self._hub.endpoints, self._stats))
                traffic = ShopTraffic(peers, self._stats)
                await self._while_hub_runs(self._run_traffic(traffic, spark))
                if spark is not None:
                    await self._while_hub_runs(self._run_analysis(spark))
            outcome.failures += [
                f"{caller} never received a response from {callee}" for caller, callee in self._stats.missing_pairs()
            ]
            outcome.failures += peers.errors
            if options.keep:
                self._print_summary(outcome, progress.elapsed)
                await self._keep_running(traffic)
        outcome.endpoints = None
        if not options.keep:
            self._print_summary(outcome, progress.elapsed)
        return outcome

    def _add_start_notes(self) -> None:
        progress = self._progress
        progress.dashboard = self.outcome.dashboard
        progress.notes += self._hub.ports.non_default() if self._options.port is None else []
        progress.notes.append(f"dashboard: {self.outcome.dashboard}")
        if self.outcome.missing_requirement:
            progress.notes.append(f"no tables and no report: {self.outcome.missing_requirement}")

    async def _while_hub_runs(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a step; StartFailed if the hub ends meanwhile."""
        step, hub_exit = asyncio.create_task(coroutine), asyncio.create_task(self._hub.wait_for_exit())
        try:
            await asyncio.wait({step, hub_exit}, return_when=asyncio.FIRST_COMPLETED)
            await (step if step.done() else hub_exit)
        finally:
            step.cancel()
            hub_exit.cancel()
            await asyncio.gather(step, hub_exit, return_exceptions=True)

    async def _run_traffic(self, traffic: ShopTraffic, spark: SparkClient | None) -> None:
        progress, options = self._progress, self._options
        progress.step = DemoStep.TRAFFIC
        await traffic.call_every_service()
        if self._stats.first_call_at is not None:
            self.outcome.first_call_seconds = self._stats.first_call_at - progress.started_at
            progress.notes.append(f"the first response arrived after {self.outcome.first_call_seconds:.1f} s")
        end = (
            options.seconds
            if spark is None
            else max(options.seconds - _SPARK_SECONDS, options.seconds * _MIN_TRAFFIC_SHARE)
        )
        await traffic.run(FULL_RATE, max(0.0, end - progress.elapsed))
        traffic.pause()

    async def _run_analysis(self, spark: SparkClient) -> None:
        """Build the tables and the report; failures are reported in the summary."""
        progress, outcome = self._progress, self.outcome
        spark.skip_warm_up()
        try:
            progress.step = DemoStep.JOURNAL
            await spark_client.wait_for_closed_segments(outcome.folder)
            progress.step = DemoStep.TABLES
            result = await spark.make_tables()
            progress.step = DemoStep.REPORT
            await spark.make_report()
        except spark_client.AnalysisFailed as exc:
            outcome.failures.append(str(exc))
            return
        outcome.table_rows, outcome.unreadable = result["rows"], result["unreadable"]
        outcome.report_seconds = progress.elapsed

    def _spark_client(self) -> SparkClient:
        def set_status(status: str) -> None:
            self._progress.spark_status = status

        return SparkClient(self.outcome.folder, set_status)

    async def _keep_running(self, traffic: ShopTraffic) -> None:
        """Continue with slow traffic until the task is cancelled, which is a normal end."""
        task = asyncio.current_task()
        try:
            await self._while_hub_runs(traffic.run(IDLE_RATE, None))
        except asyncio.CancelledError:
            if task is not None:
                task.uncancel()
