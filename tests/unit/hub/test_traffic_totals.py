"""Traffic totals of a known conversation, and methods and topics beyond the limit."""

from random import Random
from typing import Any

import pytest

from fiveways.errors import Reason
from fiveways.hub.core import Hub
from fiveways.hub.session import public_name
from fiveways.hub.settings import HubSettings, Identity, Permissions
from fiveways.hub.spans import SpanRecorder
from fiveways.hub.traffic_totals import (
    MAX_FAILURE_TEXT,
    MAX_RECENT_FAILURES,
    MAX_SLOW_CONSUMERS,
    OTHER_LABEL,
    UNKNOWN_LABEL,
    CallStats,
    SlowConsumer,
    TrafficTotals,
)
from fiveways.hub.traits import OBSERVER, Credentials, ProtocolTraits
from fiveways.model import names, topics
from fiveways.model.messages import Call, Cancel, Discover, Failure, Hello, Publish, Result, SetVariable, Subscribe
from fiveways.wire.payload import NULL, Value
from tests.support.hub_helpers import (
    LRPM,
    PEERS,
    UMQ,
    hub_with_peers,
    join,
    make_hub,
    only_message,
    pattern,
    register_method,
    subscribe,
    topic,
)

DURABLE_NQ = ProtocolTraits("nq", names.NQ, topics.NQ, accepts_streams=True, cancels=True, is_durable=True)


def read_report(hub: Hub, now: float = 100.0) -> Any:  # noqa: ANN401  the response of `hub.traffic`
    return only_message(hub.handle("dan", Call("traffic", "hub.traffic"), now), Result).body.native


def method_row(hub: Hub, name: str) -> dict[str, Any]:
    (row,) = [row for row in read_report(hub)["methods"] if row["method"] == name]
    return dict(row)


def protocol_pair_row(hub: Hub, caller: str, callee: str) -> dict[str, Any]:
    (row,) = [row for row in read_report(hub)["bridges"] if (row["caller"], row["callee"]) == (caller, callee)]
    return dict(row)


def test_calls_are_counted_by_method_and_protocol_pair() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "math.add")
    for number in range(4):
        hub.handle("ann", Call(str(number), "math.add"), 1.0)
        hub.handle("bob", Result(str(number + 1)), 1.0 + 0.004)
    hub.handle("ann", Call("f", "math.add"), 2.0)
    hub.handle("bob", Failure("5", Reason.RAISED, "no"), 2.5)
    hub.handle("cleo", Call("o", "math.add"), 3.0)
    result = method_row(hub, "math.add")
    assert (result["calls"], result["results"], result["failures"]) == (6, 4, 1)
    assert result["seconds"] == pytest.approx(4 * 0.004 + 0.5)
    assert 0.0025 < result["p50"] <= 0.005
    assert 0.25 < result["p99"] <= 0.5
    assert protocol_pair_row(hub, "lrpm-json", "umq") == {
        "caller": "lrpm-json",
        "callee": "umq",
        "calls": 5,
        "failures": 1,
        "p95": pytest.approx(0.4375),
    }
    assert protocol_pair_row(hub, "nq", "umq") == {
        "caller": "nq",
        "callee": "umq",
        "calls": 1,
        "failures": 0,
        "p95": None,
    }
    protocols = read_report(hub)["protocols"]
    assert {name: row["sessions"] for name, row in protocols.items()} == {"lrpm-json": 2, "nq": 1, "umq": 2}
    assert protocols["nq"]["calls"] == 1
    assert protocols["umq"]["calls"] == 0


def test_call_durations_are_aggregated_periodically() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    for number in range(1, 3000):
        hub.handle("ann", Call("c", "a.b"), float(number))
        hub.handle("bob", Result(str(number)), number + 0.01)
        assert sum(len(cell.durations) for cell in hub.traffic.by_key.values()) <= 1024
    result = method_row(hub, "a.b")
    assert (result["calls"], result["results"]) == (2999, 2999)
    assert result["seconds"] == pytest.approx(29.99)


def test_calls_answered_by_hub_have_no_duration() -> None:
    hub = hub_with_peers()
    hub.handle("bob", Call("1", "hub.ping"), 0.0)
    hub.handle("bob", Call("2", "hub.get", NULL), 0.0)
    ping, get = method_row(hub, "hub.ping"), method_row(hub, "hub.get")
    assert ping == {"method": "hub.ping", "calls": 1, "results": 1, "failures": 0, "seconds": 0.0} | dict.fromkeys(
        ("p50", "p95", "p99")
    )
    assert (get["calls"], get["results"], get["failures"]) == (1, 0, 1)
    assert protocol_pair_row(hub, "umq", "hub")["calls"] == 2


