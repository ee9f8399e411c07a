"""Tests of the CBOR parser and encoder with the examples of RFC 8949, by round trips, and against cbor2."""

import enum
import json
import math
from base64 import b64decode
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Malformed, Unrepresentable
from fiveways.wire import cbor
from tests.support.paths import VECTOR_FOLDER

MAX_DEPTH = 128
VECTORS = json.loads((VECTOR_FOLDER / "cbor.json").read_text())


class Vector(NamedTuple):
    raw: bytes
    value: object = None
    written: bool = False


def decode_marked(value: object) -> object:
    """Decode the notation of bytes and floats in a vector, which is JSON."""
    match value:
        case {"$base64": str(text)}:
            return b64decode(text)
        case {"$number": str(text)}:
            return float(text)
    return value


def vectors(*groups: str) -> list[object]:
    return [
        pytest.param(
            Vector(bytes.fromhex(entry["hex"]), decode_marked(entry.get("value")), entry.get("written", False)),
            id=entry["name"],
        )
        for group in groups
        for entry in VECTORS[group]
    ]


def accepts(raw: bytes) -> bool:
    """Return whether `skip` finds exactly one well-formed item."""
    try:
        return cbor.skip(raw, 0) == len(raw)
    except Malformed:
        return False


def refusal(raw: bytes) -> Malformed | None:
    """Return the error of `parse`, if any."""
    try:
        cbor.parse(raw)
    except Malformed as exc:
        return exc
    return None


def same(one: object, other: object) -> bool:
    """Return whether values and types are equal, with NaN equal to NaN and -0.0 only to -0.0."""
    if type(one) is not type(other):
        return False
    match one, other:
        case float(), float():
            return repr(one) == repr(other)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict(), dict():
            return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return one == other


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 80), 1 << 80)
    | st.sampled_from([sign * ((1 << bits) + near) for bits in (8, 16, 32, 64) for near in (-1, 0) for sign in (1, -1)])
    | st.floats()
    | st.text()
    | st.text(min_size=20, max_size=300)
    | st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=30), inner, max_size=30),
)


def _indefinite(code: bytes, parts: list[bytes]) -> bytes:
    return code + b"".join(parts) + b"\xff"


def _map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return bytes([0xA0 + len(pairs)]) + b"".join(key + value for key, value in pairs)


# Bytes that are often valid CBOR, with keys, tags and simple values of all kinds.
heads = st.builds(
    lambda major, low, rest: bytes([major << 5 | low]) + rest,
    st.integers(0, 7),
    st.sampled_from([0, 1, 2, 20, 23, 24, 25, 26, 27, 28, 31]),
    st.binary(max_size=9),
)
items = st.recursive(
    scalars.map(cbor.write)
    | heads
    | st.sampled_from([b"\xf7", b"\xe0", b"\xf8\x20", b"\xf8\x1f", b"\xff", b"\xf9\x7e\0"]),
    lambda inner: (
        st.lists(inner, max_size=5).map(lambda parts: bytes([0x80 + len(parts)]) + b"".join(parts))
        | st.lists(st.tuples(inner, inner), max_size=4).map(_map)
        | st.builds(_indefinite, st.sampled_from([b"\x9f", b"\xbf", b"\x5f", b"\x7f"]), st.lists(inner, max_size=5))
        | st.builds(
            lambda tag, item: tag + item, st.sampled_from([b"\xc0", b"\xc1", b"\xc2", b"\xc3", b"\xd8\x1c"]), inner
        )
    ),
    max_leaves=12,
)
garbage = st.binary(max_size=64) | items


@pytest.mark.parametrize("vector", vectors("appendix_a", "values"))
def test_item_is_parsed(vector: Vector) -> None:
    assert same(cbor.parse(vector.raw), vector.value)
    assert cbor.skip(vector.raw, 0) == len(vector.raw)
    assert cbor.skip(b"\xff\xff" + vector.raw + b"\xff", 2) == 2 + len(vector.raw)


