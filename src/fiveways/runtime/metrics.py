"""The metrics page in the Prometheus text format."""

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
"""Characters that end a line in some reader, or cannot be encoded."""

_NAMES: Final = frozenset({"method", "topic"})
"""Labels with values that peers choose."""
_BOUNDS: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values and a number."""
Tables: TypeAlias = dict[str, list[Sample]]
"""Samples by the name of the family."""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The sources of one metrics page."""

    version: str
    stats: Mapping[str, object]
    """The result of `hub.stats`."""
    traffic: TrafficTotals
    unlabelled: Mapping[str, float]
    """Further numbers without labels, by the names of their families."""
    work_queues: Mapping[str, Mapping[str, int]]
    """The result of `hub.queues`."""
    readiness: Mapping[str, float]
    """The health of each component: 1, 0.5 or 0."""
    refused_connections: Mapping[str, int] = field(default_factory=dict)
    """The number of connections that each limit refused or closed."""


def render_metrics(snapshot: MetricsSnapshot, *, names: bool = True) -> bytes:
    """Return the page; without `names`, it omits metrics by method or topic."""
    traffic = snapshot.traffic
    methods: Mapping[str, CallStats] = {}
    samples = {
        **_unlabelled_samples(snapshot),
        **_hub_samples(snapshot),
        **_protocol_samples(traffic),
        **_bridge_samples(traffic),
    }
    families: Iterable[MetricFamily] = FAMILIES.values()
    if names:
        methods = traffic.by_method()
        samples |= {**_method_samples(methods), **_topic_samples(traffic)}
    else:
        families = (family for family in families if not _NAMES.intersection(family.labels))
    return ("\n".join(_lines(families, samples, methods)) + "\n").encode()


def _lines(families: Iterable[MetricFamily], samples: Tables, methods: Mapping[str, CallStats]) -> Iterator[str]:
    for family in families:
        if family.kind == HISTOGRAM:
            yield from _head(family)
            for method, cell in methods.items():
                yield from _histogram(family.name, _labels(family.labels, (method,)), cell.histogram)
        elif family.name in samples:  # families without a source are omitted
            yield from _head(family)
            for values, number in samples[family.name]:
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
    """Return a label value escaped for the text format; it may come from a peer."""
    text = _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) if not text.isprintable() else text
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip(_BOUNDS, histogram.counts, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
    yield f"{name}_sum{{{labels}}} {_render_number(histogram.seconds)}"
    yield f"{name}_count{{{labels}}} {total}"


# Sources.


def _unlabelled_samples(snapshot: MetricsSnapshot) -> Tables:
    samples: Tables = {}
    for family in UNLABELLED:
        stat = snapshot.stats.get(family.name.removeprefix("fiveways_").removesuffix("_total"))
        number = stat if isinstance(stat, int) else snapshot.unlabelled.get(family.name)
        if number is not None:
            samples[family.name] = [((), number)]
    return samples


def _hub_samples(snapshot: MetricsSnapshot) -> Tables:
    failures = snapshot.stats["failures"]
    states = Counter[str]()
    for queue in snapshot.work_queues.values():
        states.update(queue)
    return {
        "fiveways_build_info": [((snapshot.version, platform.python_version()), 1)],
        "fiveways_connections_refused_total": [
            ((limit,), count) for limit, count in snapshot.refused_connections.items()
        ],
        "fiveways_ready": [((check,), number) for check, number in snapshot.readiness.items()],
        "fiveways_failures_total": [((reason,), count) for reason, count in failures.items()]
        if isinstance(failures, Mapping)
        else [],
        "fiveways_queue_items": [((state,), states[state]) for state in ("waiting", "given", "dead")],
    }


def _protocol_samples(traffic: TrafficTotals) -> Tables:
    traffic.aggregate_frames()
    tallies = traffic.protocols.items()
    return {
        "fiveways_protocol_sessions": [((name,), totals.sessions) for name, totals in tallies if name != OBSERVER],
        "fiveways_frames_received_total": [((name,), totals.frames_in) for name, totals in tallies],
        "fiveways_frames_sent_total": [((name,), totals.frames_out) for name, totals in tallies],
        "fiveways_received_bytes_total": [((name,), totals.bytes_in) for name, totals in tallies],
        "fiveways_sent_bytes_total": [((name,), totals.bytes_out) for name, totals in tallies],
        "fiveways_protocol_publications_total": [((name,), totals.publications) for name, totals in tallies],
        "fiveways_protocol_deliveries_total": [((name,), totals.deliveries) for name, totals in tallies],
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
        "fiveways_topic_publications_total": [((name,), totals.publications) for name, totals in topics],
        "fiveways_topic_deliveries_total": [((name,), totals.deliveries) for name, totals in topics],
        "fiveways_topic_missed_total": [((name,), totals.missed) for name, totals in topics],
    }


def _failures(calls: Iterable[tuple[tuple[str, ...], CallStats]]) -> list[Sample]:
    return [((*key, reason.value), count) for key, cell in calls for reason, count in cell.failures.items()]
