"""Base 36 numbers with the digits `0-9A-Z`, as in the identifiers of UMQ."""

import re
from functools import lru_cache

from fiveways.errors import Malformed, Unrepresentable

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_U64 = 2**64 - 1

_CACHED_LENGTH = 4
"""Enough for 1.6 million identifiers. Longer callback tokens are parsed once; caching them would only cost memory."""
_MAX_CACHED_LENGTH = 13
"""Enough for 64 bits."""
_PAIRS = [high + low for high in DIGITS for low in DIGITS]
_DIGITS_PATTERN = re.compile("[0-9A-Z]+")
_UNPADDED = [pair.lstrip("0") or "0" for pair in _PAIRS]
_PAIR_BASE = len(_PAIRS)


def parse(text: str, maximum: int = MAX_U64) -> int:
    """Return the number, 0 for an empty text; Malformed for other characters or a number above `maximum`."""
    size = len(text)
    if size <= _CACHED_LENGTH:
        number = _parse_cached(text)
    else:
        number = _parse_short(text) if size <= _MAX_CACHED_LENGTH else _parse_long(text, maximum)
    if number > maximum:
        raise Malformed(f"base 36 number beyond {maximum}")
    return number


def write(number: int) -> str:
    """Return the shortest form; Unrepresentable for a negative number."""
    if 0 <= number < _PAIR_BASE:
        return _UNPADDED[number]
    if number < 0:
        raise Unrepresentable("base 36 has no negative numbers")
    return _write_prefix(number // _PAIR_BASE) + _PAIRS[number % _PAIR_BASE]


# Each session counts up, so one cache entry serves 1,296 consecutive identifiers.
@lru_cache(64)
def _write_prefix(number: int) -> str:
    """Return all digits except the last two."""
    pairs = []
    while number >= _PAIR_BASE:
        number, pair = divmod(number, _PAIR_BASE)
        pairs.append(_PAIRS[pair])
    pairs.append(_UNPADDED[number])
    pairs.reverse()
    return "".join(pairs)


def _parse_short(text: str) -> int:
    if not text:
        return 0
    # int() alone would accept lower case, signs, whitespace, underscores and digits of all scripts.
    if text.isascii() and text.isalnum() and (text.isupper() or text.isdigit()):
        return int(text, 36)
    raise Malformed("not a base 36 number")


_parse_cached = lru_cache(1024)(_parse_short)


def _parse_long(text: str, maximum: int) -> int:
    """Parse a number with many digits. Those far above `maximum` are rejected by length: int() needs quadratic time."""
    if not _DIGITS_PATTERN.fullmatch(text):
        raise Malformed("not a base 36 number")
    digits = text.lstrip("0")
    bits_at_least = 5 * (len(digits) - 1)
    if bits_at_least > maximum.bit_length():
        raise Malformed(f"base 36 number beyond {maximum}")
    return int(digits or "0", 36)
