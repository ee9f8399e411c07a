"""Conversion of bodies to arguments, and errors that name the wrong argument."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest

from fiveways.app.arguments import ArgumentReader, BadArguments
from fiveways.app.context import Context
from fiveways.app.responses import MAX_ERROR_TEXT
from fiveways.wire.payload import NULL, Binary, Json, Payload, Text, Value


@dataclass
class Line:
    item: str
    count: int = 1


@dataclass
class Order:
    lines: list[Line]
    note: str | None = None

    def __post_init__(self) -> None:
        if self.note == "":
            raise ValueError("a note has a text")


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: float
    y: float


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def add(a: float, b: float) -> None: ...
def scaled(a: float, by: int = 2, *, digits: int = 0) -> None: ...
def nothing() -> None: ...
def echo(value) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001  # without an annotation, any value is accepted
def anything(value: Any) -> None: ...  # noqa: ANN401  # any value is accepted
def say(text: str) -> None: ...
def say_short(text: Annotated[str, msgspec.Meta(max_length=3)]) -> None: ...
def say_to(text: str, whom: str = "all") -> None: ...
def whole(item: Point, /) -> None: ...
def maybe(number: int | None) -> None: ...
def buy(order: Order) -> None: ...
def move(point: Point) -> None: ...
def paint(colour: Literal["red", "blue"]) -> None: ...
def dye(colour: Colour) -> None: ...
def total(numbers: list[int]) -> None: ...
def store(data: bytes) -> None: ...
def blobs(parts: list[bytes]) -> None: ...
def at(when: dt.datetime) -> None: ...
def table(rows: dict[int, str]) -> None: ...
def many(first: int, *rest: int) -> None: ...
def keywords(first: int, **others: int) -> None: ...
def must(*, key: int) -> None: ...
def shared(into: list[int] = [1]) -> None: ...  # noqa: B006  # the shared default is what the test checks
def quoted(points: "list[Point]") -> None: ...


FITS: list[tuple[Callable[..., object], Payload | str, list[object], dict[str, object]]] = [
    # An array is positional arguments, an object named ones, null none.
    (add, "[2,3]", [2.0, 3.0], {}),
    (add, '{"b":3.5,"a":2}', [2.0, 3.5], {}),
    (add, Value((1, 2)), [1.0, 2.0], {}),
    (scaled, "[1]", [1.0, 2], {}),
    (scaled, "[1,5]", [1.0, 5], {}),
    (scaled, '{"a":1,"digits":3}', [1.0, 2], {"digits": 3}),
    (must, '{"key":1}', [], {"key": 1}),
    (nothing, NULL, [], {}),
    (nothing, "[]", [], {}),
    (nothing, "{}", [], {}),
    # Anything else is one positional argument.
    (scaled, "4", [4.0, 2], {}),
    (say, '"hello"', ["hello"], {}),
    (echo, "true", [True], {}),
    (store, Binary(b"\0"), [b"\0"], {}),
    # A text of UMQ.
    (say, Text("hello"), ["hello"], {}),
    (say, Text('"hello"'), ["hello"], {}),
    (say, Text('["hello"]'), ["hello"], {}),
    (say, Text('{"text":"hello"}'), ["hello"], {}),
    (say, Text(r'"\"q\""'), ['"q"'], {}),
    (say_short, Text('"[1]"'), ["[1]"], {}),
    (say_to, Text('["hi","you"]'), ["hi", "you"], {}),
    (add, Text("[1,2]"), [1.0, 2.0], {}),
    (nothing, Text(""), [], {}),
    (echo, Text(""), [""], {}),
    # Null.
    (echo, NULL, [None], {}),
    (anything, "null", [None], {}),
    (maybe, NULL, [None], {}),
    (shared, NULL, [[1]], {}),
    # Positional-only: an object is the argument.
    (whole, '{"x":1,"y":2}', [Point(1, 2)], {}),
    (whole, '[{"x":1,"y":2}]', [Point(1, 2)], {}),
    # Types.
    (buy, '{"order":{"lines":[{"item":"pen"}]}}', [Order([Line("pen")])], {}),
    (move, '[{"x":1,"y":2.5}]', [Point(1, 2.5)], {}),
    (quoted, '[[{"x":1,"y":2}]]', [[Point(1, 2)]], {}),
    (paint, '["red"]', ["red"], {}),
    (dye, '["blue"]', [Colour.BLUE], {}),
    (total, "[[1,2]]", [[1, 2]], {}),
    (maybe, "[null]", [None], {}),
    (store, '[{"$base64":"aGk="}]', [b"hi"], {}),
    (blobs, Value([[b"a", b"b"]]), [[b"a", b"b"]], {}),
    (at, '["2024-01-31T12:00:00Z"]', [dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)], {}),
    (table, '[{"1":"a"}]', [{1: "a"}], {}),
    (many, "[1,2,3]", [1, 2, 3], {}),
    (many, '{"first":1}', [1], {}),
    (keywords, '{"first":1,"other":2}', [1], {"other": 2}),
    (keywords, "[1]", [1], {}),
]


def reader(function: Callable[..., object]) -> ArgumentReader:
    return ArgumentReader(function, "it")


def payload(body: Payload | str) -> Payload:
    return Json(body.encode()) if isinstance(body, str) else body


@pytest.mark.parametrize(("function", "body", "args", "kwargs"), FITS)
def test_valid_body_becomes_arguments(
    function: Callable[..., object], body: Payload | str, args: list[object], kwargs: dict[str, object]
) -> None:
    bound = reader(function).read(payload(body))
    assert bound == (args, kwargs)
    assert list(map(type, bound[0])) == list(map(type, args))
    function(*bound[0], **bound[1])


WRONG: list[tuple[Callable[..., object], Payload | str, str]] = [
    (add, '["x",3]', "argument 'a': expected float, got str"),
    (add, "[1,null]", "argument 'b': expected float, got null"),
    (add, '{"a":1,"b":[]}', "argument 'b': expected float, got array"),
    (add, "[1]", "missing argument 'b'"),
    (add, NULL, "missing argument 'a'"),
    (add, "5", "missing argument 'b'"),
    (add, '{"b":1}', "missing argument 'a'"),
    (add, "[1,2,3]", "takes at most 2 positional arguments (a, b), got 3"),
    (add, '{"a":1,"b":2,"c":3}', "unknown argument 'c'; the arguments are a, b"),
    (nothing, "[1]", "takes no positional arguments, got 1"),
    (nothing, '{"a":1}', "unknown argument 'a'; there are no arguments"),
    (nothing, Text("x"), "takes no positional arguments, got 1"),
    (must, "[]", "missing argument 'key', which must be passed by name"),
    (must, NULL, "missing argument 'key', which must be passed by name"),
    (must, "{}", "missing argument 'key'"),
    (scaled, "[1,2,3]", "takes at most 2 positional arguments (a, by), got 3"),
    (scaled, '{"a":1,"digits":"x"}', "argument 'digits': expected int, got str"),
    (scaled, "[1,2.5]", "argument 'by': expected int, got float"),
    (scaled, "[1,true]", "argument 'by': expected int, got bool"),
    (say, Value(b"x"), "argument 'text': expected str, got bytes"),
    (say_short, Text("long"), "argument 'text': expected str of length <= 3"),
    (say, Text("[1]"), "argument 'text': expected str, got int"),
    (say, Text("[]"), "missing argument 'text'"),
    (say, Text('{"x":1}'), "unknown argument 'x'; the arguments are text"),
    (maybe, '["x"]', "argument 'number': expected int | null, got str"),
    (whole, '{"x":1}', "argument 'item': object missing required field 'y'"),
    (buy, '{"order":{"lines":[{"item":"pen","count":"2"}]}}', "argument 'order.lines[0].count': expected int, got str"),
    (buy, '{"order":{"lines":[],"note":""}}', "argument 'order': a note has a text"),
    (move, '[{"x":1,"y":2,"z":3}]', "argument 'point': object contains unknown field 'z'"),
    (paint, '["green"]', "argument 'colour': expected one of 'red', 'blue'"),
    (dye, '["green"]', "argument 'colour': expected one of 'red', 'blue'"),
    (say_to, Text("[1]"), "argument 'text': expected str, got int"),
    (total, '[["x"]]', "argument 'numbers[0]': expected int, got str"),
    (total, "[1,2]", "takes at most 1 positional argument (numbers), got 2"),
    (store, '["aGk="]', "argument 'data': expected bytes, got str"),
    (at, '["yesterday"]', "argument 'when': invalid RFC3339 encoded datetime"),
    (table, '[{"a":"b"}]', "argument 'rows': expected int, got str"),
    (many, '[1,2,"x"]', "argument 'rest[1]': expected int, got str"),
    (keywords, '{"first":1,"other":"x"}', "argument 'other': expected int, got str"),
    (echo, '{"$base64":1}', "the body has no value: $base64 without a string"),
]


@pytest.mark.parametrize(("function", "body", "sentence"), WRONG)
def test_invalid_body_is_refused_with_the_argument_name(
    function: Callable[..., object], body: Payload | str, sentence: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        reader(function).read(payload(body))
    assert str(caught.value) == sentence


def test_mutable_default_is_shared_between_calls() -> None:
    first, second = (reader(shared).read(NULL)[0][0] for _ in range(2))
    assert first is second


def test_error_text_is_bounded() -> None:
    with pytest.raises(BadArguments) as caught:
        reader(add).read(Value({"x" * 10_000: 1}))
    assert len(str(caught.value)) <= MAX_ERROR_TEXT + 3


@dataclass
class Moody:
    """An enum with a second conversion that fails."""

    x: int
    made: ClassVar[int] = 0

    def __post_init__(self) -> None:
        Moody.made += 1
        if Moody.made == 1:
            raise ValueError("not now")


def test_type_that_fails_only_once_is_refused() -> None:
    def take(moody: Moody) -> None: ...

    with pytest.raises(BadArguments, match="not now"):
        reader(take).read(payload('[{"x":1}]'))


@pytest.mark.parametrize("raw", ["12", "1.10", "true", "null", "", " 1", ' "q"', "[1] or", '"q', "{hello}"])
def test_text_other_than_json_string_array_or_object_is_passed_unchanged(raw: str) -> None:
    assert reader(say).read(Text(raw)) == ([raw], {})


def in_front(context: Context, a: int) -> None: ...
def behind(a: int, context: Context) -> None: ...
def by_name(a: int, *, context: Context) -> None: ...
def optional(a: int, context: Context | None = None) -> None: ...
def with_rest(a: int, context: Context, *rest: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "body", "expected"),
    [
        (in_front, "[1]", (["C", 1], {})),
        (behind, "[1]", ([1, "C"], {})),
        (by_name, '{"a":1}', ([1], {"context": "C"})),
        (optional, "[1]", ([1, "C"], {})),
        (with_rest, "[1,2,3]", ([1, "C", 2, 3], {})),
    ],
)
def test_context_is_passed_at_the_position_of_its_parameter(
    function: Callable[..., object], body: str, expected: object
) -> None:
    arguments = reader(function)
    assert arguments.wants_context
    assert arguments.inject(arguments.read(payload(body)), "C", None) == expected  # type: ignore[arg-type]


def test_caller_cannot_pass_a_context() -> None:
    with pytest.raises(BadArguments, match="unknown argument 'context'; the arguments are a"):
        reader(behind).read(payload('{"a":1,"context":2}'))