@pytest.mark.parametrize("vector", vectors("appendix_a", "values"))
def test_item_is_written_in_its_shortest_form_and_as_a_double(vector: Vector) -> None:
    raw = cbor.write(vector.value)
    assert (raw == vector.raw) == vector.written
    assert same(cbor.parse(raw), vector.value)


@pytest.mark.parametrize("vector", vectors("appendix_a", "values"))
def test_every_strict_prefix_is_refused(vector: Vector) -> None:
    for end in range(len(vector.raw)):
        with pytest.raises(Malformed):
            cbor.skip(vector.raw[:end], 0)
        with pytest.raises(Malformed):
            cbor.parse(vector.raw[:end])


@pytest.mark.parametrize("vector", vectors("malformed"))
def test_item_that_is_not_well_formed_is_refused(vector: Vector) -> None:
    with pytest.raises(Malformed):
        cbor.skip(vector.raw, 0)
    with pytest.raises(Malformed):
        cbor.parse(vector.raw)


@pytest.mark.parametrize("vector", vectors("only_well_formed"))
def test_well_formed_item_without_a_value_is_skipped_but_not_parsed(vector: Vector) -> None:
    assert cbor.skip(vector.raw, 0) == len(vector.raw)
    with pytest.raises(Malformed):
        cbor.parse(vector.raw)


@pytest.mark.parametrize("tail", [b"\x00", b"\xff", b"\xa0"])
@pytest.mark.parametrize("raw", [b"\x00", b"\x61a", b"\xa0", b"\x81\x00", b"\x9f\xff", b"\xc6\x00"])
def test_skip_stops_after_the_item_and_parse_refuses_more(raw: bytes, tail: bytes) -> None:
    assert cbor.skip(raw + tail, 0) == len(raw)
    with pytest.raises(Malformed):
        cbor.parse(raw + tail)


@pytest.mark.parametrize("level", [b"\x81", b"\xa1\x60", b"\xc6", b"\xd8\x1c", b"\x98\x01", b"\x81\xc6"])
@pytest.mark.parametrize("core", [b"", b"\x9f", b"\xbf"])
def test_depth_128_is_accepted_and_129_refused(level: bytes, core: bytes) -> None:
    end = b"\x00" if not core else b"\xff"
    times = (MAX_DEPTH - len(core)) // (2 if level == b"\x81\xc6" else 1)
    good = level * times + core + end
    assert cbor.skip(good, 0) == len(good)
    cbor.parse(good)
    for bad in (level + good, good[:-1] + b"\x81" + good[-1:] * 2):
        with pytest.raises(Malformed):
            cbor.skip(bad, 0)
        with pytest.raises(Malformed):
            cbor.parse(bad)


@pytest.mark.parametrize("code", [b"\x80", b"\xa0", b"\x9f\xff", b"\xbf\xff"])
def test_empty_container_counts_for_the_depth(code: bytes) -> None:
    assert cbor.skip(b"\x81" + code, 0, max_depth=2)
    assert cbor.parse(b"\x81" + code, max_depth=2)
    with pytest.raises(Malformed):
        cbor.skip(b"\x81" + code, 0, max_depth=1)
    with pytest.raises(Malformed):
        cbor.parse(b"\x81" + code, max_depth=1)


@pytest.mark.parametrize("code", [b"\x81", b"\xa1", b"\xc6", b"\x9f", b"\xbf", b"\x5f", b"\x7f", b"\xd8\x1c"])
def test_nesting_bomb_is_refused(code: bytes) -> None:
    with pytest.raises(Malformed):
        cbor.skip(code * 1_000_000, 0)
    with pytest.raises(Malformed):
        cbor.parse(code * 1_000_000)