def test_publications_are_counted_by_topic_and_protocol() -> None:
    hub = hub_with_peers()
    subscribe(hub, "ann", pattern("news.*"))
    subscribe(hub, "bob", pattern("news.sport"))
    hub.handle("cleo", Publish(None, topic("news.sport"), Value(1), retain=True), 0.0)
    hub.handle("cleo", Publish(None, topic("news.art"), Value(1)), 0.0)
    hub.handle("cleo", Publish(None, topic("nobody.listens"), Value(1)), 0.0)
    deliveries = hub.handle("dan", Subscribe("r", pattern("news.*"), "s"), 0.0)
    assert len(deliveries) == 2
    hub.traffic.count_missed(topic("news.sport"))
    report = read_report(hub)
    assert report["topics"] == [
        {"topic": "news.sport", "publications": 1, "deliveries": 3, "missed": 1},
        {"topic": "news.art", "publications": 1, "deliveries": 1, "missed": 0},
        {"topic": "nobody.listens", "publications": 1, "deliveries": 0, "missed": 0},
    ]
    assert report["protocols"]["nq"]["publications"] == 3
    assert report["others"] == {"methods": 0, "topics": 0}


def test_failure_text_is_redacted() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    hub.handle("ann", Call("1", "a.b"), 0.0)
    hub.handle("bob", Failure("1", Reason.RAISED, "no answer of db://u:geheim@h?api_key=geheim"), 1.0)
    assert read_report(hub)["failures"][0]["text"] == "no answer of db://u:***@h?api_key=***"


def test_latest_failures_are_reported_newest_first_up_to_limit() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    for number in range(60):
        hub.handle("ann", Call(str(number), "a.b"), 0.0)
        hub.handle("bob", Failure(str(number + 1), Reason.RAISED, f"{number} " + "x" * 999), number + 1.0)
    failures = read_report(hub)["failures"]
    assert len(failures) == MAX_RECENT_FAILURES
    assert [failure["at"] for failure in failures] == [float(at) for at in range(60, 10, -1)]
    assert failures[0] == {
        "at": 60.0,
        "method": "a.b",
        "caller": "lrpm-json",
        "callee": "umq",
        "reason": "raised",
        "text": ("59 " + "x" * 999)[:MAX_FAILURE_TEXT],
        "caller_peer": public_name("ann"),
        "callee_peer": public_name("bob"),
        "op": "60",
        "seconds": 60.0,
        "trace": "",
    }


def test_each_failure_is_counted_with_its_reason() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "a.b")
    hub.handle("ann", Call("late", "a.b", timeout=1.0), 0.0)
    hub.expire(2.0)
    hub.handle("ann", Call("unwanted", "a.b"), 2.0)
    hub.handle("ann", Cancel("unwanted"), 3.0)
    hub.handle("ann", Call("lost", "a.b"), 3.0)
    hub.leave("bob", 4.0)
    hub.handle("ann", Call("missing", "a.b"), 5.0)
    hub.handle("ann", Call("unknown", "no.such"), 5.0)
    hub.handle("ann", Call("token", "123456789012", callback=True), 5.0)
    result = read_report(hub)["failures"]
    assert [(failure["method"], failure["reason"], failure["callee"]) for failure in reversed(result)] == [
        ("a.b", "timeout", "umq"),
        ("a.b", "cancelled", "umq"),
        ("a.b", "lost", "umq"),
        ("a.b", "unavailable", "hub"),
        ("no.such", "no_such_method", "hub"),
        ("(callback)", "no_such_callback", "hub"),
    ]
    # A call that was not routed has no operation and no callee.
    assert [(failure["op"], failure["seconds"], bool(failure["callee_peer"])) for failure in reversed(result)] == [
        *(("1", 2.0, True), ("2", 1.0, True), ("3", 1.0, True)),
        *[("", 0.0, False)] * 3,
    ]
    assert {failure["caller_peer"] for failure in result} == {public_name("ann")}
    assert method_row(hub, "a.b")["failures"] == 4
    assert method_row(hub, UNKNOWN_LABEL)["failures"] == 1
    assert method_row(hub, "(callback)")["calls"] == 1


def test_jobs_and_queries_are_counted_under_their_built_in_methods() -> None:
    hub = hub_with_peers()
    hub.handle("bob", Call("1", "hub.pull", Value({"queue": "jobs", "callback": "7"})), 0.0)
    hub.handle("ann", Call("2", "hub.push", Value({"queue": "jobs", "data": 1})), 0.0)
    hub.handle("bob", Result("1"), 1.0)
    register_method(hub, "ann", "account", route=True)
    hub.handle("bob", Discover("3", "account:"), 1.0)
    assert protocol_pair_row(hub, "hub", "umq")["calls"] == 1
    assert method_row(hub, "hub.discover")["calls"] == 1
    assert method_row(hub, "hub.pull")["results"] == 2


