"""Formatting of numbers, sizes, durations and times for people."""

from typing import Final

import numpy as np

NO_VALUE: Final = "\N{EN DASH}"
MINUTE, HOUR, DAY = 60, 3_600, 86_400
_SHORT: Final = ((10**3, "µs"), (10**6, "ms"))
_SECOND: Final = 10**9
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P", "E", "Z")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MAX_FULL_COUNT: Final = 10**12
NO_BREAK_SPACE: Final = "\N{NO-BREAK SPACE}"
"""Keeps a number and its unit on one line."""


def count(value: float | None) -> str:
    """Format an integer with thousands separators; shorten a huge one."""
    if value is None:
        return NO_VALUE
    return f"{round(value):,}" if abs(value) < _MAX_FULL_COUNT else short(value)


def short(value: float | None, unit: str = "", *, trim: bool = False) -> str:
    """Format a number with three digits and an SI prefix: 12.3 k, 4.56 MB."""
    if value is None:
        return NO_VALUE
    size, power = abs(value), 0
    while size >= 999.5 and power < len(_THOUSANDS) - 1:
        size, power = size / 1000, power + 1
    whole = power == 0 and float(value).is_integer()
    number = f"{size:.0f}" if whole else digits(size, trim=trim)
    suffix = f"{_THOUSANDS[power]}{unit}"
    return f"{'-' if value < 0 else ''}{number}{NO_BREAK_SPACE if suffix else ''}{suffix}"


def digits(value: float, *, trim: bool = False) -> str:
    """Format a number below 1000 with three significant digits."""
    places = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    shown = f"{value:.{places}f}"
    return shown.rstrip("0").rstrip(".") if trim and "." in shown else shown


def size(value: float | None, *, trim: bool = False) -> str:
    """Format a number of bytes."""
    return short(value, "B", trim=trim)


def duration(ns: float | None, *, trim: bool = False) -> str:
    """Format a duration: 840 µs, 12.3 ms, 4.5 h."""
    if ns is None:
        return NO_VALUE
    length = abs(ns)
    sign = "-" if ns < 0 else ""
    if length < 999.5:
        return f"{sign}{length:.0f}{NO_BREAK_SPACE}ns"
    factor, unit = _unit(length)
    return f"{sign}{digits(length / factor, trim=trim)}{NO_BREAK_SPACE}{unit}"


def _unit(length: float) -> tuple[int, str]:
    """Return the unit of a duration in ns; values stay below 1000, and minutes begin at two."""
    for factor, unit in _SHORT:
        if length < 999.5 * factor:
            return factor, unit
    for factor, unit, end in ((1, "s", 2 * MINUTE), (MINUTE, "min", 2 * HOUR), (HOUR, "h", 2 * DAY)):
        if length < end * _SECOND:
            return factor * _SECOND, unit
    return DAY * _SECOND, "d"


def share(part: float | None, whole: float | None) -> str:
    """Format a part of a whole in percent; a value above zero is never shown as 0."""
    if part is None or not whole:
        return NO_VALUE
    return percent(part / whole)


def percent(value: float | None) -> str:
    """Format a fraction in percent."""
    if value is None:
        return NO_VALUE
    shown = 100 * value
    if shown == 0:
        return f"0{NO_BREAK_SPACE}%"
    if 0 < shown < 0.01:
        return f"<{NO_BREAK_SPACE}0.01{NO_BREAK_SPACE}%"
    if 99.95 <= shown < 100:
        return f">{NO_BREAK_SPACE}99.9{NO_BREAK_SPACE}%"
    return (
        f"{shown:.2f}{NO_BREAK_SPACE}%"
        if shown < 1
        else f"{shown:.1f}{NO_BREAK_SPACE}%"
        if shown < 99.95
        else f"{shown:.0f}{NO_BREAK_SPACE}%"
    )


def day(seconds: int) -> str:
    """Format the day of a time: 3 Mar."""
    _, month, number = _date(seconds)
    return f"{number}{NO_BREAK_SPACE}{_MONTHS[month - 1]}"


def full_day(seconds: int) -> str:
    """Format the day of a time with its year: 3 Mar 2026."""
    return f"{day(seconds)} {_date(seconds)[0]}"


def clock(seconds: int) -> str:
    """Format the time of day: 08:30."""
    return f"{seconds % DAY // HOUR:02d}:{seconds % HOUR // MINUTE:02d}"


def moment(ns: int | None) -> str:
    """Format a time to the second: 2026-03-03 08:30:12."""
    if ns is None:
        return NO_VALUE
    seconds = ns // 10**9
    year, month, number = _date(seconds)
    return f"{year:04d}-{month:02d}-{number:02d} {clock(seconds)}:{seconds % MINUTE:02d}"


def _date(seconds: int) -> tuple[int, int, int]:
    """Return year, month and day; a wrong clock may give years that Python's own dates do not support."""
    parts = str(np.datetime64(seconds // DAY, "D")).rsplit("-", 2)
    return int(parts[0]), int(parts[1]), int(parts[2])
