"""The response of `hub.traffic`: totals since the start of the hub. The difference of two responses gives rates."""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Final

from fiveways.hub.histogram import BOUNDS, Histogram
from fiveways.hub.permissions import topic_text
from fiveways.hub.traffic_totals import (
    MAX_SLOW_CONSUMERS,
    OTHER_LABEL,
    CallStats,
    FailureRecord,
    ProtocolPair,
    ProtocolStats,
    SlowConsumer,
    TopicStats,
    TrafficTotals,
)
from fiveways.hub.traits import OBSERVER
from fiveways.model.value_redaction import redact_text

_DECIMALS: Final = 6
"""Decimals of a time in seconds; the clock measures no more."""


def traffic_report(traffic: TrafficTotals, at: float, uptime: float, epoch: float) -> dict[str, object]:
    """Return the whole report; `at` is Unix time, and `epoch` the Unix time at which the hub's clock was 0.

    Calls of observers are not load, so they are counted apart.
    """
    methods, topics, bridges = traffic.by_method(observers=False), by_topic(traffic), traffic.by_protocol_pair()
    observed = sum(bridges.pop(pair).calls for pair in list(bridges) if pair[0] == OBSERVER)
    return {
        "at": round(at, _DECIMALS),
        "uptime": round(uptime, _DECIMALS),
        "protocols": _protocol_rows(traffic, bridges),
        "methods": [
            _method_row(name, methods[name]) for name in nlargest(len(methods), methods, lambda n: methods[n].calls)
        ],
        "topics": [
            _topic_row(name, topics[name]) for name in nlargest(len(topics), topics, lambda n: topics[n].publications)
        ],
        "latency": _latency_report(bridges.values()),
        "bridges": [_protocol_pair_row(*pair, stats) for pair, stats in sorted(bridges.items())],
        "failures": [_failure_row(entry, epoch) for entry in reversed(traffic.failures)],
        "slow": [
            _slow_consumer_row(entry)
            for entry in nlargest(
                MAX_SLOW_CONSUMERS, traffic.slow_consumers(), lambda entry: (entry.missed, entry.waiting_bytes)
            )
        ],
        "others": {
            "methods": methods[OTHER_LABEL].calls if OTHER_LABEL in methods else 0,
            "topics": traffic.other_topics.publications,
        },
        "forgotten": _evicted_counts(traffic.evicted.values()),
        "observers": {**_frame_counts(traffic.protocols.get(OBSERVER) or ProtocolStats()), "calls": observed},
        "journal": traffic.is_journaled,
    }


def _latency_report(cells: Iterable[CallStats]) -> dict[str, object]:
    """Return the latency histogram of all calls: the difference of two responses has percentiles."""
    total = Histogram()
    for stats in cells:
        total.merge(stats.histogram)
    return {"bounds": list(BOUNDS), "counts": total.counts}


def by_topic(traffic: TrafficTotals) -> dict[str, TopicStats]:
    """Return the counters of each topic."""
    topics = {topic_text(topic): stats for topic, stats in traffic.topics.items()}
    others = traffic.other_topics
    return topics | ({OTHER_LABEL: others} if others.publications or others.deliveries or others.missed else {})


def _protocol_rows(traffic: TrafficTotals, bridges: Mapping[ProtocolPair, CallStats]) -> dict[str, dict[str, int]]:
    traffic.aggregate_frames()
    calls = Counter[str]()
    for (caller, _), stats in bridges.items():
        calls[caller] += stats.calls
    return {
        protocol: {
            "sessions": stats.sessions,
            **_frame_counts(stats),
            "calls": calls[protocol],
            "publications": stats.publications,
            "deliveries": stats.deliveries,
        }
        for protocol, stats in sorted(traffic.protocols.items())
        if protocol != OBSERVER
    }


def _frame_counts(stats: ProtocolStats) -> dict[str, int]:
    return {
        "frames_in": stats.frames_in,
        "frames_out": stats.frames_out,
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
    }


def _method_row(name: str, stats: CallStats) -> dict[str, object]:
    return {
        "method": name,
        "calls": stats.calls,
        "results": stats.results(),
        "failures": stats.failures.total(),
        "seconds": round(stats.histogram.seconds, _DECIMALS),
        "p50": _quantile(stats, 0.5),
        "p95": _quantile(stats, 0.95),
        "p99": _quantile(stats, 0.99),
    }


def _evicted_counts(cells: Iterable[CallStats]) -> dict[str, int]:
    """Return totals that belong to the sum of all methods but to none of the listed ones."""
    total = CallStats()
    for stats in cells:
        total.add(stats)
    return {"calls": total.calls, "results": total.results(), "failures": total.failures.total()}


def _topic_row(name: str, stats: TopicStats) -> dict[str, object]:
    return {
        "topic": name,
        "publications": stats.publications,
        "deliveries": stats.deliveries,
        "missed": stats.missed,
    }


def _protocol_pair_row(caller: str, callee: str, stats: CallStats) -> dict[str, object]:
    return {
        "caller": caller,
        "callee": callee,
        "calls": stats.calls,
        "failures": stats.failures.total(),
        "p95": _quantile(stats, 0.95),
    }


def _failure_row(failure: FailureRecord, epoch: float) -> dict[str, object]:
    return {
        "at": round(epoch + failure.at, _DECIMALS),
        "method": failure.method,
        "caller": failure.caller,
        "callee": failure.callee,
        "reason": failure.reason.value,
        "text": redact_text(failure.text),
        "caller_peer": failure.caller_peer,
        "callee_peer": failure.callee_peer,
        "op": failure.op,
        "seconds": round(failure.seconds, _DECIMALS),
        "trace": failure.trace,
    }


def _slow_consumer_row(consumer: SlowConsumer) -> dict[str, object]:
    return {
        "peer": consumer.peer,
        "protocol": consumer.protocol,
        "missed": consumer.missed,
        "waiting_bytes": consumer.waiting_bytes,
    }


def _quantile(stats: CallStats, part: float) -> float | None:
    value = stats.histogram.quantile(part)
    return None if value is None else round(value, _DECIMALS)
