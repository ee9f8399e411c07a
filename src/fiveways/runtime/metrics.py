"""What a hub has done and has to do, in the words of Prometheus."""

import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fiveways.hub.histogram import BOUNDS, Histogram
from fiveways.hub.traffic_report import by_topic
from fiveways.hub.traffic_totals import CallStats, TrafficTotals
from fiveways.hub.traits import OBSERVER
from fiveways.runtime.metric_families import FAMILIES, HISTOGRAM, UNLABELLED, MetricFamily

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
"""What would end a line somewhere, or cannot be written at all."""

_NAMES: Final = frozenset({"method", "topic"})
"""Labels whose values peers have chosen."""
_BOUNDS: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""The values of a family's labels, and the number."""
Tables: TypeAlias = dict[str, list[Sample]]
"""By the name of the family."""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All that there is to tell."""

    version: str
    stats: Mapping[str, object]
    """What `hub.stats` answers."""
    traffic: TrafficTotals
    unlabelled: Mapping[str, float]
    """Further numbers without labels, by the names of their families."""
    work_queues: Mapping[str, Mapping[str, int]]
    """What `hub.queues` answers."""
    readiness: Mapping[str, float]
    """How well each part is: 1, 0.5 or 0."""
    refused_connections: Mapping[str, int] = field(default_factory=dict)
    """The number of connections that each limit refused or closed."""


def render_metrics(numbers: MetricsSnapshot, *, names: bool = True) -> bytes:
    """Return the page; without `names`, nothing by method or topic, and no work for it either."""
    traffic = numbers.traffic
    methods: Mapping[str, CallStats] = {}
    tables = {
        **_unlabelled_samples(numbers),
        **_hub_samples(numbers),
        **_protocol_samples(traffic),
        **_bridge_samples(traffic),
    }
    families: Iterable[MetricFamily] = FAMILIES.values()
    if names:
        methods = traffic.by_method()
        tables |= {**_method_samples(methods), **_topic_samples(traffic)}
    else:
        families = (family for family in families if not _NAMES.intersection(family.labels))
    return ("\n".join(_lines(families, tables, methods)) + "\n").encode()


def _lines(families: Iterable[MetricFamily], tables: Tables, methods: Mapping[str, CallStats]) -> Iterator[str]:
    for family in families:
        if family.kind == HISTOGRAM:
            yield from _head(family)
            for method, cell in methods.items():
                yield from _histogram(family.name, _labels(family.labels, (method,)), cell.histogram)
        elif family.name in tables:  # a hub without a journal has no numbers of one
            yield from _head(family)
            for values, number in tables[family.name]:
                yield f"{family.name}{_braced(_labels(family.labels, values))} {_render_number(number)}"


def _head(family: MetricFamily) -> tuple[str, str]:
    return f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join([f'{name}="{escape_label(value)}"' for name, value in zip(names, values, strict=True)])


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _render_number(number: float) -> str:
    return str(number) if isinstance(number, int) else repr(float(number))


def escape_label(text: str) -> str:
    """Return a text as it may stand between quotes: it may be a peer's, and anything."""
    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if not text.isprintable() else text
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip(_BOUNDS, histogram.counts, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
    yield f"{name}_sum{{{labels}}} {_render_number(histogram.seconds)}"
    yield f"{name}_count{{{labels}}} {total}"


# Where the numbers come from.


def _unlabelled_samples(numbers: MetricsSnapshot) -> Tables:
    """Return those without labels that there are."""
    tables: Tables = {}
    for family in UNLABELLED:
        known = numbers.stats.get(family.name.removeprefix("fiveways_").removesuffix("_total"))
        number = known if isinstance(known, int) else numbers.unlabelled.get(family.name)
        if number is not None:
            tables[family.name] = [((), number)]
    return tables


def _hub_samples(numbers: MetricsSnapshot) -> Tables:
    failures = numbers.stats["failures"]
    states = Counter[str]()
    for queue in numbers.work_queues.values():
        states.update(queue)
    return {
        "fiveways_build_info": [((numbers.version, platform.python_version()), 1)],
        "fiveways_connections_refused_total": [
            ((limit,), count) for limit, count in numbers.refused_connections.items()
        ],
        "fiveways_ready": [((check,), number) for check, number in numbers.readiness.items()],
        "fiveways_failures_total": [((reason,), count) for reason, count in failures.items()]
        if isinstance(failures, Mapping)
        else [],
        "fiveways_queue_items": [((state,), states[state]) for state in ("waiting", "given", "dead")],
    }


def _protocol_samples(traffic: TrafficTotals) -> Tables:
    traffic.aggregate_frames()
    tallies = traffic.protocols.items()
    return {
        "fiveways_protocol_sessions": [((name,), each.sessions) for name, each in tallies if name != OBSERVER],
        "fiveways_frames_received_total": [((name,), each.frames_in) for name, each in tallies],
        "fiveways_frames_sent_total": [((name,), each.frames_out) for name, each in tallies],
        "fiveways_received_bytes_total": [((name,), each.bytes_in) for name, each in tallies],
        "fiveways_sent_bytes_total": [((name,), each.bytes_out) for name, each in tallies],
        "fiveways_protocol_publications_total": [((name,), each.publications) for name, each in tallies],
        "fiveways_protocol_deliveries_total": [((name,), each.deliveries) for name, each in tallies],
    }


def _bridge_samples(traffic: TrafficTotals) -> Tables:
    bridges = traffic.by_protocol_pair().items()
    return {
        "fiveways_bridge_calls_total": [(pair, cell.calls) for pair, cell in bridges],
        "fiveways_bridge_failures_total": _failures(bridges),
    }


def _method_samples(methods: Mapping[str, CallStats]) -> Tables:
    return {
        "fiveways_method_calls_total": [((name,), cell.calls) for name, cell in methods.items()],
        "fiveways_method_failures_total": _failures(((name,), cell) for name, cell in methods.items()),
    }


def _topic_samples(traffic: TrafficTotals) -> Tables:
    topics = by_topic(traffic).items()
    return {
        "fiveways_topic_publications_total": [((name,), each.publications) for name, each in topics],
        "fiveways_topic_deliveries_total": [((name,), each.deliveries) for name, each in topics],
        "fiveways_topic_missed_total": [((name,), each.missed) for name, each in topics],
    }


def _failures(cells: Iterable[tuple[tuple[str, ...], CallStats]]) -> list[Sample]:
    return [((*key, reason.value), count) for key, cell in cells for reason, count in cell.failures.items()]
