"""What `hub.traffic` answers: all that has passed since the hub's start, so that whoever reads it twice has rates."""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Final

from fiveways.hub.histogram import BOUNDS, Histogram
from fiveways.hub.policy import written
from fiveways.hub.traffic import MOST_SLOW, OTHER, Bridge, Cell, Failed, Passed, Slow, Tally, Traffic
from fiveways.hub.traits import OBSERVER
from fiveways.model.secret_values import text_without_secrets

_DIGITS: Final = 6
"""Of a time in seconds: what is less was not measured."""


def account(traffic: Traffic, at: float, uptime: float, epoch: float) -> dict[str, object]:
    """Return all numbers; `at` is in seconds since 1970, `epoch` is when the hub's clock was 0.

    Calls of observers are no load, so they are counted apart.
    """
    methods, topics, bridges = traffic.by_method(observers=False), by_topic(traffic), traffic.by_bridge()
    observed = sum(bridges.pop(pair).calls for pair in list(bridges) if pair[0] == OBSERVER)
    return {
        "at": round(at, _DIGITS),
        "uptime": round(uptime, _DIGITS),
        "protocols": _protocols(traffic, bridges),
        "methods": [
            _method(name, methods[name]) for name in nlargest(len(methods), methods, lambda n: methods[n].calls)
        ],
        "topics": [
            _topic(name, topics[name]) for name in nlargest(len(topics), topics, lambda n: topics[n].publications)
        ],
        "latency": _latency(bridges.values()),
        "bridges": [_bridge(*pair, cell) for pair, cell in sorted(bridges.items())],
        "failures": [_failure(each, epoch) for each in reversed(traffic.failures)],
        "slow": [_slow(each) for each in nlargest(MOST_SLOW, traffic.slow(), lambda each: (each.missed, each.waiting))],
        "others": {
            "methods": methods[OTHER].calls if OTHER in methods else 0,
            "topics": traffic.other_topics.publications,
        },
        "forgotten": _forgotten(traffic.forgotten.values()),
        "observers": {**_frames(traffic.tallies.get(OBSERVER) or Tally()), "calls": observed},
        "journal": traffic.is_journaled,
    }


def _latency(cells: Iterable[Cell]) -> dict[str, object]:
    """Return how many calls took how long, all together: so the difference of two answers has percentiles."""
    whole = Histogram()
    for cell in cells:
        whole.merge(cell.histogram)
    return {"bounds": list(BOUNDS), "counts": whole.counts}


def by_topic(traffic: Traffic) -> dict[str, Passed]:
    """Return what is known of each topic."""
    topics = {written(topic): passed for topic, passed in traffic.topics.items()}
    others = traffic.other_topics
    return topics | ({OTHER: others} if others.publications or others.deliveries or others.missed else {})


def _protocols(traffic: Traffic, bridges: Mapping[Bridge, Cell]) -> dict[str, dict[str, int]]:
    traffic.fold_frames()
    calls = Counter[str]()
    for (caller, _), cell in bridges.items():
        calls[caller] += cell.calls
    return {
        protocol: {
            "sessions": tally.sessions,
            **_frames(tally),
            "calls": calls[protocol],
            "publications": tally.publications,
            "deliveries": tally.deliveries,
        }
        for protocol, tally in sorted(traffic.tallies.items())
        if protocol != OBSERVER
    }


def _frames(tally: Tally) -> dict[str, int]:
    return {
        "frames_in": tally.frames_in,
        "frames_out": tally.frames_out,
        "bytes_in": tally.bytes_in,
        "bytes_out": tally.bytes_out,
    }


def _method(name: str, cell: Cell) -> dict[str, object]:
    return {
        "method": name,
        "calls": cell.calls,
        "results": cell.results(),
        "failures": cell.failed.total(),
        "seconds": round(cell.histogram.seconds, _DIGITS),
        "p50": _quantile(cell, 0.5),
        "p95": _quantile(cell, 0.95),
        "p99": _quantile(cell, 0.99),
    }


def _forgotten(cells: Iterable[Cell]) -> dict[str, int]:
    """Return what belongs to the sum of all methods, and to none that is told."""
    whole = Cell()
    for cell in cells:
        whole.add(cell)
    return {"calls": whole.calls, "results": whole.results(), "failures": whole.failed.total()}


def _topic(name: str, passed: Passed) -> dict[str, object]:
    return {
        "topic": name,
        "publications": passed.publications,
        "deliveries": passed.deliveries,
        "missed": passed.missed,
    }


def _bridge(caller: str, callee: str, cell: Cell) -> dict[str, object]:
    return {
        "caller": caller,
        "callee": callee,
        "calls": cell.calls,
        "failures": cell.failed.total(),
        "p95": _quantile(cell, 0.95),
    }


def _failure(failed: Failed, epoch: float) -> dict[str, object]:
    return {
        "at": round(epoch + failed.at, _DIGITS),
        "method": failed.method,
        "caller": failed.caller,
        "callee": failed.callee,
        "reason": failed.reason.value,
        "text": text_without_secrets(failed.text),
        "caller_peer": failed.caller_peer,
        "callee_peer": failed.callee_peer,
        "op": failed.op,
        "seconds": round(failed.seconds, _DIGITS),
        "trace": failed.trace,
    }


def _slow(slow: Slow) -> dict[str, object]:
    return {"peer": slow.peer, "protocol": slow.protocol, "missed": slow.missed, "waiting_bytes": slow.waiting}


def _quantile(cell: Cell, part: float) -> float | None:
    found = cell.histogram.quantile(part)
    return None if found is None else round(found, _DIGITS)
