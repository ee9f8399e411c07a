"""The latency histogram of `hub.traffic`: counts only grow, so the difference of two reports has percentiles."""

from typing import Any

from fiveways.hub.core import Hub
from fiveways.hub.histogram import BOUNDS
from fiveways.model.messages import Call, Result
from tests.support.hub_helpers import hub_with_peers, only_message, register_method


def read_report(hub: Hub, now: float) -> Any:  # noqa: ANN401  JSON
    return only_message(hub.handle("dan", Call("t", "hub.traffic"), now), Result).body.native["latency"]


def call(hub: Hub, method: str, started_at: float, ended_at: float) -> None:
    request = only_message(hub.handle("ann", Call("c", method), started_at), Call)
    hub.handle("bob", Result(request.id), ended_at)


def test_latency_histogram_counts_calls_of_all_methods() -> None:
    hub = hub_with_peers()
    register_method(hub, "bob", "one")
    register_method(hub, "bob", "two")
    assert read_report(hub, 0.0) == {"bounds": list(BOUNDS), "counts": [0] * (len(BOUNDS) + 1)}
    call(hub, "one", 1.0, 1.002)
    call(hub, "two", 2.0, 2.002)
    call(hub, "two", 3.0, 3.4)
    counts = read_report(hub, 4.0)["counts"]
    expected = {0.0025: 2, 0.5: 1}
    assert counts == [*(expected.get(bound, 0) for bound in BOUNDS), 0]
    call(hub, "one", 5.0, 5.002)
    counts_later = read_report(hub, 6.0)["counts"]
    assert [now - then for now, then in zip(counts_later, counts, strict=True)] == [
        *(int(bound == 0.0025) for bound in BOUNDS),
        0,
    ]
