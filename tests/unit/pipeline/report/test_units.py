"""Formatting of numbers for people."""

import pytest

from fiveways.pipeline.report import units

SPACE = units.NO_BREAK_SPACE


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 ns"),
        (999, "999 ns"),
        (999.6, "1.00 µs"),
        (840_000, "840 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (12_340_000, "12.3 ms"),
        (999_600_000, "1.00 s"),
        (1_500_000_000, "1.50 s"),
        (119_000_000_000, "119 s"),
        (120 * 10**9, "2.00 min"),
        (7_200 * 10**9, "2.00 h"),
        (47 * 3_600 * 10**9, "47.0 h"),
        (172_800 * 10**9, "2.00 d"),
        (9_223_372_036_854_775_807, "106752 d"),
        (-5_000_000, "-5.00 ms"),
    ],
)
def test_duration_has_a_suitable_unit(ns: float | None, text: str) -> None:
    assert units.duration(ns) == text.replace(" ", SPACE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (0.25, "0.25"),
        (1000, "1.00 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),
        (12_345_678, "12.3 M"),
        (2**63 - 1, "9.22 E"),
        (-1500, "-1.50 k"),
    ],
)
def test_short_number_has_three_digits(value: float | None, text: str) -> None:
    assert units.short(value) == text.replace(" ", SPACE)


def test_trimmed_numbers_have_no_trailing_zeros() -> None:
    assert units.short(2000, trim=True) == f"2{SPACE}k"
    assert units.short(2500, trim=True) == f"2.5{SPACE}k"
    assert units.short(200, trim=True) == "200"
    assert units.duration(100_000_000, trim=True) == f"100{SPACE}ms"


def test_size_has_the_unit_of_bytes() -> None:
    assert units.size(52) == f"52{SPACE}B"
    assert units.size(5_150_000_000) == f"5.15{SPACE}GB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (0.00001, "< 0.01 %"),
        (0.0042, "0.42 %"),
        (0.061, "6.1 %"),
        (0.9999, "> 99.9 %"),
        (1.0, "100 %"),
        (None, "\N{EN DASH}"),
    ],
)
def test_small_percentage_is_not_shown_as_zero(value: float | None, text: str) -> None:
    assert units.percent(value) == text.replace(" ", SPACE)


def test_share_of_zero_has_no_value() -> None:
    assert units.share(0, 0) == units.NO_VALUE
    assert units.share(1, 4) == f"25.0{SPACE}%"


def test_huge_counts_are_shortened() -> None:
    assert units.count(1_234_567) == "1,234,567"
    assert units.count(5 * 10**15) == f"5.00{SPACE}P"


def test_times_are_utc_even_beyond_python_dates() -> None:
    assert units.moment(1_772_524_800 * 10**9 + 999) == "2026-03-03 08:00:00"
    assert units.moment(-1) == "1969-12-31 23:59:59"
    assert units.day(1_772_524_800) == f"3{SPACE}Mar"
    assert units.full_day(400_000_000_000) == f"30{SPACE}Jun 14645"
    assert units.full_day(-100_000_000_000).endswith("-1199")
