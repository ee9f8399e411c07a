"""The metrics page, read by the parser of Prometheus, with arbitrary names of methods."""

import asyncio
import math
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.histogram import BOUNDS
from fiveways.hub.traffic_totals import OTHER_LABEL, UNKNOWN_LABEL, TrafficTotals
from fiveways.model.messages import Call, Failure, Publish, Result
from fiveways.runtime import metric_families, metrics, process_metrics
from fiveways.runtime.admin_endpoints import AdminEndpoints
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.metric_families import COUNTER, FAMILIES, HISTOGRAM
from fiveways.transports.http import Request
from fiveways.wire.payload import NULL
from tests.support.hub_helpers import hub_with_peers, pattern, register_method, subscribe, topic
from tests.support.paths import ROOT

PLAIN = {
    "fiveways_outbox_bytes": 7,
    "fiveways_slow_peers": 0,
    "fiveways_journaled_total": 3,
    "fiveways_journal_lost_total": 0,
}
HOSTILE = ['say "hi"', "back\\slash", "a\\nb", "ž", 'x"} 1\nfiveways_sessions 999', "tab\tbell\x07", "\u2028", "{}"]


def page(hub: Hub) -> str:
    ready = {"hub": 1.0, "broker": 0.5}
    plain = PLAIN | process_metrics.process_metrics()
    return metrics.render_metrics(
        metrics.MetricsSnapshot("1.2.3", hub.stats(), hub.traffic, plain, hub.queue_counts(), ready)
    ).decode()


def parsed(text: str) -> dict[str, Metric]:
    found = {metric.name: metric for metric in text_string_to_metric_families(text)}
    assert len(found) == text.count("# TYPE"), "a name is told twice"
    return found


