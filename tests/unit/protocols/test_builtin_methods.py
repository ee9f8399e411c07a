import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Unrepresentable
from fiveways.model.messages import Description, Event, Publish
from fiveways.model.topics import BadTopic
from fiveways.protocols import builtin_methods
from fiveways.protocols.umq.bridge import STYLES
from fiveways.wire import strict_json
from fiveways.wire.payload import Json, Text, Value
from tests.support import vectors
from tests.support.paths import VECTOR_FOLDER

ENTRIES = json.loads((VECTOR_FOLDER / "builtins.json").read_text(encoding="utf-8"))


def parse_call(entry: dict[str, Any]) -> object:
    ((form, content),) = entry["body"].items()
    body = vectors.PAYLOADS[form](content)
    return builtin_methods.message_from_call("1", entry["method"], body, STYLES, tuple(entry.get("attachments", ())))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_call_is_parsed_as_builtin_method(entry: dict[str, Any]) -> None:
    if "refused" in entry:
        with pytest.raises(builtin_methods.BadArguments, match=entry["refused"]):
            parse_call(entry)
    else:
        assert parse_call(entry) == (entry["word"] and vectors.hub_message(entry["word"]))


TOPICS = ['"a"', '"a.b"', '""', '"a..b"', "5", "null", '"\\u0061"', '"ž"', '"$x"', '"*"']
DATA = [
    *("null", "1", "1.50", '"t"', '"\\n"', "[1, 2]", '{"a":1,"a":2}', '{"$base64":"AA=="}', '{"$base64":"%"}', "1e309"),
    *("nul", "[" * 127 + "]" * 127, "[" * 128 + "]" * 128, "9" * 300, '{"\\u0024base64":"%"}', '"$"', '"\ud800"'),
]
FORMS = [
    *('{{"topic":{0},"data":{1}}}', '{{"data":{1},"topic":{0}}}', '{{"topic":{0}}}', '{{"data":{1}}}', "{{}}", ""),
    *(' {{"topic":{0},"data":{1}}}', '{{"topic":{0},"data":{1}}}\n', '{{"topic":{0},"data":{1},"more":1}}'),
    *('{{"topic":{0},"data":{1},"retain":true}}', '{{"topic":{0},"data":{1},"retain":1}}', "[{0},{1}]", "{0}"),
    *('{{"topic":{0},"data":{1},"data":2}}', '{{ "topic" : {0} , "data" : {1} }}', "a\n{1}", "a.b\n", "5\n{1}"),
]


@given(st.sampled_from(FORMS), st.sampled_from(TOPICS), st.sampled_from(DATA), st.booleans())
def test_fast_path_of_publish_equals_the_general_path(form: str, topic: str, data: str, is_text: bool) -> None:
    text = form.format(topic, data)
    # A Json body is always well-formed.
    body = Text(text) if is_text or strict_json.encode_if_json(text) is None else Json(text.encode())
    try:
        short: object = builtin_methods.fastpath_publish("1", body, STYLES)
    except BadTopic as exc:
        short = str(exc)
    try:
        arguments = builtin_methods.Arguments(body, ("topic", "data"), ("retain",), lines=True)
        long: object = builtin_methods._read_publish("1", arguments, STYLES, ())
    except (builtin_methods.BadArguments, BadTopic, Unrepresentable) as exc:
        long = str(exc)
    assert short in (None, long)


def test_plain_publication_takes_the_fast_path() -> None:
    for body in (Text('{"topic":"a","data":[1]}'), Json(b'{"data":[1],"topic":"a"}')):
        assert builtin_methods.fastpath_publish("1", body, STYLES) == Publish("1", ("a",), Json(b"[1]"))
    assert builtin_methods.fastpath_publish("1", Text("a\n[1]"), STYLES) == Publish("1", ("a",), Text("[1]"))
    assert builtin_methods.fastpath_publish("1", Value({"topic": "a"}), STYLES) is None


def test_invalid_marker_is_a_bad_argument() -> None:
    with pytest.raises(builtin_methods.BadArguments):
        builtin_methods.message_from_call("1", "hub.publish", Json(b'{"topic":"a","data":{"$base64":"%"}}'), STYLES)
    assert builtin_methods.read_description("1", Json(b'{"$base64":"%"}')) is None


@pytest.mark.parametrize("body", [Value(None), Value({"methods": ["a"]}), Text("gibberish"), Value({"doc": 5})])
def test_invalid_description_is_not_parsed(body: Value) -> None:
    assert builtin_methods.read_description("1", body) is None


@pytest.mark.parametrize(("more", "read"), [(3, 3), (0, 0), (-1, 0), (10**30, 0), (True, 0), ("3", 0), (None, 0)])
def test_count_of_omitted_names_must_be_a_number(more: object, read: int) -> None:
    result = builtin_methods.read_description("1", Value({"methods": ["a"], "routes": [], "more": more}))
    assert result == Description("1", ("a",), more=read)
    assert result is not None
    assert builtin_methods.description_payload(result).value() == {"methods": ["a"], "routes": []} | (
        {"more": read} if read else {}
    )


@pytest.mark.parametrize("body", [Text("plain"), Value({"topic": 5, "data": 1}), Value({"topic": "%", "data": 1})])
def test_event_without_envelope_is_unchanged(body: Value) -> None:
    event = Event("s", (), body)
    assert builtin_methods.unwrap_event(event, STYLES) is event


def test_envelope_must_not_exceed_the_depth_limit() -> None:
    deepest = Json(b"[" * 128 + b"]" * 128)
    with pytest.raises(Unrepresentable, match="nested"):
        builtin_methods.event_body(Event("s", ("a",), deepest, envelope=True), STYLES)
    with pytest.raises(Unrepresentable, match="empty"):
        builtin_methods.event_body(Event("s", (), deepest, envelope=True), STYLES)


def test_refusal_shows_few_shortened_names() -> None:
    body = Value({"topic": "a"} | {f"{number}" + "x" * 5000: 1 for number in range(50)})
    with pytest.raises(builtin_methods.BadArguments, match="not '0xx") as refused:
        builtin_methods.message_from_call("1", "hub.close", body, STYLES)
    assert len(str(refused.value)) < 200