def test_long_array_of_small_integers_is_parsed() -> None:
    raw = b"\x9a\x00\x10\x00\x00" + b"\x05" * (1 << 20)
    assert cbor.skip(raw, 0) == len(raw)
    assert cbor.parse(raw) == [5] * (1 << 20)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("00", (0, 0, 1)),
        ("37", (1, 23, 1)),
        ("18ff", (0, 255, 2)),
        ("590100", (2, 256, 3)),
        ("7a00010000", (3, 65536, 5)),
        ("9bffffffffffffffff", (4, (1 << 64) - 1, 9)),
        ("a2", (5, 2, 1)),
        ("d9d9f7", (6, 55799, 3)),
        ("f7", (7, 23, 1)),
        ("f820", (7, 32, 2)),
        ("f93c00", (7, 0x3C00, 3)),
        ("5f", (2, -1, 1)),
        ("7f", (3, -1, 1)),
        ("9f", (4, -1, 1)),
        ("bf", (5, -1, 1)),
        ("ff", (7, -1, 1)),
    ],
)
def test_head_is_parsed_at_its_offset(raw: str, expected: tuple[int, int, int]) -> None:
    major, argument, end = expected
    assert cbor.read_head(bytes.fromhex(raw), 0) == expected
    assert cbor.read_head(b"\x00" + bytes.fromhex(raw) + b"\x00", 1) == (major, argument, end + 1)


@pytest.mark.parametrize(
    "raw", ["", "18", "58", "1900", "1a000000", "9b", "1c", "3d", "5e", "fc", "1f", "3f", "df", "f8", "f81f"]
)
def test_truncated_or_reserved_head_is_refused(raw: str) -> None:
    with pytest.raises(Malformed):
        cbor.read_head(bytes.fromhex(raw), 0)


@given(value=values)
def test_written_value_round_trips(value: object) -> None:
    raw = cbor.write(value)
    assert same(cbor.parse(raw), value)
    assert cbor.skip(raw, 0) == len(raw)


@given(value=values)
def test_cbor2_decodes_written_values(value: object) -> None:
    assert same(cbor2.loads(cbor.write(value)), value)


@given(value=values)
def test_cbor2_output_is_parsed(value: object) -> None:
    for canonical in (False, True):
        raw = cbor2.dumps(value, canonical=canonical)
        assert cbor.skip(raw, 0) == len(raw)
        # The canonical encoder sorts the keys.
        assert same(cbor.parse(raw), cbor2.loads(raw))


@given(value=values, data=st.data())
def test_prefix_of_a_written_value_is_malformed(value: object, data: st.DataObject) -> None:
    raw = cbor.write(value)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(Malformed):
        cbor.skip(cut, 0)
    with pytest.raises(Malformed):
        cbor.parse(cut)


# All errors of the parser for a well-formed item.
BEYOND_FORM = (
    "two equal keys",
    "simple value",
    "a date that is not a text",
    "a time that is not a number",
    "a time out of range",
    "a big integer that is not a byte string",
    "a map key",
)


@given(raw=garbage)
def test_parse_accepts_like_skip_except_for_invalid_content(raw: bytes) -> None:
    if refusal(raw) is None:
        assert accepts(raw)
    elif accepts(raw):
        assert str(refusal(raw)).startswith(BEYOND_FORM)


def untouched(value: object, _immutable: object) -> object:
    return value


# cbor2's tag decoders would refuse some well-formed items, so only the form is compared.
ITS_TAGS = dict.fromkeys(
    [*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799], untouched
)


@given(raw=garbage)
def test_skip_accepts_like_cbor2(raw: bytes) -> None:
    # The decoder of cbor2 ignores bytes after the item, so an array of two holds the item and another one.
    try:
        end = cbor.skip(raw, 0)
    except Malformed:
        with pytest.raises(cbor2.CBORDecodeError):
            cbor2.loads(raw, max_depth=MAX_DEPTH, semantic_decoders=ITS_TAGS, tag_hook=untouched)
        return
    pair = cbor2.loads(
        b"\x82" + raw[:end] + b"\x18\x2a", max_depth=MAX_DEPTH + 1, semantic_decoders=ITS_TAGS, tag_hook=untouched
    )
    assert pair[1] == 42


