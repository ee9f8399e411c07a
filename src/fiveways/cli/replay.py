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

from fiveways.cli.endings import Code, UsageError, printable
from fiveways.cli.frames import json_line
from fiveways.cli.spark import Span
from fiveways.client.urls import BadUrl
from fiveways.journal.places import existing_segments
from fiveways.journal.rows import count, in_order
from fiveways.replay.judging import VERDICTS, Difference
from fiveways.replay.places import Places
from fiveways.replay.player import Options, Player

_FLAT_OUT: Final = "max"
_WHAT: Final = {"call": "calls", "request": "requests to callees", "event": "events"}
_MOST_SHOWN: Final = 2000
"""Characters of a difference, on each side."""
_MOST_SESSIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed."""

    directory: str
    url: str
    speed: str = "1"
    span: Span = field(default_factory=Span)
    protocol: str = ""
    session: str = ""
    limit: int | None = None
    zmq: str = ""
    timeout: float = 5.0
    json: bool = False
    remote: bool = False
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)


def replay(wish: Wish) -> Code:
    """Send it, and say what differs; the exit code says whether something does."""
    try:
        places = Places(wish.url, wish.zmq)
    except BadUrl as exc:
        raise UsageError(str(exc)) from exc
    if places.remote and not wish.remote:
        host = places.remote
        raise UsageError(f"{host} is another machine, where all this would happen once more: --yes-remote allows it")
    options = Options(
        places,
        _speed(wish.speed),
        wish.timeout,
        wish.limit,
        wish.protocol,
        wish.session,
        wish.token,
        wish.identity,
        wish.secret,
    )
    try:
        player = asyncio.run(_play(wish, options))
    except KeyboardInterrupt:
        return Code.FAILED
    if wish.json:
        print(json_line(report(player)))  # noqa: T201
    else:
        _tell(player)
    return Code.OK if player.tally.is_equal else Code.FAILED


def _speed(text: str) -> float:
    if text == _FLAT_OUT:
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise UsageError(f"--speed is a number such as 1 or 10, or {_FLAT_OUT}, not {text!r}")
    return speed


async def _play(wish: Wish, options: Options) -> Player:
    span, found = wish.span.bounds(), existing_segments(wish.directory)
    await options.places.check()
    with _progress(count(found)) as told:
        player = Player(options, told)
        await player.play(in_order(found, span))
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


def report(player: Player) -> dict[str, object]:
    """Return all there is to tell, for programs."""
    tally = player.tally
    counts = {what: {verdict: tally.counts[what][verdict] for verdict in VERDICTS} for what in _WHAT}
    return {
        "equal": tally.is_equal,
        "sent": player.voice.sent,
        "sessions": player.sessions,
        "unsent": dict(player.voice.unsent),
        "redacted": player.redacted,
        "left_out": player.left_out,
        "lost": dict(tally.lost),
        "open_at_end": tally.open_at_end,
        **counts,
        "differing_sessions": {session: dict(each) for session, each in tally.sessions.items()},
        "differences": [msgspec.structs.asdict(each) for each in tally.differences],
    }


def _tell(player: Player) -> None:
    tally, console = player.tally, Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"sent {player.voice.sent} frames of {player.sessions} sessions")
    for why, number in player.voice.unsent.items():
        console.print(f"  {number} frames not sent: {why}")
    if player.redacted:
        console.print(f"  {player.redacted} frames sent with *** where something was redacted")
    for why, number in player.left_out.items():
        console.print(printable(f"  {number} sessions left out, {why}"))
    for why, number in tally.lost.items():
        console.print(printable(f"  {number} sessions lost: {why}"), style="red")
    if tally.open_at_end:
        console.print(f"  {tally.open_at_end} calls without an answer where the recording ends")
    for what, words in _WHAT.items():
        counted = [f"{tally.counts[what][verdict]} {verdict}" for verdict in VERDICTS if tally.counts[what][verdict]]
        console.print(f"{words}: {', '.join(counted) or 'none'}")
    for session, each in list(tally.sessions.items())[:_MOST_SESSIONS]:
        counted = [f"{number} {verdict}" for verdict, number in each.items()]
        console.print(printable(f"  session {session}: {', '.join(counted)}"), style="yellow")
    for difference in tally.differences:
        _tell_difference(console, difference)
    if tally.is_equal:
        console.print("all that came back is as it was", style="green")
    sys.stdout.flush()


def _tell_difference(console: Console, each: Difference) -> None:
    at = f", record {each.seq}" if each.seq is not None else ""
    name = f" {each.name}{f' #{each.id}' if each.id else ''}" if each.name or each.id else ""
    console.print(printable(f"{each.what}{name} in session {each.session}{at}: {each.verdict}"), style="red")
    if each.what != "session":
        console.print(f"  then  {_shown(each.recorded)}\n  now   {_shown(each.live)}")


def _shown(value: object) -> str:
    text = "nothing" if value is None else json_line(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