def test_each_delivery_of_durable_request_is_counted() -> None:
    hub = hub_with_peers()
    join(hub, "nora", DURABLE_NQ)
    register_method(hub, "bob", "a.b")
    hub.handle("nora", Call("1", "a.b"), 0.0)
    register_method(hub, "eve", "a.b")
    hub.leave("bob", 1.0)
    hub.handle("eve", Result("2"), 3.0)
    result = method_row(hub, "a.b")
    assert (result["calls"], result["results"], result["failures"], result["seconds"]) == (2, 1, 1, 3.0)


def test_methods_and_topics_beyond_limit_are_counted_as_other() -> None:
    hub = hub_with_peers(max_methods=10, max_topics=10)
    for number in range(1000):
        register_method(hub, "bob", f"m{number}.x")
        hub.handle("ann", Call("c", f"m{number}.x"), 0.0)
        hub.handle("bob", Result(str(number + 1)), 0.001)
        hub.handle("ann", Publish(None, topic(f"t.{number}"), NULL), 0.0)
    report = read_report(hub)
    named = [row["method"] for row in report["methods"] if row["method"] not in {OTHER_LABEL, "hub.traffic"}]
    assert len(named) <= 10
    assert len(report["topics"]) <= 11
    forgotten = report["forgotten"]
    assert sum(row["calls"] for row in report["methods"]) + forgotten["calls"] == 1000
    assert sum(row["results"] for row in report["methods"]) + forgotten["results"] == 1000
    assert (protocol_pair_row(hub, "lrpm-json", "umq")["calls"], report["protocols"]["lrpm-json"]["calls"]) == (
        1000,
        1000,
    )
    assert sum(report["latency"]["counts"]) == 1000
    assert report["protocols"]["lrpm-json"]["publications"] == 1000
    assert 700 < report["others"]["methods"] < 800  # others had counters of their own for a while
    assert 700 < report["others"]["topics"] < 800


def test_counts_of_evicted_method_are_not_added_to_other() -> None:
    hub = hub_with_peers(max_methods=4, max_topics=4)
    for number in range(12):
        register_method(hub, "bob", f"m{number}.x")

    def other_counts() -> tuple[int, int, int]:
        cell, topics = hub.traffic.by_method().get(OTHER_LABEL, CallStats()), hub.traffic.other_topics
        return cell.calls, len(cell.histogram), topics.publications

    op, before = 0, other_counts()
    for _ in range(9):
        for number in (0, 0, 0, 1, 1, 1, 2, 2, 2, *range(12)):
            op += 1
            hub.handle("ann", Call("c", f"m{number}.x"), 0.0)
            hub.handle("bob", Result(str(op)), 0.001)
            hub.handle("ann", Publish(None, topic(f"t.{number}"), NULL), 0.0)
            now = other_counts()
            assert all(newer - older <= 1 for newer, older in zip(now, before, strict=True))
            before = now
    forgotten = read_report(hub)["forgotten"]
    assert forgotten["calls"] == forgotten["results"] > 0
    assert before[0] > 10


def test_built_in_methods_are_never_evicted() -> None:
    hub = hub_with_peers(max_methods=2)
    hub.handle("ann", Call("p", "hub.ping"), 0.0)
    for number in range(50):
        register_method(hub, "bob", f"m{number}.x")
        hub.handle("ann", Call(str(number), f"m{number}.x"), 0.0)
    assert method_row(hub, "hub.ping")["calls"] == 1


def test_flood_of_method_names_does_not_evict_used_ones() -> None:
    traffic = TrafficTotals(10, 10)
    for number in range(1000):
        for _ in range(3):
            traffic.call_stats("busy.one", "umq", "nq").calls += 1
            traffic.topic_stats(("busy",)).publications += 1
        traffic.call_stats(f"junk{number}", "umq", "nq").calls += 1
        traffic.topic_stats((f"junk{number}",)).publications += 1
    assert traffic.by_method()["busy.one"].calls == 3000
    assert traffic.topics["busy",].publications == 3000