@given(raw=garbage, at=st.integers(0, 8))
def test_garbage_raises_nothing_but_malformed(raw: bytes, at: int) -> None:
    for read in (cbor.skip, cbor.read_head):
        with suppress(Malformed):
            read(raw, at)
    with suppress(Malformed):
        cbor.parse(raw)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 300


class Metres(float):
    pass


class Blob(bytes):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        (Level.HIGH, 300),
        (Metres(1.5), 1.5),
        (Blob(b"ab"), b"ab"),
        (Point(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({Colour.RED: Colour.RED}, {"red": "red"}),
    ],
)
def test_tuple_or_subclass_is_written_as_its_plain_value(value: object, plain: object) -> None:
    assert cbor.write(value) == cbor.write(plain)
    assert same(cbor.parse(cbor.write(value)), plain)


def test_dict_order_is_kept() -> None:
    assert list(json.loads(json.dumps(cbor.parse(cbor.write({"b": 1, "a": 2}))))) == ["b", "a"]


def nested(depth: int, core: object) -> object:
    for level in range(depth):
        core = [core] if level % 2 else {"": core}
    return core


def test_write_refuses_depth_129() -> None:
    raw = cbor.write(nested(MAX_DEPTH, 0))
    assert cbor.skip(raw, 0) == len(raw)
    raw = cbor.write(nested(MAX_DEPTH - 1, 1 << 64))
    assert cbor.skip(raw, 0) == len(raw)
    endless: list[object] = []
    endless.append(endless)
    # The tag of a big integer counts as a level.
    for value in (nested(MAX_DEPTH + 1, 0), nested(MAX_DEPTH, []), nested(MAX_DEPTH, 1 << 64), endless):
        with pytest.raises(Unrepresentable):
            cbor.write(value)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1j,
        bytearray(b"a"),
        {1: 2},
        {None: 2},
        {b"a": 2},
        "\ud800",
        {"\udfff": 1},
        "a" * 40 + "\ud800",
        math,
    ],
)
def test_unsupported_value_is_refused(value: object) -> None:
    with pytest.raises(Unrepresentable):
        cbor.write([value])


@given(text=st.text(max_size=80))
def test_text_item_equals_the_written_text(text: str) -> None:
    assert cbor.text_item(text) == cbor.write(text) == cbor2.dumps(text)


@given(number=st.integers(0, (1 << 64) - 1) | st.integers(0, 70_000))
def test_uint_item_equals_the_written_number(number: int) -> None:
    assert cbor.uint_item(number) == cbor.write(number) == cbor2.dumps(number)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_number_outside_u64_is_refused(number: int) -> None:
    with pytest.raises(Unrepresentable):
        cbor.uint_item(number)


@pytest.mark.parametrize("number", [10**4300 - 1, 1 - 10**4300])
def test_integers_are_limited_to_4300_digits(number: int) -> None:
    assert cbor.parse(cbor.write(number)) == number
    bigger = number + (1 if number > 0 else -1)
    with pytest.raises(Unrepresentable, match="4300 digits"):
        cbor.write(bigger)
    with pytest.raises(Malformed, match="4300 digits"):
        cbor.parse(cbor2.dumps(bigger))


@pytest.mark.parametrize("item", [b"\x80", b"\xa0", b"\xc9\x01", b"\x9f\xff"])
@pytest.mark.parametrize("around", [b"\x83%b", b"\x98\x03%b", b"\x9f%b\xff"])
def test_arrays_maps_and_tags_are_bounded_in_number(item: bytes, around: bytes) -> None:
    raw = around % (3 * item)
    assert cbor.skip(raw, 0, MAX_DEPTH, 4) == len(raw)
    with pytest.raises(Malformed, match="more than 3 arrays, maps and tags"):
        cbor.skip(raw, 0, MAX_DEPTH, 3)
