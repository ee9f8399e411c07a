"""Tests of strict JSON: parse and check agree with each other and with a strict parser of the standard library."""

import enum
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Malformed, Unrepresentable
from fiveways.wire import strict_json

MAX_DIGITS = 4300
MAX_DEPTH = 128


class Pairs(list[tuple[str, object]]):
    """Object of the reference parser, with the repeated keys that a dict would drop."""


def refuse_constant(name: str) -> object:
    raise ValueError(name)


def reference_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError("digits")
    return int(digits)


def reference_float(number: str) -> float:
    if math.isinf(float(number)):
        raise ValueError("range")
    return float(number)


STRICT = json.JSONDecoder(
    parse_constant=refuse_constant, parse_int=reference_int, parse_float=reference_float, object_pairs_hook=Pairs
)


def reference_value(item: object, max_depth: int) -> object:
    """Convert Pairs to dicts; raise ValueError for lone surrogates and too much depth."""
    if isinstance(item, str):
        item.encode()
    if isinstance(item, list) and max_depth == 0:
        raise ValueError("depth")
    if isinstance(item, Pairs):
        return {str(reference_value(key, max_depth - 1)): reference_value(value, max_depth - 1) for key, value in item}
    if isinstance(item, list):
        return [reference_value(value, max_depth - 1) for value in item]
    return item


def reference_parse(raw: bytes, max_depth: int = MAX_DEPTH) -> object:
    text = raw.decode()
    if text.strip(" \t\n\r") != text:
        raise ValueError("blank")
    return reference_value(STRICT.decode(text), max_depth)


def result_text(read: Callable[[], object]) -> str:
    """Return the repr of a value, which distinguishes 1, 1.0 and True, or 0.0 and -0.0; `refused` for an error."""
    try:
        return repr(read())
    except (ValueError, RecursionError, Malformed):
        return "refused"


def assert_all_agree(raw: bytes, max_depth: int = MAX_DEPTH) -> str:
    expected = result_text(lambda: reference_parse(raw, max_depth))
    assert result_text(lambda: strict_json.parse(raw, max_depth)) == expected
    checked = result_text(lambda: strict_json.check(raw, max_depth))
    assert checked == ("refused" if expected == "refused" else "None")
    return expected


JSON = [
    b"null", b"true", b"false", b"0", b"-0", b"-0.0", b"0e5", b"0E-0", b"1.10", b"1E+2", b"1e-999", b"0e999",
    b"0.0e+99999",
    b"1e308", b"1.7976931348623157e308", b"1.7976931348623158e308", b"1e+308", b"-1e0308", b"1e0000000000000000005",
    b"18446744073709551615", b"18446744073709551616", b"-9223372036854775808", b"-9223372036854775809",
    b"9" * 309, b"9" * 4300, b"-" + b"9" * 4300, b"[-" + b"9" * 4300 + b"]", b"1" + b"0" * 4299,
    b"0." + b"1" * 5000, b"0." + b"0" * 400 + b"1e400", b"1" + b"0" * 400 + b"e-400", b"9" * 300 + b".5",
    b"9" * 5000 + b"e-4900",
    b'""', b'"\x7f"', b'"\\u0000"', b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', b'"\\ud83d\\ude00"', b'"\\uD83D\\uDE00x"',
    '"é😀\ufeff\u2028"'.encode(),
    b'"1e999"', b'{"1e999":"' + b"9" * 5000 + b'"}', b'"' + b"[" * 300 + b'"', b'["\\"[",' + b'"{",' * 200 + b"1]",
    b"[]", b"{}", b"[ 1 ,\t2\r\n]", b'{ "a" : 1 }', b'{"a":1,"a":2}', b'{"":[[],{}]}', b"[" + b"[]," * 500 + b"[]]",
    b"[" * 128 + b"]" * 128, b'{"a":' * 128 + b"1" + b"}" * 128, b'[{"]":' * 64 + b"1" + b"}]" * 64,
    b'["[","{","\\\\","]\\\\\\"[",' + b'"[[",[],' * 200 + b'"","["]', b'"NaN"', b'"' + b"a" * 5000 + b'"',
]  # fmt: skip

