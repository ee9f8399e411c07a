"""`fiveways demo`: its options and help, and how it ends. `root` takes the command up."""

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
"""What a shell adds to the number of a signal that ended a program."""


def demo(
    *,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, metavar="SECONDS", help="How long all of it takes, about.")
    ] = 60.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay after the report, with the dashboard, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="The hub's port; 7500 if that is free, else another; 0 takes any."
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Tell it in lines, as is done where there is no terminal.")
    ] = False,
    no_pipeline: Annotated[bool, typer.Option("--no-pipeline", help="Do without Spark and the report.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An empty folder for what is left; else fiveways-demo, or -2, -3, ...",
        ),
    ] = None,
) -> None:
    """See all of it in a minute: a hub, six protocols talking through it, and what Spark makes of that.

    A flower shop: a service and a client in each protocol, a device behind an
    MQTT broker, a plain ZeroMQ program. All of them call each other, some
    calls fail as they should, and everything is written down. In the end
    Spark turns that into tables and a report. Nothing but this machine is
    needed; without Java, all but the report is there.

    Documentation: https://github.com/fiveways/fiveways/blob/main/docs/demo.md

    [bold]Examples[/bold]

      fiveways demo
      fiveways demo --keep
      fiveways demo --seconds 20 --no-pipeline --directory /tmp/shop
    """
    import asyncio  # noqa: PLC0415  help does without it

    from fiveways.demo.demo_hub import BadFolder  # noqa: PLC0415
    from fiveways.demo.run import DemoOptions, DemoRun  # noqa: PLC0415

    try:
        run = DemoRun(DemoOptions(seconds, keep, port, plain, not no_pipeline, directory), _print_summary)
    except BadFolder as exc:
        raise UsageError(f"--directory {exc}") from exc
    # What clients have to say of lost connections would spoil the view.
    logging.basicConfig(filename=run.outcome.folder.log, level=logging.WARNING, format="%(name)s: %(message)s")
    outcome, ended_by = asyncio.run(_run_until_signal(run))
    if ended_by is not None:
        print_stderr(f"fiveways demo: stopped; what there is lies in {run.outcome.folder.path}")
        raise typer.Exit(_SIGNAL_EXIT_BASE + ended_by)
    raise typer.Exit(ExitCode.FAILED if outcome is None or outcome.failures else ExitCode.OK)


async def _run_until_signal(run: "DemoRun") -> "tuple[DemoOutcome | None, int | None]":
    """Do it; return how it went, or by which signal it was ended before."""
    import asyncio  # noqa: PLC0415

    from fiveways.demo import processes  # noqa: PLC0415

    loop, ended_by = asyncio.get_running_loop(), list[int]()
    performing = asyncio.create_task(run.run())

    def end(number: int) -> None:
        if ended_by:
            processes.kill_all()  # whoever says it twice does not want to wait
        ended_by.append(number)
        performing.cancel()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        return await performing, None
    except asyncio.CancelledError:
        return None, ended_by[0]


def _print_summary(outcome: "DemoOutcome", seconds: float) -> None:
    from fiveways.cli.program import program_command  # noqa: PLC0415
    from fiveways.demo import summary  # noqa: PLC0415

    summary.print_summary(outcome, seconds, program_command())
