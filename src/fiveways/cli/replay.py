"""`fiveways replay`: a journal's inbound side, sent again, and what is different since."""

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
"""Characters of a difference, on each side."""
_MAX_SESSIONS: Final = 20


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What the user typed."""

    directory: str
    url: str
    speed: str = "1"
    span: TimeRangeOptions = field(default_factory=TimeRangeOptions)
    protocol: str = ""
    session: str = ""
    limit: int | None = None
    zmq: str = ""
    timeout: float = 5.0
    json: bool = False
    allows_remote: bool = False
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)


def replay(wish: ReplayOptions) -> ExitCode:
    """Send it, and say what differs; the exit code says whether something does."""
    try:
        places = ReplayTarget(wish.url, wish.zmq)
    except BadUrl as exc:
        raise UsageError(str(exc)) from exc
    if places.remote_host and not wish.allows_remote:
        host = places.remote_host
        raise UsageError(f"{host} is another machine, where all this would happen once more: --yes-remote allows it")
    options = ReplayConfig(
        places,
        _parse_speed(wish.speed),
        wish.timeout,
        wish.limit,
        wish.protocol,
        wish.session,
        wish.token,
        wish.identity,
        wish.secret,
    )
    try:
        player = asyncio.run(_run_replay(wish, options))
    except KeyboardInterrupt:
        return ExitCode.FAILED
    if wish.json:
        print(to_json_line(build_report(player)))  # noqa: T201
    else:
        _print_report(player)
    return ExitCode.OK if player.stats.is_equal else ExitCode.FAILED


def _parse_speed(text: str) -> float:
    if text == _MAX_SPEED:
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise UsageError(f"--speed is a number such as 1 or 10, or {_MAX_SPEED}, not {text!r}")
    return speed


async def _run_replay(wish: ReplayOptions, options: ReplayConfig) -> Replayer:
    span, found = wish.span.bounds(), require_segments(wish.directory)
    await options.target.check_reachable()
    with _progress(count_records(found)) as told:
        player = Replayer(options, told)
        await player.run(merge_by_time(found, span))
    return player


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far it is, to people; others are told nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _count: None
        return
    columns = (SpinnerColumn(), TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.advance(task, done)


def build_report(player: Replayer) -> dict[str, object]:
    """Return all there is to tell, for programs."""
    tally = player.stats
    counts = {what: {verdict: tally.counts[what][verdict] for verdict in VERDICTS} for what in _CATEGORY_TITLES}
    return {
        "equal": tally.is_equal,
        "sent": player.sender.sent,
        "sessions": player.sessions,
        "unsent": dict(player.sender.unsent),
        "redacted": player.redacted,
        "left_out": player.skipped_sessions,
        "lost": dict(tally.lost),
        "open_at_end": tally.open_at_end,
        **counts,
        "differing_sessions": {session: dict(each) for session, each in tally.sessions.items()},
        "differences": [msgspec.structs.asdict(each) for each in tally.differences],
    }


def _print_report(player: Replayer) -> None:
    tally, console = player.stats, Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"sent {player.sender.sent} frames of {player.sessions} sessions")
    for why, number in player.sender.unsent.items():
        console.print(f"  {number} frames not sent: {why}")
    if player.redacted:
        console.print(f"  {player.redacted} frames sent with *** where something was redacted")
    for why, number in player.skipped_sessions.items():
        console.print(printable(f"  {number} sessions left out, {why}"))
    for why, number in tally.lost.items():
        console.print(printable(f"  {number} sessions lost: {why}"), style="red")
    if tally.open_at_end:
        console.print(f"  {tally.open_at_end} calls without an answer where the recording ends")
    for what, words in _CATEGORY_TITLES.items():
        counted = [f"{tally.counts[what][verdict]} {verdict}" for verdict in VERDICTS if tally.counts[what][verdict]]
        console.print(f"{words}: {', '.join(counted) or 'none'}")
    for session, each in list(tally.sessions.items())[:_MAX_SESSIONS]:
        counted = [f"{number} {verdict}" for verdict, number in each.items()]
        console.print(printable(f"  session {session}: {', '.join(counted)}"), style="yellow")
    for difference in tally.differences:
        _print_difference(console, difference)
    if tally.is_equal:
        console.print("all that came back is as it was", style="green")
    sys.stdout.flush()


def _print_difference(console: Console, each: Difference) -> None:
    at = f", record {each.seq}" if each.seq is not None else ""
    name = f" {each.name}{f' #{each.id}' if each.id else ''}" if each.name or each.id else ""
    console.print(printable(f"{each.what}{name} in session {each.session}{at}: {each.verdict}"), style="red")
    if each.what != "session":
        console.print(f"  then  {_format_value(each.recorded)}\n  now   {_format_value(each.live)}")


def _format_value(value: object) -> str:
    text = "nothing" if value is None else to_json_line(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