NOT_JSON = [
    b"", b" ", b" 1", b"1 ", b"\t1", b"1\n", b"1\r", b"[] ", b"\n[]", b"\xef\xbb\xbf1", b"\x0c1", b"1\x00", b"\x00",
    b"NaN", b"Infinity", b"-Infinity", b"nan", b"[NaN]", b"[-Infinity]", b"None", b"True", b"tru", b"truex", b"nul",
    b"nulll",
    b"+1", b"-", b"--1", b"01", b"-01", b"00", b"1.", b".5", b"-.5", b"1e", b"1e+", b"1.e5", b"0x10", b"1_000",
    b"1 2", b"1,2",
    "١".encode(), "１".encode(), b"1e999", b"-1e999", b"1E309", b"1e+309", b"1e0309", b"[1,1e400]",
    b"1.7976931348623159e308",
    b"1" * 300 + b"e10", b"9" * 309 + b".5", b"1" + b"0" * 309 + b".0", b"1e400000000000000000000",
    b"9" * 4301, b"-" + b"9" * 4301, b"[" + b"9" * 4301 + b"]", b'{"a":' + b"9" * 4301 + b"}",
    b"[-" + b"9" * 4300 + b",]",
    b'"', b'"a', b"a", b"'a'", b'"\\', b'"\\"', b'"\\x"', b'"\\u12g4"', b'"\\u123"', b'"\\U00000041"', b'"\n"',
    b'"\x00"', b'"\x1f"',
    b'"\\ud800"', b'"\\udc00"', b'"\\ud800x"', b'"\\ud800\\u0041"', b'"\\udc00\\ud800"', b'"\\ud800\\ud800"',
    b'"\\ud83d\\\\ude00"',
    b'{"\\ud800":1}', b'{"a":"\\udfff","a":1}', b'["\\uD83D",1,2,3,4,5]',
    b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xc3"', b'{"\xff":1}',
    b'{"a":"\xff","a":1}', b"[\xa01]", b"\xff",
    b"[", b"]", b"[1", b"[1,", b"[1,]", b"[,]", b"[1 2]", b"[1]]", b"[1}", b"{", b"}", b"{a:1}", b"{1:2}", b'{"a"}',
    b'{"a":}',
    b'{"a":1,}', b'{"a" 1}', b'{"a":1 "b":2}', b"{,}", b"[1]//", b"/**/1", b"[1]\x0b",
    b"[" * 129 + b"]" * 129, b'{"a":' * 129 + b"1" + b"}" * 129, b"[" + b"[]," * 200 + b"[" * 128 + b"]" * 129,
    b'["]","\\\\","]]",' + b"[" * 128 + b"]" * 129,
    b"[" * 5000 + b"]" * 5000, b"[" * 100_000, b'{"a":' * 100_000,
]  # fmt: skip


def short(raw: bytes) -> str:
    return f"{raw[:30]!r}, {len(raw)} bytes"


@pytest.mark.parametrize("raw", JSON, ids=short)
def test_json_is_accepted(raw: bytes) -> None:
    assert assert_all_agree(raw) != "refused"
    strict_json.check_numbers_and_depth(raw)
    assert strict_json.encode_if_json(raw.decode()) == raw


@pytest.mark.parametrize("raw", NOT_JSON, ids=short)
def test_other_bytes_are_refused(raw: bytes) -> None:
    assert assert_all_agree(raw) == "refused"
    text = raw.decode(errors="surrogateescape")
    assert result_text(lambda: strict_json.parse_text(text)) == "refused"
    assert strict_json.encode_if_json(text) is None


FRAGMENTS = [
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\\u", b"d800", b"\\ud83d", b"\\ude00", b"\\udc00", b"\\n",
    b" ", b"\n", b"\x00",
    b"0", b"1", b"9", b"-", b"+", b".", b"e", b"E", b"309", b"308", b"e+30", b"1" * 200, b"7" * 4300, b"true",
    b"false", b"null", b"NaN",
    b"a", b'"a":', b'""', b"[]", b"{}", b'{"a":', b"[" * 64, b"]" * 64, "é".encode(), "😀".encode(), b"\xff",
    b"\xed\xa0\x80",
]  # fmt: skip
fragments = st.sampled_from(FRAGMENTS)
strings = st.text('ab1 -+.eE[]{},:"\\/\n\t\x00\x7fé€\u2028\ufeff😀', max_size=12)
finite = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings
values = st.recursive(
    finite | st.integers(-(10**4300) + 1, 10**4300 - 1),
    lambda inner: st.lists(inner) | st.dictionaries(strings, inner),
    max_leaves=20,
)


@st.composite
def damaged_json(draw: st.DrawFn) -> bytes:
    """JSON in one of its spellings, with up to two fragments inserted or replaced."""
    spelled = json.dumps(draw(values), ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)))
    raw = spelled.encode()
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(raw)))
        raw = raw[:start] + draw(fragments) + raw[start + draw(st.integers(0, 3)) :]
    return raw


@given(raw=st.lists(fragments, max_size=12).map(b"".join) | damaged_json() | st.binary(max_size=12))
def test_parse_and_check_agree_with_the_reference(raw: bytes) -> None:
    assert_all_agree(raw)


@given(raw=damaged_json(), max_depth=st.integers(0, 5))
def test_parse_and_check_agree_with_the_reference_on_depth(raw: bytes, max_depth: int) -> None:
    assert_all_agree(raw, max_depth)


@given(
    pieces=st.lists(st.sampled_from(["[", "]", "{", '"', "\\", "x", '""', '"]"']), max_size=8),
    depth=st.integers(120, 135),
)
def test_brackets_in_strings_do_not_count_for_the_depth(pieces: list[str], depth: int) -> None:
    strings_only = json.dumps([piece for piece in pieces for _ in range(40)], separators=(",", ":")).encode()
    raw = b"[" * depth + strings_only + b"]" * depth
    assert (assert_all_agree(raw) == "refused") == (depth + 1 > MAX_DEPTH)


