import json
from pathlib import Path
from typing import Any

import pytest

from fiveways.errors import Unrepresentable
from fiveways.model.messages import Event
from fiveways.protocols import builtins
from fiveways.protocols.umq.bridge import STYLES
from fiveways.wire.payload import Json, Text, Value
from tests.protocols import vectors

ENTRIES = json.loads((Path(__file__).parents[2] / "vectors" / "builtins.json").read_text(encoding="utf-8"))


def read(entry: dict[str, Any]) -> object:
    ((form, content),) = entry["body"].items()
    body = vectors.PAYLOADS[form](content)
    return builtins.read("1", entry["method"], body, STYLES, tuple(entry.get("attachments", ())))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_a_call_of_a_built_in(entry: dict[str, Any]) -> None:
    if "refused" in entry:
        with pytest.raises(builtins.BadArguments, match=entry["refused"]):
            read(entry)
    else:
        assert read(entry) == (entry["word"] and vectors.word(entry["word"]))


def test_a_body_whose_marker_means_nothing_is_a_bad_argument() -> None:
    with pytest.raises(builtins.BadArguments):
        builtins.read("1", "hub.publish", Json(b'{"topic":"a","data":{"$base64":"%"}}'), STYLES)
    assert builtins.read_description("1", Json(b'{"$base64":"%"}')) is None


@pytest.mark.parametrize("body", [Value(None), Value({"methods": ["a"]}), Text("gibberish"), Value({"doc": 5})])
def test_what_is_no_description_is_not_taken_for_one(body: Value) -> None:
    assert builtins.read_description("1", body) is None


@pytest.mark.parametrize("body", [Text("plain"), Value({"topic": 5, "data": 1}), Value({"topic": "%", "data": 1})])
def test_what_is_no_envelope_stays_as_it_is(body: Value) -> None:
    event = Event("s", (), body)
    assert builtins.unwrapped(event, STYLES) is event


def test_an_envelope_may_not_make_a_body_too_deep() -> None:
    deepest = Json(b"[" * 128 + b"]" * 128)
    with pytest.raises(Unrepresentable, match="nested"):
        builtins.wrapped(Event("s", ("a",), deepest), STYLES)
    with pytest.raises(Unrepresentable, match="empty"):
        builtins.wrapped(Event("s", (), deepest), STYLES)


def test_a_refusal_shows_no_more_than_a_few_names_and_the_beginning_of_each() -> None:
    body = Value({"topic": "a"} | {f"{number}" + "x" * 5000: 1 for number in range(50)})
    with pytest.raises(builtins.BadArguments, match="not '0xx") as refused:
        builtins.read("1", "hub.close", body, STYLES)
    assert len(str(refused.value)) < 200
