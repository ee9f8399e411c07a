"""NQ in fiveways.js: what is not reacted to is said again, what comes again is not run again, whatever the link does.

The hub is played by the test, message by message, over a real WebSocket.
"""

from tests.integration.web.engines import Engine, Story
from tests.integration.web.fakes import Partner, serving

CANCELLED = {"type": "local", "fatal": True, "err": "cancelled"}


def granted(hub: Partner, target: str) -> dict[str, object]:
    """Answer a request of the client's for something of the hub's own; give its arguments."""
    asked = hub.next(t=target)
    hub.say({"a": f"run-{asked['r']}", "i": asked["r"], "d": None})
    assert hub.next(i=f"run-{asked['r']}") == {"i": f"run-{asked['r']}"}
    given: dict[str, object] = asked["d"]
    return given


def test_a_conversation_with_losses_and_repeats(engine: Engine) -> None:
    hub = Partner()
    with serving(hub):
        story = Story(engine, "partner", {"url": f"nq+{hub.url}"})
        story.said("asked")
        asked(hub)
        streamed(hub)
        story.tell("cancel")
        given_up(hub)
        assert [granted(hub, "hub-register") for _ in range(2)] == [
            {"name": "page-work"},
            {"name": "page-parts", "kind": "server"},
        ]
        subscription = granted(hub, "hub-subscribe")
        assert subscription["topic"] == "news-*"
        story.said("offered")
        followed(hub, str(subscription["id"]))
        served(hub)
        served_in_parts(hub)
        story.tell("done")
        story.said("closing")
        # What a hub would keep for whoever comes back is taken back, all at once.
        taken = [hub.next(t=target) for target in ("hub-unsubscribe", "hub-unregister", "hub-unregister")]
        hub.say(*({"a": f"run-{each['r']}", "i": each["r"], "d": None} for each in taken))
        assert [each["d"] for each in taken] == [
            {"id": subscription["id"]},
            {"name": "page-work"},
            {"name": "page-parts"},
        ]
        assert hub.next(e={"type": "sys", "fatal": True, "note": "goodbye"})
        told = story.end()
    assert told == {
        "call": {"done": True},
        "stream": [1, 2, 3],
        "reason": "cancelled",
        "runs": 1,
        "seen": [["news.rain", "first", 0], ["news.a_b", "second", 7]],
    }


def asked(hub: Partner) -> None:
    """A request is repeated until it is accepted; the answer is acknowledged as often as it comes."""
    first = hub.next(t="some-thing")
    assert hub.next(t="some-thing") == first == {"t": "some-thing", "r": first["r"], "d": "body"}
    hub.say({"a": "run-1", "i": first["r"]})
    # Accepted, it is only asked after; a hub that does not know it gets it again.
    assert hub.next(t="some-thing", p=first["r"])
    hub.say({"a": "run-2", "i": first["r"], "e": {"type": "sys", "fatal": False, "note": "unknown"}})
    assert hub.next(t="some-thing") == first
    for _ in range(2):
        hub.say({"a": "run-3", "i": first["r"], "d": {"done": True}})
        assert hub.next(i="run-3") == {"i": "run-3"}


def streamed(hub: Partner) -> None:
    """Parts come in any order, twice or not at all; those that are missing are asked for."""
    r = hub.next(t="some-stream", p=None)["r"]
    part = {"a": "run-4", "i": r}
    hub.say({**part, "n": 3, "f": 0, "d": 3})
    assert hub.next(i="run-4", o=1)
    assert hub.next(i="run-4", o=[1, 2])
    hub.say({**part, "n": 1, "d": 1}, {**part, "n": 1, "d": 1})
    assert hub.next(i="run-4", o=2)
    hub.say({**part, "n": 2, "d": 2})
    assert hub.next(i="run-4", o=4)
    # Whoever did not hear that says its last part again.
    hub.say({**part, "n": 3, "f": 0, "d": 3})
    assert hub.next(i="run-4", o=4)


def given_up(hub: Partner) -> None:
    """A cancellation names the request, and is repeated until there is an answer, which nobody hears."""
    first = hub.next(e=CANCELLED)
    assert first["t"] == "some-cancelled"
    assert hub.next(e=CANCELLED) == first
    hub.say({"a": "run-5", "i": first["i"], "e": CANCELLED})
    assert hub.next(i="run-5") == {"i": "run-5"}


def followed(hub: Partner, target: str) -> None:
    """An event is a request, answered at once; one that comes again is answered again, and shown once."""
    event = {"t": target, "r": "e1", "d": "first", "topic": "news-rain"}
    for _ in range(2):
        hub.say(event)
        assert hub.next(i="e1", d=None).keys() == {"a", "i", "d"}
    hub.say({"t": target, "r": "e2", "d": "second", "topic": "news-a_b", "missed": 7})
    assert hub.next(i="e2")


def served(hub: Partner) -> None:
    """A method runs once; its answer is repeated until it is acknowledged, and then the request is known as over."""
    hub.request("page-work", "w1", [1])
    answer = hub.next(i="w1")
    assert (answer["d"], hub.next(i="w1")) == ([1], answer)
    hub.request("page-work", "w1", [1])
    assert hub.next(i="w1") == answer
    hub.say({"t": "page-work", "p": "w1"})
    assert hub.next(i="w1")["e"] == {"type": "sys", "fatal": False, "note": "done"}
    assert hub.next(i="w1", d=[1]) == answer
    hub.say({"i": answer["a"]})
    hub.request("page-work", "w1", [1])
    assert hub.next(i="w1")["e"]["err"] == "expired"
    hub.say({"t": "page-work", "p": "w2"})
    assert hub.next(i="w2")["e"]["note"] == "unknown"
    hub.request("page-nothing", "w3")
    assert hub.next(i="w3")["e"]["err"] == "notarget"


def served_in_parts(hub: Partner) -> None:
    """No more than a window of parts is under way; lost ones are said again when they are asked for."""
    hub.request("page-parts", "p1", 100)
    parts = [hub.next(i="p1") for _ in range(64)]
    assert [(part["n"], part["d"]) for part in parts] == [(n, n) for n in range(1, 65)]
    a = parts[0]["a"]
    # Nobody reacts: the first and the last are said again.
    assert [hub.next(i="p1")["n"] for _ in range(2)] == [1, 64]
    hub.say({"i": a, "o": [7, 9, 99]})
    assert [hub.next(i="p1")["n"] for _ in range(2)] == [7, 9]
    hub.say({"i": a, "o": 65})
    rest = [hub.next(i="p1") for _ in range(37)]
    assert [part["n"] for part in rest] == list(range(65, 102))
    assert (rest[-1].get("f"), "d" in rest[-1]) == (0, False)
    hub.say({"i": a, "o": 102})
    hub.request("page-parts", "p1", 100)
    assert hub.next(i="p1")["e"]["err"] == "expired"