@given(
    whole=st.text("0123456789", min_size=1, max_size=320),
    fraction=st.text("0123456789", max_size=320),
    exponent=st.integers(-700, 700),
)
def test_numbers_agree_with_the_reference(whole: str, fraction: str, exponent: int) -> None:
    number = (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
    assert_all_agree(number.encode())
    assert_all_agree(f"[-{number}e{exponent}]".encode())
    assert_all_agree(f"{number}E{exponent:+05}".encode())


def test_text_with_a_lone_surrogate_is_not_json() -> None:
    with pytest.raises(Malformed):
        strict_json.parse_text('"\ud800"')
    assert strict_json.encode_if_json('"\ud800"') is None


def test_parse_text_equals_parse() -> None:
    assert strict_json.parse_text('{"é":[1]}') == {"é": [1]}


@pytest.mark.parametrize("raw", [b"1e999", b"9" * 4301, b"[" * 129 + b"]" * 129], ids=short)
def test_check_numbers_and_depth_refuses_values_that_msgspec_skips(raw: bytes) -> None:
    with pytest.raises(Malformed):
        strict_json.check_numbers_and_depth(raw)


@given(value=values)
def test_written_value_round_trips(value: object) -> None:
    raw = strict_json.write(value)
    assert repr(strict_json.parse(raw)) == repr(value)
    assert strict_json.compact(raw) == raw


class Name(str):
    __slots__ = ()


class Size(int):
    pass


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ((1, (2,)), b"[1,[2]]"),
        ([Name("é")], '["é"]'.encode()),
        ({Name("a"): Size(1)}, b'{"a":1}'),
        (OrderedDict(b=1, a=[Colour.RED]), b'{"b":1,"a":["red"]}'),
        ('é😀\x00\n"\\/', '"é😀\\u0000\\n\\"\\\\/"'.encode()),
        (2**64, b"18446744073709551616"),
        ([10**4300 - 1, 1 - 10**4300], b"[" + b"9" * 4300 + b",-" + b"9" * 4300 + b"]"),
        (-0.0, b"-0.0"),
        (True, b"true"),
    ],
)  # fmt: skip
def test_write_is_compact_and_not_escaped(value: object, raw: bytes) -> None:
    assert strict_json.write(value) == raw


def nested(depth: int) -> object:
    value: object = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


CYCLE: list[object] = []
CYCLE.append(CYCLE)


UNWRITABLE = {
    "nan": math.nan, "infinity": [math.inf], "-infinity": -math.inf, "bytes": b"bytes", "bytearray": [bytearray()],
    "set": {1},
    "integer key": {1: 2}, "null key": {None: 1}, "bytes key": {b"a": 1}, "object": object(), "complex": 1j,
    "enum": [enum.Enum("E", "A")],
    "surrogate": "\ud800", "surrogate key": {"\udfff": 1}, "surrogate in a subclass": [Name("\ud800")],
    "4301 digits": 10**4300, "4301 digits in a subclass": [Size(-(10**4300))], "depth": nested(129), "cycle": CYCLE,
}  # fmt: skip


@pytest.mark.parametrize("name", UNWRITABLE)
def test_unsupported_value_is_unrepresentable(name: str) -> None:
    with pytest.raises(Unrepresentable):
        strict_json.write(UNWRITABLE[name])


def test_write_supports_the_maximum_depth() -> None:
    assert strict_json.parse(strict_json.write(nested(128))) == nested(128)


def test_digit_limit_does_not_depend_on_python() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(Unrepresentable):
            strict_json.write(10**4300)
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'[ 1.10 ,\t2E+05 , {"b" : 1,\r\n"a":"x  y" , "b":2 } ]', b'[1.10,2E+05,{"b":1,"a":"x  y","b":2}]'),
        (b'{ "a" :"\\u0041 \\/ \\ud83d\\ude00 \xc3\xa9 " }', b'{"a":"\\u0041 \\/ \\ud83d\\ude00 \xc3\xa9 "}'),
        (b"[ ]", b"[]"),
        (b"{\n}", b"{}"),
        (b'"a b"', b'"a b"'),
        (b"[ " + b"9" * 4300 + b"]", b"[" + b"9" * 4300 + b"]"),
        (b"[" * 127 + b"[ ]" + b"]" * 127, b"[" * 128 + b"]" * 128),
    ],
)
def test_compact_removes_only_whitespace(raw: bytes, expected: bytes) -> None:
    assert strict_json.compact(raw) == expected


def test_compact_returns_the_same_object_without_whitespace() -> None:
    raw = b'{"a":[1.10]}'
    assert strict_json.compact(raw) is raw


@pytest.mark.parametrize("raw", [b"[ 1", b"1 2", b"[" * 5000 + b" "])
def test_compact_refuses_invalid_json(raw: bytes) -> None:
    with pytest.raises(Malformed):
        strict_json.compact(raw)


@given(value=values, indent=st.integers(0, 3))
def test_compact_keeps_the_value(value: object, indent: int) -> None:
    spread = json.dumps(value, ensure_ascii=True, indent=indent).encode()
    packed = strict_json.compact(spread)
    assert packed == json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
