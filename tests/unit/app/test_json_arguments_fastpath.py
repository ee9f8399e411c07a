"""The fast path for named JSON arguments, compared with the general path."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiveways.app.arguments import ArgumentReader, BadArguments
from fiveways.errors import Malformed
from fiveways.wire import strict_json
from fiveways.wire.payload import Json


def numbers(a: int, b: float) -> None: ...
def texts(a: str, b: str = "", *, c: Annotated[str, msgspec.Meta(max_length=3)] = "x") -> None: ...
def many(a: list[int], b: dict[str, float] | None = None) -> None: ...
def either(a: int | str | None, b: bool = False) -> None: ...
def small(a: Annotated[int, msgspec.Meta(ge=0, lt=5)]) -> None: ...
def anything(a: Any, b: object = None) -> None: ...  # noqa: ANN401
def nested(a: dict[str, list[dict[str, int | None]]]) -> None: ...
def floats(a: list[float | None], *, b: float = 1) -> None: ...
def nothing() -> None: ...


FUNCTIONS: list[Callable[..., object]] = [numbers, texts, many, either, small, anything, nested, floats, nothing]
SCALARS = [
    *("null", "true", "false", "0", "-0", "1", "5", "-1", "1.0", "0.5", "-0.0", "1e3", "1E+2", "1e308", "12e-1"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 40, "9" * 5000, "1e22", "0.1e-400"),
    *('""', '"a"', '"ž"', '"\\u017e"', '"long text"', '"1"', '"\\ud83d\\ude00"', '"$"', '{"$base64":"AA=="}'),
    *('{"$number":"NaN"}', '{"\\u0024base64":"AA=="}', '{"$$base64":"AA=="}', "[]", "{}", '"\\ud800"', "[[[[[]]]]]"),
]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from("abcx"), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"
        ),
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(["a", "b", "c", "x", "\\u0061", "field0", ""])
OBJECTS = st.lists(st.tuples(KEYS, VALUES, st.sampled_from(["", " ", "\n"])), max_size=4).map(
    lambda parts: ("{" + ",".join(f'{blank}"{key}":{blank}{value}' for key, value, blank in parts) + "}").encode()
)


def outcome(arguments: ArgumentReader, raw: bytes) -> str:
    """Return the arguments with their types, or the error text."""
    try:
        return repr(arguments.read(Json(raw)))
    except BadArguments as exc:
        return f"refused: {exc}"


def is_json(raw: bytes) -> bool:
    try:
        strict_json.check(raw)
    except Malformed:
        return False
    return True


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_has_a_fast_path(function: Callable[..., object]) -> None:
    assert ArgumentReader(function, "it")._decode is not None


@settings(max_examples=300)
@given(st.sampled_from(FUNCTIONS), OBJECTS.filter(is_json))
def test_fast_path_and_general_path_agree(function: Callable[..., object], raw: bytes) -> None:
    long_way = ArgumentReader(function, "it")
    long_way._decode = None
    assert outcome(ArgumentReader(function, "it"), raw) == outcome(long_way, raw)
