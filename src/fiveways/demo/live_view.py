"""The live view of the demo: calls between protocols, latency, events and failures."""

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
"""Minimum columns and rows."""
WIDE_COLUMNS: Final = 110
"""Minimum columns for the wide layout."""
_MATRIX_LINES: Final = 1 + 2 * len(PROTOCOLS)
"""Lines of the call matrix."""
_HEAD_LINES: Final = 4
_MAX_EXACT: Final = 100_000
_LONG_SECONDS: Final = 0.1
"""Seconds from which a latency is shown in seconds."""
_BARS: Final = "▁▂▃▄▅▆▇█"


def render_view(
    progress: DemoProgress, stats: DemoStats, call_rate: CallRate, width: int, height: int
) -> RenderableType:
    """Return the view for a terminal of this size; it never exceeds the size."""
    remaining = height - _HEAD_LINES - _MATRIX_LINES - 2
    parts: list[RenderableType] = [*_head(progress, stats, call_rate, width), _matrix(stats, call_rate, width), Text()]
    if width >= WIDE_COLUMNS:
        message_lines = remaining // 2
        parts.append(
            _two_columns(
                _topics(stats, remaining - message_lines - 2), _failures(stats, remaining - message_lines - 2), width
            )
        )
        parts += [Text(), *_titled("latest actions", _messages(stats, message_lines - 1), width)]
    else:
        parts.append(_two_columns(_topics(stats, remaining), _failures(stats, remaining), width))
    return Group(*parts)


def _head(progress: DemoProgress, stats: DemoStats, call_rate: CallRate, width: int) -> Iterable[Text]:
    clock = f"{_clock(progress.elapsed)} of about {_clock(progress.seconds)}"
    title = Text.assemble(("Fiveways demo", "bold"), ": a flower shop in six protocols")
    yield _justified(title, Text(clock), width)
    steps = Text(" ► ").join(
        Text(step.label, "bold green" if step is progress.step else "dim") for step in progress.steps
    )
    yield _justified(steps, Text(f"Spark: {progress.spark_status}" if progress.spark_status else "", "magenta"), width)
    events = sum(stats.events.values())
    numbers = f"{stats.calls:,} calls, {call_rate.total_rate():.0f}/s, {stats.failed:,} failed, {events:,} events"
    yield _justified(Text(numbers, "cyan"), _link(progress.dashboard), width)
    yield Text()


def _matrix(stats: DemoStats, call_rate: CallRate, width: int) -> Table:
    """Return the number and the median latency of calls, by caller and callee."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, expand=True)
    table.add_column("caller ▼  callee ►" if width >= WIDE_COLUMNS else "▼ calls ►", no_wrap=True, header_style="dim")
    for callee in CALLEES:
        table.add_column(callee, justify="right", no_wrap=True, header_style="bold")
    table.add_column("calls/s", justify="right", no_wrap=True, header_style="bold")
    if width >= WIDE_COLUMNS:
        table.add_column("", no_wrap=True)
    for caller in PROTOCOLS:
        cells = [Text.assemble((caller, "bold"), "\n", (ROLES[caller].client, "dim"))]
        cells += [_cell(stats, caller, callee) for callee in CALLEES]
        cells.append(Text(f"{call_rate.rate(caller):.0f}", "cyan"))
        if width >= WIDE_COLUMNS:
            cells.append(Text(_sparkline(call_rate.history(caller)[-12:]), "cyan"))
        table.add_row(*cells)
    return table


def _cell(stats: DemoStats, caller: str, callee: str) -> Text:
    pair = stats.pairs.get((caller, callee))
    if pair is None or not pair.calls:
        return Text("·", "dim")
    return Text.assemble(format_count(pair.calls), "\n", (format_duration(pair.p50), "dim"))


def format_count(number: int) -> str:
    """Return a number in at most six characters, up to a billion."""
    return f"{number:,}" if number < _MAX_EXACT else f"{number // 1000:,}k"


def format_duration(seconds: float | None) -> str:
    """Return a duration in at most seven characters; empty for None."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.1f} ms" if seconds < _LONG_SECONDS else f"{seconds:.3g} s"


def _topics(stats: DemoStats, lines: int) -> list[Text]:
    latest = list(stats.latest_events.items())[::-1][: max(0, lines - 1)]
    rows = [
        Text.assemble((f"{number:>5} ", "dim"), (topic, "green"), f" {_value(data)}")
        for topic, (number, data) in sorted(latest)
    ]
    return [Text("published", "bold"), *rows]


def _failures(stats: DemoStats, lines: int) -> list[Text]:
    latest = list(stats.failures)[::-1][: max(0, lines - 1)]
    rows = [
        Text.assemble((failure.reason, "yellow"), (f" {failure.caller} ► ", "dim"), failure.method)
        for failure in latest
    ]
    return [Text("failed calls (some on purpose)", "bold"), *rows]


def _messages(stats: DemoStats, lines: int) -> list[Text]:
    return [Text(message) for message in list(stats.messages)[::-1][: max(0, lines)]]


def _titled(title: str, lines: Iterable[Text], width: int) -> list[Text]:
    return [Text(title, "bold"), *(truncate(line, width) for line in lines)]


def _two_columns(left: list[Text], right: list[Text], width: int) -> Table:
    half = (width - 2) // 2
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(width=half, no_wrap=True)
    table.add_column(width=half - 2, no_wrap=True)
    for index in range(max(len(left), len(right))):
        first, second = (side[index] if index < len(side) else Text() for side in (left, right))
        table.add_row(truncate(first, half), truncate(second, half - 2))
    return table


def _justified(left: Text, right: Text, width: int) -> Text:
    """Return a line with one text at each end."""
    left_width = width - right.cell_len - 1
    left.truncate(max(0, left_width), overflow="ellipsis", pad=True)
    return Text.assemble(left, " ", right)


def _link(url: str) -> Text:
    return Text.assemble(("dashboard ", "dim"), (url, "underline")) if url else Text()


def truncate(text: Text, width: int) -> Text:
    """Truncate a text to one line."""
    text.truncate(max(0, width), overflow="ellipsis")
    return text


def _value(data: object) -> str:
    return data if isinstance(data, str) else strict_json.write(data).decode()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _sparkline(numbers: list[float]) -> str:
    """Return numbers as bars of eight heights."""
    maximum = max(numbers, default=0.0) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(number / maximum * (len(_BARS) - 1)))] for number in numbers)
