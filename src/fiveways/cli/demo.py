"""Options and help of `fiveways demo`, and its exit code."""

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fiveways.cli.errors import ExitCode, UsageError, print_stderr

if TYPE_CHECKING:
    from fiveways.demo.run import DemoRun
    from fiveways.demo.summary import DemoOutcome

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNAL_EXIT_BASE: Final = 128
"""Shells report 128 plus the signal number for a program that a signal ended."""


def demo(
    *,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, metavar="SECONDS", help="The approximate duration of the demo.")
    ] = 60.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the hub and its dashboard running after the report, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="The port of the hub, 0 for any free port; by default 7500, or another if 7500 is in use.",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines instead of a live view; the default without a terminal.")
    ] = False,
    no_pipeline: Annotated[bool, typer.Option("--no-pipeline", help="Skip Spark and the report.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An empty directory for the results; by default fiveways-demo, or fiveways-demo-2, -3, ...",
        ),
    ] = None,
) -> None:
    """Run a demonstration: a hub, clients in six protocols, and a report made by Spark.

    The demo is a flower shop with a service and a client in each protocol, a
    device behind an MQTT broker, and a plain ZeroMQ program. They call each
    other, and some calls fail on purpose. The hub records all frames in a
    journal. At the end, Spark builds tables and a report from the journal.
    The demo needs no network; without Java it skips the report.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/demo.md

    [bold]Examples[/bold]

      fiveways demo
      fiveways demo --keep
      fiveways demo --seconds 20 --no-pipeline --directory /tmp/shop
    """
    import asyncio  # noqa: PLC0415  not needed for help

    from fiveways.demo.demo_hub import BadFolder  # noqa: PLC0415
    from fiveways.demo.run import DemoOptions, DemoRun  # noqa: PLC0415

    try:
        run = DemoRun(DemoOptions(seconds, keep, port, plain, not no_pipeline, directory), _print_summary)
    except BadFolder as exc:
        raise UsageError(f"--directory {exc}") from exc
    # Warnings of clients about lost connections would break the live view.
    logging.basicConfig(filename=run.outcome.folder.log, level=logging.WARNING, format="%(name)s: %(message)s")
    outcome, ended_by = asyncio.run(_run_until_signal(run))
    if ended_by is not None:
        print_stderr(f"fiveways demo: stopped; the files so far are in {run.outcome.folder.path}")
        raise typer.Exit(_SIGNAL_EXIT_BASE + ended_by)
    raise typer.Exit(ExitCode.FAILED if outcome is None or outcome.failures else ExitCode.OK)


async def _run_until_signal(run: "DemoRun") -> "tuple[DemoOutcome | None, int | None]":
    """Run the demo; return its outcome, or None and the number of the signal that ended it."""
    import asyncio  # noqa: PLC0415

    from fiveways.demo import processes  # noqa: PLC0415

    loop, ended_by = asyncio.get_running_loop(), list[int]()
    task = asyncio.create_task(run.run())

    def on_signal(signal_number: int) -> None:
        if ended_by:
            processes.kill_all()  # a second signal ends the demo at once
        ended_by.append(signal_number)
        task.cancel()

    for signal_number in _STOP_SIGNALS:
        loop.add_signal_handler(signal_number, on_signal, signal_number)
    try:
        return await task, None
    except asyncio.CancelledError:
        return None, ended_by[0]


def _print_summary(outcome: "DemoOutcome", seconds: float) -> None:
    from fiveways.cli.program import program_command  # noqa: PLC0415
    from fiveways.demo import summary  # noqa: PLC0415

    summary.print_summary(outcome, seconds, program_command())