def test_call_that_ends_after_eviction_of_its_method_is_counted() -> None:
    hub = hub_with_peers(max_methods=2)
    for number in range(4):
        register_method(hub, "bob", f"m{number}.x")
    hub.handle("ann", Call("open", "m0.x"), 0.0)
    op = 1
    for _ in range(20):
        for number in (1, 2, 3):
            op += 1
            hub.handle("ann", Call("c", f"m{number}.x"), 0.0)
            hub.handle("bob", Result(str(op)), 0.001)
    assert ("m0.x", "lrpm-json", "umq") not in hub.traffic.by_key
    hub.handle("bob", Failure("1", Reason.RAISED), 1.0)
    assert protocol_pair_row(hub, "lrpm-json", "umq")["failures"] == 1
    report = read_report(hub)
    numbers = [*(row for row in report["methods"] if "hub." not in row["method"]), report["forgotten"]]
    assert [row["calls"] - row["results"] - row["failures"] for row in numbers] == [0] * len(numbers)
    assert report["forgotten"]["failures"] == 1


def test_unknown_methods_get_no_counters_of_their_own() -> None:
    hub = hub_with_peers(max_methods=5, anonymous_permissions=Permissions(call=("allowed", "hub.traffic")))
    for number in range(100):
        hub.handle("ann", Call("c", f"junk{number}"), 0.0)
    assert {key[0] for key in hub.traffic.by_key} == {UNKNOWN_LABEL}


def test_unrouted_requests_for_unknown_methods_get_no_counters_of_their_own() -> None:
    hub = hub_with_peers(max_given=1, request_ttl=10.0)
    join(hub, "nora", DURABLE_NQ)
    for name, is_route in (("a.b", False), ("gone", True)):
        register_method(hub, "bob", name, route=is_route)
    hub.leave("bob", 0.0)
    register_method(hub, "eve", "full", route=True)
    hub.handle("nora", Call("first", "full.one"), 0.0)
    for number in range(20):
        for where in ("gone", "full"):
            hub.handle("nora", Call(f"{where}{number}", f"{where}.junk{number}"), 0.0)
        hub.handle("nora", Call(f"unknown{number}", f"junk{number}"), 0.0)
    hub.handle("nora", Call("was there", "a.b"), 0.0)
    for number in range(10):
        hub.handle("nora", Cancel(f"gone{number}"), 1.0)
        hub.handle("nora", Cancel(f"full{number}"), 1.0)
    hub.handle("eve", Result("1"), 2.0)
    hub.leave("eve", 2.0)
    for _ in range(3):
        hub.expire(11.0)
    calls = {row["method"]: row["calls"] for row in read_report(hub)["methods"]}
    names = [name for name in calls if name.startswith("full.")]  # those that eve received
    assert {name: calls[name] for name in calls if name not in names} == {
        "a.b": 1,
        "gone": 20,
        "full": 20,
        UNKNOWN_LABEL: 20,
    }
    assert len(names) <= 2


def test_refusals_before_login_are_not_in_latest_failures() -> None:
    hub = make_hub(identities=(Identity("alice", "sesame"),), anonymous="never")
    hub.arrive("eve", UMQ, Credentials(), 0.0)
    hub.handle("eve", Hello(), 0.0)
    for number in range(MAX_RECENT_FAILURES):
        refused = only_message(hub.handle("eve", Call("c", f"look at me {number}"), 1.0), Failure)
        assert refused.text == "authentication required: no token was given"
    hub.arrive("dan", LRPM, Credentials(), 1.0)
    hub.handle("dan", Hello(Value({"token": "sesame"})), 1.0)
    report = read_report(hub)
    assert (report["failures"], report["methods"]) == ([], [])
    assert hub.stats()["failures"] == {"denied": MAX_RECENT_FAILURES}


