"""fiveways.js treats names of JavaScript's own object properties like any other name."""

from typing import Any

import pytest

import fiveways
from tests.integration.web.engines import Engine, Scenario, run
from tests.integration.web.fakes import AnsweringHub, ScriptedNqHub, serving
from tests.support.hubs import Hub

OWN = ["constructor", "toString", "__proto__", "valueOf", "hasOwnProperty"]
PLACES = "".join(f"<{{{name}}}>" for name in OWN)
EMPTY = "<>" * len(OWN)
ODD = {"toString": 1, "valueOf": 2}
"""An object that cannot be converted to text."""


def raised(name: str, message: str) -> dict[str, object]:
    return {"reason": "raised", "ran": "yes", "name": name, "message": message}


def failed(reason: str, ran: str, message: str) -> dict[str, object]:
    return {"reason": reason, "ran": ran, "name": "CallError", "message": message}


@pytest.mark.parametrize("scheme", ["lrpm+ws", "nq+ws", "nq+http"])
@pytest.mark.parametrize("name", ["constructor", "__proto__"])
def test_error_named_like_a_property_means_that_the_method_ran(
    engine: Engine, hub: Hub, scheme: str, name: str
) -> None:
    with fiveways.connect_sync(hub.url("lrpm")) as worker:

        def fail() -> None:
            raise fiveways.Fail("sold out", name=name)

        worker.register("odd.failure", fail)
        assert run(engine, "outcomes", url=hub.url(scheme), names=["odd.failure"]) == [raised(name, "sold out")]


def test_method_named_like_a_property(engine: Engine, hub: Hub) -> None:
    scenario = Scenario(engine, "offering", {"url": hub.url("lrpm+ws"), "name": "constructor.__proto__"})
    scenario.wait_for("ready")
    with fiveways.connect_sync(hub.url("umq")) as peer:
        assert peer.call("constructor.__proto__.echo", "x") == "x"
        assert peer.discover("constructor.__proto__.add").doc == "Add two numbers."
        peer.publish("constructor.__proto__.news.today", 1)
    scenario.signal("done")
    scenario.end()


def test_responses_in_lrpm(engine: Engine) -> None:
    note = {"progress": True, "code": "half", "text": f"{{0}} {{1}} {PLACES}", "args": ["a"]}
    odd = {"__proto__": {"progress": True, "part": 1}, "constructor": 1, "text": ODD, "attachments": ODD}
    answers: dict[str, tuple[list[list[Any]], dict[str, object]]] = {
        **{f"named.n{at}": ([[20, name, "why", {}]], raised(name, "why")) for at, name in enumerate(OWN)},
        "unknown.of_hub": ([[20, "hub.err.constructor", None, {}]], failed("lost", "unknown", "hub.err.constructor")),
        "noted": ([[41, None, note], [41, 5, {}]], {"value": "5", "notes": [[f"half a {EMPTY}", "half"]]}),
        "noted.oddly": (
            [[41, None, {**note, "args": [ODD]}], [41, 5, odd]],
            {"value": "5", "notes": [[f"half  {EMPTY}", "half"]]},
        ),
        "answered": (
            [[41, {"__proto__": {"a": 1}, "constructor": 2}, {}]],
            {"value": '{"__proto__":{"a":1},"constructor":2}'},
        ),
    }
    hub = AnsweringHub({name: frames for name, (frames, _) in answers.items()})
    with serving(hub):
        outcomes = run(engine, "outcomes", url=f"lrpm+{hub.url}", names=list(answers))
    assert outcomes == [expected for _, expected in answers.values()]


@pytest.mark.parametrize(
    "said",
    [[20, ["hub.err.denied"], None, {}], [20, None, None, {}], ["constructor", 1], ["__proto__", 1]],
    ids=["a list", "nothing", "constructor", "proto"],
)
def test_invalid_lrpm_message_leaves_the_execution_unknown(engine: Engine, said: list[Any]) -> None:
    hub = AnsweringHub({"some.method": [said]})
    with serving(hub):
        (outcome,) = run(engine, "outcomes", url=f"lrpm+{hub.url}", names=["some.method"])
    assert (outcome["reason"], outcome["ran"]) == ("lost", "unknown")
    assert "broke the protocol" in outcome["message"]


def test_failures_in_nq(engine: Engine) -> None:
    fatal = {"fatal": True, "text": PLACES}
    errors = [
        *(({**fatal, "type": "remote", "err": name}, failed("lost", "unknown", EMPTY)) for name in OWN),
        *(({**fatal, "type": "app", "err": name}, raised(name, EMPTY)) for name in OWN),
        ({"type": "remote", "fatal": True, "err": "denied"}, failed("denied", "no", "denied")),
    ]
    hub = ScriptedNqHub()
    with serving(hub):
        names = [f"some.method{at}" for at in range(len(errors))]
        scenario = Scenario(engine, "outcomes", {"url": f"nq+{hub.url}", "names": names})
        for name, (error, _) in zip(names, errors, strict=True):
            r = hub.next(t=name.replace(".", "-"))["r"]
            hub.send({"a": f"run-{r}", "i": r, "e": error})
        assert scenario.end() == [expected for _, expected in errors]


@pytest.mark.parametrize(
    "odd",
    [
        {"a": "run-1", "i": "R", "e": {"type": "constructor", "fatal": True, "err": "denied"}},
        {"a": "run-1", "i": "R", "e": {"type": "remote", "fatal": True, "err": ODD}},
        {"a": "run-1", "i": "R", "e": {"type": "remote", "fatal": True, "err": "denied", "args": [ODD]}},
        {"a": "run-1", "i": "R", "e": {"type": "remote", "fatal": True, "err": "denied", "text": ["denied"]}},
    ],
    ids=["type", "err", "args", "text"],
)
def test_unreadable_nq_error_is_not_a_response(engine: Engine, odd: dict[str, Any]) -> None:
    hub = ScriptedNqHub()
    with serving(hub):
        scenario = Scenario(engine, "outcomes", {"url": f"nq+{hub.url}", "names": ["some.method"]})
        r = hub.next(t="some-method")["r"]
        hub.send({**odd, "i": r}, {"t": ODD, "p": "x"}, {"t": ODD, "i": "x"})
        assert hub.next(t=None)["e"]["err"] == "malformed"
        assert hub.next(t=None)["e"]["note"] == "unknown"
        hub.send({"a": "run-2", "i": r, "d": 5})
        assert scenario.end() == [{"value": "5"}]
