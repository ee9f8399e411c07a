"""The live view as it is drawn: who calls whom how often and how fast, what is published, what fails."""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fiveways.demo.progress import CallRate, DemoProgress
from fiveways.demo.shop import ROLES
from fiveways.demo.stats import CALLEES, PROTOCOLS, DemoStats
from fiveways.wire import strict_json

MIN_SIZE: Final = (80, 24)
"""Columns and rows that it needs."""
WIDE_COLUMNS: Final = 110
"""Columns from which on there is room for more."""
_MATRIX: Final = 1 + 2 * len(PROTOCOLS)
"""Lines of the matrix."""
_HEAD: Final = 4
_MANY: Final = 100_000
_LONG: Final = 0.1
"""Seconds from which on tenths of a millisecond say nothing."""
_BARS: Final = "▁▂▃▄▅▆▇█"


def render_view(programme: DemoProgress, ledger: DemoStats, pace: CallRate, width: int, height: int) -> RenderableType:
    """Return the view for a terminal of this size, no line longer and not one more."""
    below = height - _HEAD - _MATRIX - 2
    parts: list[RenderableType] = [*_head(programme, ledger, pace, width), _matrix(ledger, pace, width), Text()]
    if width >= WIDE_COLUMNS:
        scenes = below // 2
        parts.append(_two_columns(_topics(ledger, below - scenes - 2), _failures(ledger, below - scenes - 2), width))
        parts += [Text(), *_titled("what happens", _messages(ledger, scenes - 1), width)]
    else:
        parts.append(_two_columns(_topics(ledger, below), _failures(ledger, below), width))
    return Group(*parts)


def _head(programme: DemoProgress, ledger: DemoStats, pace: CallRate, width: int) -> Iterable[Text]:
    clock = f"{_clock(programme.elapsed)} of about {_clock(programme.seconds)}"
    title = Text.assemble(("Fiveways demo", "bold"), ": a flower shop in six protocols")
    yield _justified(title, Text(clock), width)
    steps = Text(" ► ").join(
        Text(step.label, "bold green" if step is programme.step else "dim") for step in programme.steps
    )
    yield _justified(
        steps, Text(f"Spark: {programme.spark_status}" if programme.spark_status else "", "magenta"), width
    )
    events = sum(ledger.events.values())
    numbers = f"{ledger.calls:,} calls, {pace.total_rate():.0f}/s, {ledger.failed:,} failed, {events:,} events"
    yield _justified(Text(numbers, "cyan"), _link(programme.dashboard), width)
    yield Text()


def _matrix(ledger: DemoStats, pace: CallRate, width: int) -> Table:
    """Return who calls whom: how often, and below that in how many milliseconds."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, expand=True)
    table.add_column("caller ▼  callee ►" if width >= WIDE_COLUMNS else "▼ calls ►", no_wrap=True, header_style="dim")
    for callee in CALLEES:
        table.add_column(callee, justify="right", no_wrap=True, header_style="bold")
    table.add_column("calls/s", justify="right", no_wrap=True, header_style="bold")
    if width >= WIDE_COLUMNS:
        table.add_column("", no_wrap=True)
    for caller in PROTOCOLS:
        cells = [Text.assemble((caller, "bold"), "\n", (ROLES[caller].client, "dim"))]
        cells += [_cell(ledger, caller, callee) for callee in CALLEES]
        cells.append(Text(f"{pace.rate(caller):.0f}", "cyan"))
        if width >= WIDE_COLUMNS:
            cells.append(Text(_sparkline(pace.history(caller)[-12:]), "cyan"))
        table.add_row(*cells)
    return table


def _cell(ledger: DemoStats, caller: str, callee: str) -> Text:
    pair = ledger.pairs.get((caller, callee))
    if pair is None or not pair.calls:
        return Text("·", "dim")
    return Text.assemble(format_count(pair.calls), "\n", (format_duration(pair.p50), "dim"))


def format_count(number: int) -> str:
    """Return a number in six characters at most, up to a billion."""
    return f"{number:,}" if number < _MANY else f"{number // 1000:,}k"


def format_duration(seconds: float | None) -> str:
    """Return a time in seven characters at most; nothing where there is none."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.1f} ms" if seconds < _LONG else f"{seconds:.3g} s"


def _topics(ledger: DemoStats, lines: int) -> list[Text]:
    latest = list(ledger.latest_events.items())[::-1][: max(0, lines - 1)]
    shown = [
        Text.assemble((f"{number:>5} ", "dim"), (topic, "green"), f" {_value(data)}")
        for topic, (number, data) in sorted(latest)
    ]
    return [Text("published, and heard", "bold"), *shown]


def _failures(ledger: DemoStats, lines: int) -> list[Text]:
    latest = list(ledger.failures)[::-1][: max(0, lines - 1)]
    shown = [Text.assemble((each.reason, "yellow"), (f" {each.caller} ► ", "dim"), each.method) for each in latest]
    return [Text("failed, as some do", "bold"), *shown]


def _messages(ledger: DemoStats, lines: int) -> list[Text]:
    return [Text(scene) for scene in list(ledger.messages)[::-1][: max(0, lines)]]


def _titled(title: str, lines: Iterable[Text], width: int) -> list[Text]:
    return [Text(title, "bold"), *(truncate(line, width) for line in lines)]


def _two_columns(left: list[Text], right: list[Text], width: int) -> Table:
    half = (width - 2) // 2
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(width=half, no_wrap=True)
    table.add_column(width=half - 2, no_wrap=True)
    for number in range(max(len(left), len(right))):
        first, second = (side[number] if number < len(side) else Text() for side in (left, right))
        table.add_row(truncate(first, half), truncate(second, half - 2))
    return table


def _justified(left: Text, right: Text, width: int) -> Text:
    """Return a line with one text at each end."""
    room = width - right.cell_len - 1
    left.truncate(max(0, room), overflow="ellipsis", pad=True)
    return Text.assemble(left, " ", right)


def _link(url: str) -> Text:
    return Text.assemble(("dashboard ", "dim"), (url, "underline")) if url else Text()


def truncate(text: Text, width: int) -> Text:
    """Return what fits on one line."""
    text.truncate(max(0, width), overflow="ellipsis")
    return text


def _value(data: object) -> str:
    return data if isinstance(data, str) else strict_json.write(data).decode()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _sparkline(numbers: list[float]) -> str:
    """Return numbers as bars of eight heights."""
    most = max(numbers, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(number / most * (len(_BARS) - 1)))] for number in numbers)
