"""What `hub.traffic` answers: all that has passed since the hub's start, so that whoever reads it twice has rates."""

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
"""Of a time in seconds: what is less was not measured."""


def traffic_report(traffic: TrafficTotals, at: float, uptime: float, epoch: float) -> dict[str, object]:
    """Return all numbers; `at` is in seconds since 1970, `epoch` is when the hub's clock was 0.

    Calls of observers are no load, so they are counted apart.
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
        "bridges": [_protocol_pair_row(*pair, cell) for pair, cell in sorted(bridges.items())],
        "failures": [_failure_row(each, epoch) for each in reversed(traffic.failures)],
        "slow": [
            _slow_consumer_row(each)
            for each in nlargest(
                MAX_SLOW_CONSUMERS, traffic.slow_consumers(), lambda each: (each.missed, each.waiting_bytes)
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
    """Return how many calls took how long, all together: so the difference of two answers has percentiles."""
    whole = Histogram()
    for cell in cells:
        whole.merge(cell.histogram)
    return {"bounds": list(BOUNDS), "counts": whole.counts}


def by_topic(traffic: TrafficTotals) -> dict[str, TopicStats]:
    """Return what is known of each topic."""
    topics = {topic_text(topic): passed for topic, passed in traffic.topics.items()}
    others = traffic.other_topics
    return topics | ({OTHER_LABEL: others} if others.publications or others.deliveries or others.missed else {})


def _protocol_rows(traffic: TrafficTotals, bridges: Mapping[ProtocolPair, CallStats]) -> dict[str, dict[str, int]]:
    traffic.aggregate_frames()
    calls = Counter[str]()
    for (caller, _), cell in bridges.items():
        calls[caller] += cell.calls
    return {
        protocol: {
            "sessions": tally.sessions,
            **_frame_counts(tally),
            "calls": calls[protocol],
            "publications": tally.publications,
            "deliveries": tally.deliveries,
        }
        for protocol, tally in sorted(traffic.protocols.items())
        if protocol != OBSERVER
    }


def _frame_counts(tally: ProtocolStats) -> dict[str, int]:
    return {
        "frames_in": tally.frames_in,
        "frames_out": tally.frames_out,
        "bytes_in": tally.bytes_in,
        "bytes_out": tally.bytes_out,
    }


def _method_row(name: str, cell: CallStats) -> dict[str, object]:
    return {
        "method": name,
        "calls": cell.calls,
        "results": cell.results(),
        "failures": cell.failures.total(),
        "seconds": round(cell.histogram.seconds, _DECIMALS),
        "p50": _quantile(cell, 0.5),
        "p95": _quantile(cell, 0.95),
        "p99": _quantile(cell, 0.99),
    }


def _evicted_counts(cells: Iterable[CallStats]) -> dict[str, int]:
    """Return what belongs to the sum of all methods, and to none that is told."""
    whole = CallStats()
    for cell in cells:
        whole.add(cell)
    return {"calls": whole.calls, "results": whole.results(), "failures": whole.failures.total()}


def _topic_row(name: str, passed: TopicStats) -> dict[str, object]:
    return {
        "topic": name,
        "publications": passed.publications,
        "deliveries": passed.deliveries,
        "missed": passed.missed,
    }


def _protocol_pair_row(caller: str, callee: str, cell: CallStats) -> dict[str, object]:
    return {
        "caller": caller,
        "callee": callee,
        "calls": cell.calls,
        "failures": cell.failures.total(),
        "p95": _quantile(cell, 0.95),
    }


def _failure_row(failed: FailureRecord, epoch: float) -> dict[str, object]:
    return {
        "at": round(epoch + failed.at, _DECIMALS),
        "method": failed.method,
        "caller": failed.caller,
        "callee": failed.callee,
        "reason": failed.reason.value,
        "text": redact_text(failed.text),
        "caller_peer": failed.caller_peer,
        "callee_peer": failed.callee_peer,
        "op": failed.op,
        "seconds": round(failed.seconds, _DECIMALS),
        "trace": failed.trace,
    }


def _slow_consumer_row(slow: SlowConsumer) -> dict[str, object]:
    return {"peer": slow.peer, "protocol": slow.protocol, "missed": slow.missed, "waiting_bytes": slow.waiting_bytes}


def _quantile(cell: CallStats, part: float) -> float | None:
    found = cell.histogram.quantile(part)
    return None if found is None else round(found, _DECIMALS)
