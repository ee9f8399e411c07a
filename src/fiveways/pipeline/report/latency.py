"""How long calls took and how many failed, over time."""

from fiveways.pipeline.report import ticks, units
from fiveways.pipeline.report.markup import Markup, join, tag
from fiveways.pipeline.report.overview import Overview
from fiveways.pipeline.report.plots import Plot, Series, layers, lines
from fiveways.pipeline.report.reading import Tables
from fiveways.pipeline.report.section import Finding, Section, Weight, empty, sentence
from fiveways.pipeline.report.tabling import details, heads, number, table, words

_HIGH, _ALARMING = 0.01, 0.05
_ESTIMATED = (
    "The calls themselves are not at hand, or too many: percentiles are estimated from those of each method and minute."
)


def latency(tables: Tables, seen: Overview) -> Section:
    """Return the percentiles of all calls over time, and the share that failed."""
    lead = "From a request's arrival at the hub to the answer's departure, all methods together."
    if not seen.all_calls or seen.cells is None:
        body = empty(tables.note("slo") or "No call was seen.")
        return Section("latency", "Calls over time", lead, body)
    body = join(
        [
            _times(seen, seen.cells),
            "" if seen.is_exact else empty(_ESTIMATED),
            _failures(seen, seen.cells),
            details("Numbers over time", _behind(seen, seen.cells)),
        ]
    )
    return Section("latency", "Calls over time", lead, body, _findings(seen))


def _findings(seen: Overview) -> list[Finding]:
    calls, errors = seen.all_calls, seen.all_errors
    rate = errors / calls
    if rate < _HIGH:
        return []
    weight = Weight.BAD if rate >= _ALARMING else Weight.NOTE
    said = sentence(
        tag("b", "Failures"),
        f" {units.percent(rate)} of all calls failed ({units.count(errors)} of {units.count(calls)})",
    )
    return [Finding(weight, said, "latency")]


def _times(seen: Overview, cells: ticks.Grid) -> Markup:
    known = [value for times in seen.times for value in times[:3] if value is not None]
    if not known:
        return empty("No call was answered, so there is no latency.")
    scale = ticks.logarithmic(min(known), max(known))
    series = [
        Series(name, name, [times[index] for times in seen.times]) for index, name in enumerate(("p50", "p95", "p99"))
    ]
    p50, p95, p99, longest = (units.duration(each) for each in seen.all_times)
    plot = Plot(
        "latency-time",
        "Latency",
        f"percentiles of {cells.step}, logarithmic scale",
        f"Over all the time p50 is {p50}, p95 {p95}, p99 {p99}, the longest {longest}.",
        240,
    )
    return lines(plot, cells, scale, series)


def _failures(seen: Overview, cells: ticks.Grid) -> Markup:
    shares = [errors / calls if calls else 0.0 for calls, errors in zip(seen.calls, seen.errors, strict=True)]
    plot = Plot(
        "errors-time",
        "Calls that failed",
        "share of all calls",
        f"{units.share(sum(seen.errors), sum(seen.calls))} of the calls failed, at most {units.percent(max(shares))}.",
        90,
        "latency-time-table",
    )
    return layers(plot, cells, lambda top: ticks.linear(min(1.0, top), _axis_percent, 2), [Series("", "bad", shares)])


def _axis_percent(value: float) -> str:
    return f"{units.digits(100 * value, trim=True)}{units.THIN}%"


def _behind(seen: Overview, cells: ticks.Grid) -> Markup:
    rows = []
    for index in range(cells.buckets):
        calls, errors = seen.calls[index], seen.errors[index]
        failed = errors / calls if calls else None
        times = [number(each, units.duration) for each in seen.times[index]]
        rows.append([words(cells.label(index)), *times, number(calls), number(errors), number(failed, units.percent)])
    columns = heads("From (UTC)|#p50|#p95|#p99|#longest|#calls|#failed|#share failed")
    return table(columns, rows, label="Calls over time", identity="latency-time-table", is_sortable=False)
