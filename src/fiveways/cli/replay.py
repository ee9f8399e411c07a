"""`fiveways replay`: send the inbound frames of a journal again, and compare the responses."""

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fiveways.cli.connection_options import ConnectionOptions
from fiveways.cli.errors import ExitCode, UsageError, printable
from fiveways.cli.message_lines import to_json_line
from fiveways.cli.pipeline_actions import TimeRangeOptions
from fiveways.client.urls import BadUrl
from fiveways.journal.records import count_records, merge_by_time
from fiveways.journal.segments import require_segments
from fiveways.replay.comparison import VERDICTS, Difference
from fiveways.replay.replay_target import ReplayTarget
from fiveways.replay.replayer import ReplayConfig, Replayer

_MAX_SPEED: Final = "max"
_CATEGORY_TITLES: Final = {"call": "calls", "request": "requests to callees", "event": "events"}
_MAX_VALUE: Final = 2000
"""Maximum characters per side of a printed difference."""
_MAX_SESSIONS: Final = 20


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of `fiveways replay`."""

    directory: str
    connection: ConnectionOptions
    """The hub, and the credentials for it."""
    speed: str = "1"
    time_range: TimeRangeOptions = field(default_factory=TimeRangeOptions)
    protocol: str = ""
    session: str = ""
    limit: int | None = None
    zmq: str = ""
    timeout: float = 5.0
    json: bool = False
    allows_remote: bool = False


def replay(options: ReplayOptions) -> ExitCode:
    """Replay the journal and print the comparison; the exit code is 1 if there are differences."""
    try:
        target = ReplayTarget(options.connection.url, options.zmq)
    except BadUrl as exc:
        raise UsageError(str(exc)) from exc
    if target.remote_host and not options.allows_remote:
        host = target.remote_host
        raise UsageError(f"{host} is another machine, and a replay repeats all effects there; --yes-remote allows it")
    config = ReplayConfig(
        target,
        _parse_speed(options.speed),
        answer_timeout=options.timeout,
        max_frames=options.limit,
        protocol=options.protocol,
        session=options.session,
        token=options.connection.token,
        identity=options.connection.identity,
        secret=options.connection.secret,
    )
    try:
        replayer = asyncio.run(_run_replay(options, config))
    except KeyboardInterrupt:
        return ExitCode.FAILED
    if options.json:
        print(to_json_line(build_report(replayer)))  # noqa: T201
    else:
        _print_report(replayer)
    return ExitCode.OK if replayer.stats.is_equal else ExitCode.FAILED


def _parse_speed(text: str) -> float:
    if text == _MAX_SPEED:
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise UsageError(f"--speed must be a number such as 1 or 10, or {_MAX_SPEED}, not {text!r}")
    return speed


async def _run_replay(options: ReplayOptions, config: ReplayConfig) -> Replayer:
    time_range, segments = options.time_range.bounds(), require_segments(options.directory)
    await config.target.check_reachable()
    with _progress(count_records(segments)) as on_progress:
        replayer = Replayer(config, on_progress)
        await replayer.run(merge_by_time(segments, time_range))
    return replayer


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that advances it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _count: None
        return
    columns = (SpinnerColumn(), TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.advance(task, done)


def build_report(replayer: Replayer) -> dict[str, object]:
    """Return the complete comparison, for programs."""
    stats = replayer.stats
    counts = {
        category: {verdict: stats.counts[category][verdict] for verdict in VERDICTS} for category in _CATEGORY_TITLES
    }
    return {
        "equal": stats.is_equal,
        "sent": replayer.sender.sent,
        "sessions": replayer.sessions,
        "unsent": dict(replayer.sender.unsent),
        "redacted": replayer.redacted,
        "left_out": replayer.skipped_sessions,
        "lost": dict(stats.lost),
        "open_at_end": stats.open_at_end,
        **counts,
        "differing_sessions": {
            session: dict(counts_by_verdict) for session, counts_by_verdict in stats.sessions.items()
        },
        "differences": [msgspec.structs.asdict(difference) for difference in stats.differences],
    }


def _print_report(replayer: Replayer) -> None:
    stats, console = replayer.stats, Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"sent {replayer.sender.sent} frames of {replayer.sessions} sessions")
    for reason, count in replayer.sender.unsent.items():
        console.print(f"  {count} frames not sent: {reason}")
    if replayer.redacted:
        console.print(f"  {replayer.redacted} redacted frames sent, with *** in place of values")
    for reason, count in replayer.skipped_sessions.items():
        console.print(printable(f"  {count} sessions skipped, {reason}"))
    for reason, count in stats.lost.items():
        console.print(printable(f"  {count} sessions lost: {reason}"), style="red")
    if stats.open_at_end:
        console.print(f"  {stats.open_at_end} calls without a response at the end of the recording")
    for category, title in _CATEGORY_TITLES.items():
        verdict_counts = [
            f"{stats.counts[category][verdict]} {verdict}" for verdict in VERDICTS if stats.counts[category][verdict]
        ]
        console.print(f"{title}: {', '.join(verdict_counts) or 'none'}")
    for session, counts_by_verdict in list(stats.sessions.items())[:_MAX_SESSIONS]:
        verdict_counts = [f"{count} {verdict}" for verdict, count in counts_by_verdict.items()]
        console.print(printable(f"  session {session}: {', '.join(verdict_counts)}"), style="yellow")
    for difference in stats.differences:
        _print_difference(console, difference)
    if stats.is_equal:
        console.print("all responses and events are as recorded", style="green")
    sys.stdout.flush()


def _print_difference(console: Console, difference: Difference) -> None:
    position = f", record {difference.seq}" if difference.seq is not None else ""
    name = (
        f" {difference.name}{f' #{difference.id}' if difference.id else ''}" if difference.name or difference.id else ""
    )
    console.print(
        printable(f"{difference.what}{name} in session {difference.session}{position}: {difference.verdict}"),
        style="red",
    )
    if difference.what != "session":
        console.print(f"  recorded  {_format_value(difference.recorded)}\n  live      {_format_value(difference.live)}")


def _format_value(value: object) -> str:
    text = "nothing" if value is None else to_json_line(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