def test_slow_consumers_are_reported_worst_first() -> None:
    hub = hub_with_peers()
    hub.traffic.slow_consumers = lambda: [SlowConsumer(str(number), "umq", number // 2, number) for number in range(50)]
    slow = read_report(hub)["slow"]
    assert len(slow) == MAX_SLOW_CONSUMERS
    assert slow[0] == {"peer": "49", "protocol": "umq", "missed": 24, "waiting_bytes": 49}
    assert slow[1]["waiting_bytes"] == 48


def test_traffic_report_has_current_time_and_uptime() -> None:
    hub = Hub(Random(1), epoch=1_000_000.0, started_at=40.0)
    join(hub, "dan", now=41.0)
    report = read_report(hub, 52.5)
    assert (report["at"], report["uptime"]) == (1_000_052.5, 12.5)


def test_traffic_requires_permission() -> None:
    hub = hub_with_peers(anonymous_permissions=Permissions(call=("math.*",)))
    failure = only_message(hub.handle("ann", Call("c", "hub.traffic"), 0.0), Failure)
    assert failure.reason is Reason.DENIED


def test_new_limits_apply_after_reload() -> None:
    hub = hub_with_peers(max_methods=50)
    for number in range(50):
        hub.traffic.call_stats(f"m{number}", "umq", "nq").calls += number
    hub.reload(HubSettings(max_methods=8))
    for number in range(50, 60):
        hub.traffic.call_stats(f"m{number}", "umq", "nq").calls += 1
    named = {name for name in hub.traffic.by_method() if name != OTHER_LABEL}
    assert len(named) <= 8
    assert "m49" in named


def test_traffic_report_has_public_names_only() -> None:
    hub = hub_with_peers()
    hub.handle("ann", SetVariable("v", "token", Value("hunter2")), 0.0)
    hub.handle("ann", Call("c", "no.such", Value("hunter2")), 0.0)
    answer = only_message(hub.handle("dan", Call("t", "hub.traffic"), 0.0), Result).body.json()
    assert b"hunter2" not in answer
    # A peer resumes its session by its id, so only the public name may appear.
    assert b'"ann"' not in answer
    assert public_name("ann").encode() in answer


def test_failure_of_sampled_call_has_its_trace_id() -> None:
    hub = hub_with_peers()
    hub.set_span_recorder(SpanRecorder(Random(7), 1.0, 9))
    register_method(hub, "bob", "a.b")
    hub.handle("ann", Call("1", "a.b"), 0.0)
    hub.handle("bob", Failure("1", Reason.RAISED, "no"), 1.0)
    (failure,) = read_report(hub)["failures"]
    assert len(failure["trace"]) == 32
    assert int(failure["trace"], 16)


def test_failure_of_durable_request_has_its_operation() -> None:
    hub = make_hub()
    join(hub, "nora", DURABLE_NQ)
    for peer in ("bob", "dan"):
        join(hub, peer)
    register_method(hub, "bob", "a.b")
    hub.handle("nora", Call("1", "a.b"), 0.0)
    hub.handle("bob", Failure("1", Reason.RAISED, "no"), 1.0)
    (failure,) = read_report(hub)["failures"]
    assert failure["op"].startswith("n")


# Observers.


def test_observer_traffic_is_reported_apart() -> None:
    hub = hub_with_peers()
    hub.arrive("zoe", LRPM, Credentials(is_observer=True), 0.0)
    hub.handle("zoe", Hello(), 0.0)
    register_method(hub, "bob", "math.add")
    before = read_report(hub)
    hub.traffic.protocol_stats(OBSERVER).count_received(10)
    for name in ("hub.stats", "hub.traffic", "hub.peers"):
        hub.handle("zoe", Call(name, name), 1.0)
    after = read_report(hub)
    assert after["protocols"] == before["protocols"] | {
        "lrpm-json": before["protocols"]["lrpm-json"] | {"calls": 1}  # the call of dan
    }
    assert [row["method"] for row in after["methods"]] == ["hub.traffic"]
    assert {row["caller"] for row in after["bridges"]} == {"lrpm-json"}
    assert after["observers"] == {"frames_in": 1, "frames_out": 0, "bytes_in": 10, "bytes_out": 0, "calls": 3}
    assert before["observers"]["calls"] == 0
    # All other calls of an observer count as load.
    hub.handle("zoe", Call("sum", "math.add"), 2.0)
    assert method_row(hub, "math.add")["calls"] == 1
    assert protocol_pair_row(hub, "lrpm-json", "umq")["calls"] == 1
    assert after["protocols"]["lrpm-json"]["sessions"] == len([1 for row in PEERS.values() if row is LRPM]) + 1


def test_metrics_include_observer_traffic() -> None:
    hub = hub_with_peers()
    hub.arrive("zoe", LRPM, Credentials(is_observer=True), 0.0)
    hub.handle("zoe", Hello(), 0.0)
    hub.handle("zoe", Call("1", "hub.stats"), 1.0)
    assert hub.traffic.by_method()["hub.stats"].calls == 1
    assert hub.traffic.by_protocol_pair()[OBSERVER, "hub"].calls == 1


def test_frames_are_counted_at_once_or_aggregated_later() -> None:
    traffic = TrafficTotals(9, 9)
    tally = traffic.protocol_stats("umq")
    assert traffic.protocol_stats("umq") is tally
    tally.count_received(10)
    tally.count_sent(7)
    tally.count_sent(1)
    tally.unaggregated_sizes += [1, 2, 3]
    traffic.aggregate_frames()
    traffic.protocol_stats("nq")
    traffic.aggregate_frames()
    assert (tally.frames_in, tally.bytes_in, tally.frames_out, tally.bytes_out) == (4, 16, 2, 8)
    assert tally.unaggregated_sizes == []