def value(text: str, name: str, **labels: str) -> float:
    """The only number of a family with these labels."""
    (number,) = (
        sample.value
        for metric in parsed(text).values()
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
    return float(number)


def busy() -> Hub:
    """A hub with known traffic."""
    hub = hub_with_peers()
    register_method(hub, "bob", "math.add")
    subscribe(hub, "ann", pattern("news.*"))
    for number in range(1, 4):
        hub.handle("ann", Call("c", "math.add"), 0.0)
        hub.handle("bob", Result(str(number)), 0.004)
    hub.handle("cleo", Call("c", "math.add"), 0.0)
    hub.handle("bob", Failure("4", Reason.RAISED), 100.0)
    hub.handle("ann", Call("c", "no.such"), 0.0)
    hub.handle("cleo", Publish(None, topic("news.sport"), NULL), 0.0)
    hub.traffic.count_missed(topic("news.sport"))
    hub.handle("bob", Call("p", "hub.push", NULL), 0.0)
    return hub


def test_numbers_match_known_traffic() -> None:
    text = page(busy())
    assert value(text, "fiveways_method_calls_total", method="math.add") == 4
    assert value(text, "fiveways_method_failures_total", method="math.add", reason="raised") == 1
    assert value(text, "fiveways_method_failures_total", method=UNKNOWN_LABEL, reason="no_such_method") == 1
    assert value(text, "fiveways_bridge_calls_total", caller="lrpm-json", callee="umq") == 3
    assert value(text, "fiveways_bridge_calls_total", caller="nq", callee="umq") == 1
    assert value(text, "fiveways_bridge_failures_total", caller="nq", callee="umq", reason="raised") == 1
    assert value(text, "fiveways_bridge_failures_total", caller="umq", callee="hub", reason="bad_arguments") == 1
    assert value(text, "fiveways_topic_publications_total", topic="news.sport") == 1
    assert value(text, "fiveways_topic_deliveries_total", topic="news.sport") == 1
    assert value(text, "fiveways_topic_missed_total", topic="news.sport") == 1
    assert value(text, "fiveways_protocol_sessions", protocol="umq") == 2
    assert value(text, "fiveways_protocol_publications_total", protocol="nq") == 1
    assert value(text, "fiveways_calls_total") == 4
    assert value(text, "fiveways_failures_total", reason="raised") == 1
    assert value(text, "fiveways_outbox_bytes") == 7
    assert value(text, "fiveways_build_info", version="1.2.3") == 1
    assert value(text, "fiveways_ready", check="broker") == 0.5
    assert value(text, "fiveways_queue_items", state="dead") == 0


def test_histogram_rises_to_its_count() -> None:
    text = page(busy())
    name, labels = "fiveways_call_duration_seconds", {"method": "math.add"}
    buckets = [
        value(text, f"{name}_bucket", **labels, le=bound) for bound in (*(f"{each:g}" for each in BOUNDS), "+Inf")
    ]
    assert buckets == [3 if bound >= 0.004 else 0 for bound in BOUNDS] + [4]
    assert value(text, f"{name}_count", **labels) == 4
    assert value(text, f"{name}_sum", **labels) == pytest.approx(3 * 0.004 + 100.0)


def test_every_family_follows_the_conventions() -> None:
    text = page(busy())
    found = parsed(text)
    for metric in found.values():
        # The parser returns a counter's name without `_total`, as in OpenMetrics.
        family = FAMILIES[f"{metric.name}_total" if metric.type == COUNTER else metric.name]
        assert metric.documentation == family.help
        assert metric.type == family.kind
        assert family.name.startswith(("fiveways_", "process_"))
        assert family.name.endswith("_total") is (family.kind == COUNTER)
        assert not family.name.endswith(("_ms", "_us", "_ns", "_kb", "_mb", "_percent", "_minutes", "_milliseconds"))
        assert family.kind != HISTOGRAM or family.name.endswith("_seconds")
        for sample in metric.samples:
            assert set(sample.labels) - {"le"} == set(family.labels)
            assert math.isfinite(sample.value)


def test_families_without_a_source_are_omitted() -> None:
    names = {line.split()[2] for line in page(busy()).splitlines() if line.startswith("# TYPE")}
    assert {name.split("_")[1] for name in set(FAMILIES) - names} == {
        "store",
        "spans",
        "start",
        "connections",
        "unfinished",
        "broker",
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_arbitrary_names_are_escaped(name: str) -> None:
    hub = hub_with_peers()
    hub.traffic.call_stats(name, "umq", "nq").calls += 1
    hub.traffic.topic_stats((name,)).publications += 1
    found = parsed(page(hub))
    (sample,) = found["fiveways_method_calls"].samples
    assert sample.value == 1
    if name.isprintable():
        assert sample.labels == {"method": name}
    else:
        assert sample.labels["method"].isprintable()
    assert [each.value for each in found["fiveways_sessions"].samples] == [5]


def test_lone_surrogate_is_escaped() -> None:
    hub = hub_with_peers()
    hub.traffic.call_stats("\ud800", "umq", "nq").calls += 1
    assert value(page(hub), "fiveways_method_calls_total", method="\\ud800") == 1


def test_number_of_name_labels_is_bounded() -> None:
    hub = hub_with_peers()
    before, turned_away = len(page(hub).splitlines()), Counter[str]()
    for number in range(10_000):
        cell = hub.traffic.call_stats(f"m{number}", "umq", "nq")
        cell.calls += 1
        cell.durations.append(0.001)
        topic = hub.traffic.topic_stats((f"t{number}",))
        topic.publications += 1
        turned_away["method"] += cell is hub.traffic.by_key.get((OTHER_LABEL, "umq", "nq"))
        turned_away["topic"] += topic is hub.traffic.other_topics
        hub.handle("ann", Call("c", f"junk{number}"), 0.0)
    text = page(hub)
    found = parsed(text)
    methods = {sample.labels["method"] for sample in found["fiveways_method_calls"].samples}
    topics = {sample.labels["topic"] for sample in found["fiveways_topic_publications"].samples}
    assert len(methods - {OTHER_LABEL, UNKNOWN_LABEL}) <= 200
    assert len(topics - {OTHER_LABEL}) <= 200
    assert sum(sample.value for sample in found["fiveways_bridge_calls"].samples) == 20_000
    for name, label in (("method_calls", "method"), ("topic_publications", "topic")):
        others = [each.value for each in found[f"fiveways_{name}"].samples if each.labels[label] == OTHER_LABEL]
        assert others == [turned_away[label]]
    counts = {s.labels["method"]: s.value for s in found["fiveways_call_duration_seconds"].samples if "count" in s.name}
    assert counts[OTHER_LABEL] == turned_away["method"] > 5000
    assert len(text.splitlines()) - before < 200 * (len(BOUNDS) + 3 + 1 + 1 + 3) + 100


def test_process_metrics_are_present_on_linux() -> None:
    found = process_metrics.process_metrics()
    assert found["process_cpu_seconds_total"] > 0
    if Path("/proc/self/stat").exists():
        assert found["process_resident_memory_bytes"] > 1 << 20
        assert 2 < found["process_open_fds"] <= found["process_max_fds"]
        assert 1_600_000_000 < found["process_start_time_seconds"] < 10_000_000_000


def test_process_metrics_without_proc_are_fewer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_metrics, "_PROC_SELF", tmp_path)
    assert set(process_metrics.process_metrics()) == {"process_cpu_seconds_total"}


def test_process_start_time_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = process_metrics.process_metrics().get("process_start_time_seconds")
    monkeypatch.setattr(process_metrics, "_booted_at", lambda: pytest.fail("it was asked again"))
    assert process_metrics.process_metrics().get("process_start_time_seconds") == started


# Cost of the page.


def test_page_without_names_does_not_aggregate_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = busy()
    numbers = metrics.MetricsSnapshot("1.2.3", hub.stats(), hub.traffic, PLAIN, hub.queue_counts(), {})
    whole = metrics.render_metrics(numbers).decode()
    monkeypatch.setattr(TrafficTotals, "by_method", lambda _: pytest.fail("nobody is told of methods"))
    monkeypatch.setattr(metrics, "by_topic", lambda _: pytest.fail("nobody is told of topics"))
    short = metrics.render_metrics(numbers, names=False).decode()
    named = {name for name, family in FAMILIES.items() if {"method", "topic"} & set(family.labels)}
    families = [{line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} for text in (whole, short)]
    assert families[1] == families[0] - named
    assert set(short.splitlines()) < set(whole.splitlines())


def test_page_is_cached_for_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    name_flags: list[bool] = []
    tell = metrics.render_metrics

    def render(numbers: metrics.MetricsSnapshot, *, names: bool) -> bytes:
        name_flags.append(names)
        return tell(numbers, names=names)

    async def run() -> None:
        exchange, now = Exchange(hub_with_peers(anonymous="loopback")), 100.0
        monkeypatch.setattr(exchange, "now", lambda: now)
        watching = AdminEndpoints(exchange, None, None, 0.0)

        def get_metrics(*, is_loopback: bool) -> bytes:
            answer = watching.answer(Request("GET", "/metrics", "", {}, b"", "", is_loopback))
            assert answer.status == 200
            return answer.body

        first = [get_metrics(is_loopback=True) for _ in range(3)]
        others = [get_metrics(is_loopback=False) for _ in range(3)]
        assert name_flags == [True, False]  # with names, and without them
        assert {b"fiveways_method_calls_total" in page for page in first} == {True}
        assert {b"fiveways_method_calls_total" in page for page in others} == {False}
        exchange.hub.handle("ann", Call("c", "no.such"), now)
        now += 0.75
        assert get_metrics(is_loopback=True) == first[0]
        now += 0.25
        assert b'fiveways_method_calls_total{method="(unknown)"} 1' in get_metrics(is_loopback=True)
        assert name_flags == [True, False, True]

    monkeypatch.setattr(metrics, "render_metrics", render)
    asyncio.run(run())


def test_reference_page_matches_the_code() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert text == metric_families.render_reference(), (
        "run: python -m fiveways.runtime.metric_families > docs/metrics.md"
    )
    for family in FAMILIES.values():
        assert f"| `{family.name}` | {family.kind} | " in text
