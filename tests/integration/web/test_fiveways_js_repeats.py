"""NQ in fiveways.js: retransmission of unacknowledged messages, and deduplication of repeated ones.

The test plays the hub, message by message, over a real WebSocket.
"""

from tests.integration.web.engines import Engine, Scenario
from tests.integration.web.fakes import ScriptedNqHub, serving

CANCELLED = {"type": "local", "fatal": True, "err": "cancelled"}


def grant_request(hub: ScriptedNqHub, target: str) -> dict[str, object]:
    """Answer a request for a built-in method; return its arguments."""
    request = hub.next(t=target)
    hub.send({"a": f"run-{request['r']}", "i": request["r"], "d": None})
    assert hub.next(i=f"run-{request['r']}") == {"i": f"run-{request['r']}"}
    arguments: dict[str, object] = request["d"]
    return arguments


def test_conversation_with_losses_and_duplicates(engine: Engine) -> None:
    hub = ScriptedNqHub()
    with serving(hub):
        scenario = Scenario(engine, "partner", {"url": f"nq+{hub.url}"})
        scenario.wait_for("asked")
        check_request(hub)
        check_stream(hub)
        scenario.signal("cancel")
        check_cancellation(hub)
        assert [grant_request(hub, "hub-register") for _ in range(2)] == [
            {"name": "page-work"},
            {"name": "page-parts", "kind": "server"},
        ]
        subscription = grant_request(hub, "hub-subscribe")
        assert subscription["topic"] == "news-*"
        scenario.wait_for("offered")
        check_events(hub, str(subscription["id"]))
        check_served_method(hub)
        check_served_stream(hub)
        scenario.signal("done")
        scenario.wait_for("closing")
        # State that the hub would keep for a reconnect is removed, all at once.
        removals = [hub.next(t=target) for target in ("hub-unsubscribe", "hub-unregister", "hub-unregister")]
        hub.send(*({"a": f"run-{removal['r']}", "i": removal["r"], "d": None} for removal in removals))
        assert [removal["d"] for removal in removals] == [
            {"id": subscription["id"]},
            {"name": "page-work"},
            {"name": "page-parts"},
        ]
        assert hub.next(e={"type": "sys", "fatal": True, "note": "goodbye"})
        result = scenario.end()
    assert result == {
        "call": {"done": True},
        "stream": [1, 2, 3],
        "reason": "cancelled",
        "runs": 1,
        "seen": [["news.rain", "first", 0], ["news.a_b", "second", 7]],
    }


def check_request(hub: ScriptedNqHub) -> None:
    """A request is retransmitted until it is accepted; each copy of the response is acknowledged."""
    first = hub.next(t="some-thing")
    assert hub.next(t="some-thing") == first == {"t": "some-thing", "r": first["r"], "d": "body"}
    hub.send({"a": "run-1", "i": first["r"]})
    # After acceptance the client only polls; a hub that does not know the request gets it again.
    assert hub.next(t="some-thing", p=first["r"])
    hub.send({"a": "run-2", "i": first["r"], "e": {"type": "sys", "fatal": False, "note": "unknown"}})
    assert hub.next(t="some-thing") == first
    for _ in range(2):
        hub.send({"a": "run-3", "i": first["r"], "d": {"done": True}})
        assert hub.next(i="run-3") == {"i": "run-3"}


def check_stream(hub: ScriptedNqHub) -> None:
    """Parts arrive out of order, twice or not at all; missing parts are requested."""
    r = hub.next(t="some-stream", p=None)["r"]
    part = {"a": "run-4", "i": r}
    hub.send({**part, "n": 3, "f": 0, "d": 3})
    assert hub.next(i="run-4", o=1)
    assert hub.next(i="run-4", o=[1, 2])
    hub.send({**part, "n": 1, "d": 1}, {**part, "n": 1, "d": 1})
    assert hub.next(i="run-4", o=2)
    hub.send({**part, "n": 2, "d": 2})
    assert hub.next(i="run-4", o=4)
    # A hub that missed this acknowledgement retransmits its last part.
    hub.send({**part, "n": 3, "f": 0, "d": 3})
    assert hub.next(i="run-4", o=4)


def check_cancellation(hub: ScriptedNqHub) -> None:
    """A cancellation names the request, and is retransmitted until a response arrives, which is dropped."""
    first = hub.next(e=CANCELLED)
    assert first["t"] == "some-cancelled"
    assert hub.next(e=CANCELLED) == first
    hub.send({"a": "run-5", "i": first["i"], "e": CANCELLED})
    assert hub.next(i="run-5") == {"i": "run-5"}


def check_events(hub: ScriptedNqHub, target: str) -> None:
    """An event is a request that is answered at once; a copy is answered again, and delivered once."""
    event = {"t": target, "r": "e1", "d": "first", "topic": "news-rain"}
    for _ in range(2):
        hub.send(event)
        assert hub.next(i="e1", d=None).keys() == {"a", "i", "d"}
    hub.send({"t": target, "r": "e2", "d": "second", "topic": "news-a_b", "missed": 7})
    assert hub.next(i="e2")


def check_served_method(hub: ScriptedNqHub) -> None:
    """A method runs once; its response is retransmitted until acknowledged, then the request is finished."""
    hub.request("page-work", "w1", [1])
    answer = hub.next(i="w1")
    assert (answer["d"], hub.next(i="w1")) == ([1], answer)
    hub.request("page-work", "w1", [1])
    assert hub.next(i="w1") == answer
    hub.send({"t": "page-work", "p": "w1"})
    assert hub.next(i="w1")["e"] == {"type": "sys", "fatal": False, "note": "done"}
    assert hub.next(i="w1", d=[1]) == answer
    hub.send({"i": answer["a"]})
    hub.request("page-work", "w1", [1])
    assert hub.next(i="w1")["e"]["err"] == "expired"
    hub.send({"t": "page-work", "p": "w2"})
    assert hub.next(i="w2")["e"]["note"] == "unknown"
    hub.request("page-nothing", "w3")
    assert hub.next(i="w3")["e"]["err"] == "notarget"


def check_served_stream(hub: ScriptedNqHub) -> None:
    """At most a window of parts is in flight; lost parts are retransmitted on request."""
    hub.request("page-parts", "p1", 100)
    parts = [hub.next(i="p1") for _ in range(64)]
    assert [(part["n"], part["d"]) for part in parts] == [(n, n) for n in range(1, 65)]
    a = parts[0]["a"]
    # Without an acknowledgement, the first and the last part are retransmitted.
    assert [hub.next(i="p1")["n"] for _ in range(2)] == [1, 64]
    hub.send({"i": a, "o": [7, 9, 99]})
    assert [hub.next(i="p1")["n"] for _ in range(2)] == [7, 9]
    hub.send({"i": a, "o": 65})
    rest = [hub.next(i="p1") for _ in range(37)]
    assert [part["n"] for part in rest] == list(range(65, 102))
    assert (rest[-1].get("f"), "d" in rest[-1]) == (0, False)
    hub.send({"i": a, "o": 102})
    hub.request("page-parts", "p1", 100)
    assert hub.next(i="p1")["e"]["err"] == "expired"
