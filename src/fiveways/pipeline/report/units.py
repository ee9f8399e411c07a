"""Numbers as a person reads them: with a unit that fits, and no more digits than mean something."""

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
"""Between a number and its unit: they stay on one line."""


def count(value: float | None) -> str:
    """Return a whole number with its thousands set apart; a huge one is shortened."""
    if value is None:
        return NO_VALUE
    return f"{round(value):,}" if abs(value) < _MAX_FULL_COUNT else short(value)


def short(value: float | None, unit: str = "", *, trim: bool = False) -> str:
    """Return three digits and the letter for the thousands: 12.3 k, 4.56 MB."""
    if value is None:
        return NO_VALUE
    size, power = abs(value), 0
    while size >= 999.5 and power < len(_THOUSANDS) - 1:
        size, power = size / 1000, power + 1
    whole = power == 0 and float(value).is_integer()
    number = f"{size:.0f}" if whole else digits(size, trim=trim)
    behind = f"{_THOUSANDS[power]}{unit}"
    return f"{'-' if value < 0 else ''}{number}{NO_BREAK_SPACE if behind else ''}{behind}"


def digits(value: float, *, trim: bool = False) -> str:
    """Return a number below 1000 with three digits that count."""
    places = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    shown = f"{value:.{places}f}"
    return shown.rstrip("0").rstrip(".") if trim and "." in shown else shown


def size(value: float | None, *, trim: bool = False) -> str:
    """Return a number of bytes."""
    return short(value, "B", trim=trim)


def duration(ns: float | None, *, trim: bool = False) -> str:
    """Return a time that passed: 840 µs, 12.3 ms, 4.5 h."""
    if ns is None:
        return NO_VALUE
    length = abs(ns)
    sign = "-" if ns < 0 else ""
    if length < 999.5:
        return f"{sign}{length:.0f}{NO_BREAK_SPACE}ns"
    factor, unit = _unit(length)
    return f"{sign}{digits(length / factor, trim=trim)}{NO_BREAK_SPACE}{unit}"


def _unit(length: float) -> tuple[int, str]:
    """Return the unit of a time, in ns: none has a thousand or more before it, and minutes begin at two."""
    for factor, unit in _SHORT:
        if length < 999.5 * factor:
            return factor, unit
    for factor, unit, end in ((1, "s", 2 * MINUTE), (MINUTE, "min", 2 * HOUR), (HOUR, "h", 2 * DAY)):
        if length < end * _SECOND:
            return factor * _SECOND, unit
    return DAY * _SECOND, "d"


def share(part: float | None, whole: float | None) -> str:
    """Return how much of the whole a part is, in percent; what is not nothing is never shown as 0."""
    if part is None or not whole:
        return NO_VALUE
    return percent(part / whole)


def percent(value: float | None) -> str:
    """Return a fraction in percent."""
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
    """Return the day of an instant: 3 Mar."""
    _, month, number = _date(seconds)
    return f"{number}{NO_BREAK_SPACE}{_MONTHS[month - 1]}"


def full_day(seconds: int) -> str:
    """Return the day of an instant with its year: 3 Mar 2026."""
    return f"{day(seconds)} {_date(seconds)[0]}"


def clock(seconds: int) -> str:
    """Return the time of day of an instant: 08:30."""
    return f"{seconds % DAY // HOUR:02d}:{seconds % HOUR // MINUTE:02d}"


def moment(ns: int | None) -> str:
    """Return an instant to the second: 2026-03-03 08:30:12."""
    if ns is None:
        return NO_VALUE
    seconds = ns // 10**9
    year, month, number = _date(seconds)
    return f"{year:04d}-{month:02d}-{number:02d} {clock(seconds)}:{seconds % MINUTE:02d}"


def _date(seconds: int) -> tuple[int, int, int]:
    """Return year, month and day. A clock may be wrong by millennia, which Python's own dates do not bear."""
    parts = str(np.datetime64(seconds // DAY, "D")).rsplit("-", 2)
    return int(parts[0]), int(parts[1]), int(parts[2])
