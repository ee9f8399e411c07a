"""Tests of the base 36 parser, which is stricter than int(text, 36), and of the serializer."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Malformed, Unrepresentable
from fiveways.wire import base36

U64 = 2**64 - 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0), ("0", 0), ("00", 0), ("9", 9), ("A", 10), ("Z", 35), ("10", 36), ("ZZ", 1295), ("100", 1296),
        ("007", 7),
        ("3W5E11264SGSF", U64), ("0" * 14, 0), ("0" * 5000 + "Z", 35), ("0003W5E11264SGSF", U64),
    ],
)  # fmt: skip
def test_parse(text: str, number: int) -> None:
    assert base36.parse(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "a", "aB", "1a", "-1", "+1", " 1", "1 ", "1\n", "\t1", "1_0", "0x1", "1.0", "١", "１", "²", "Ⅷ", "É", "ß",
        "A\x00", "\ud800", "-",
        "0" * 20 + "a", "0" * 20 + "\n",
        "3W5E11264SGSG", "ZZZZZZZZZZZZZ", "10000000000000", "Z" * 100_000,
    ],
)  # fmt: skip
def test_invalid_number_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        base36.parse(text)


def test_maximum_is_inclusive() -> None:
    assert base36.parse("ZZ", 1295) == 1295
    with pytest.raises(Malformed):
        base36.parse("100", 1295)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (35, "Z"), (36, "10"), (1295, "ZZ"), (1296, "100"), (U64, "3W5E11264SGSF")]
)
def test_write(number: int, text: str) -> None:
    assert base36.write(number) == text


def test_negative_number_is_unrepresentable() -> None:
    with pytest.raises(Unrepresentable):
        base36.write(-1)


@given(number=st.integers(0, U64) | st.integers(0, 50_000))
def test_written_number_round_trips(number: int) -> None:
    text = base36.write(number)
    assert base36.parse(text) == number
    assert text == "0" or not text.startswith("0")


@given(number=st.integers(0, 2**500))
def test_any_maximum_is_enforced(number: int) -> None:
    assert base36.parse(base36.write(number), number) == number
    with pytest.raises(Malformed):
        base36.parse(base36.write(number + 1), number)


@given(text=st.text(max_size=8))
def test_garbage_is_a_number_or_malformed(text: str) -> None:
    try:
        number = base36.parse(text)
    except Malformed:
        return
    assert base36.write(number) == text.lstrip("0") or number == 0


def test_long_identifiers_are_not_cached() -> None:
    numbers = range(36**11, 36**11 + 4_000_000, 1300)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in numbers:
            assert base36.parse(base36.write(number)) == number
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 40_000
