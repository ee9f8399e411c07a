"""Numbers spelled with the digits `0-9A-Z`, as UMQ writes its identifiers."""

import re
from functools import lru_cache

from fiveways.errors import Malformed, Unrepresentable

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_U64 = 2**64 - 1

_SHORT_LENGTH = 13
"""Enough for 64 bits, and few enough to remember thousands of."""
_PAIRS = [high + low for high in DIGITS for low in DIGITS]
_DIGITS_ONLY = re.compile("[0-9A-Z]+")
_UNPADDED = [pair.lstrip("0") or "0" for pair in _PAIRS]
_PAIR_BASE = len(_PAIRS)


def parse(text: str, maximum: int = MAX_U64) -> int:
    """Return the number, 0 for the empty text; Malformed for any other spelling or a number beyond `maximum`."""
    number = _parse_short(text) if len(text) <= _SHORT_LENGTH else _parse_long(text, maximum)
    if number > maximum:
        raise Malformed(f"base 36 number beyond {maximum}")
    return number


def write(number: int) -> str:
    """Return the shortest spelling; Unrepresentable for a number below 0."""
    if 0 <= number < _PAIR_BASE:
        return _UNPADDED[number]
    if number < 0:
        raise Unrepresentable("base 36 has no numbers below 0")
    return _write_more(number // _PAIR_BASE) + _PAIRS[number % _PAIR_BASE]


@lru_cache(4096)
def _write_more(number: int) -> str:
    """Return what stands before the last two digits: the same for many numbers in a row."""
    pairs = []
    while number >= _PAIR_BASE:
        number, pair = divmod(number, _PAIR_BASE)
        pairs.append(_PAIRS[pair])
    pairs.append(_UNPADDED[number])
    pairs.reverse()
    return "".join(pairs)


@lru_cache(4096)
def _parse_short(text: str) -> int:
    if not text:
        return 0
    # int() alone would take lower case, signs, blanks, underscores and the digits of all scripts.
    if text.isascii() and text.isalnum() and (text.isupper() or text.isdigit()):
        return int(text, 36)
    raise Malformed("not a base 36 number")


def _parse_long(text: str, maximum: int) -> int:
    """Take leading zeros, and refuse by length alone what is far beyond `maximum`: int() needs quadratic time."""
    if not _DIGITS_ONLY.fullmatch(text):
        raise Malformed("not a base 36 number")
    digits = text.lstrip("0")
    bits_at_least = 5 * (len(digits) - 1)
    if bits_at_least > maximum.bit_length():
        raise Malformed(f"base 36 number beyond {maximum}")
    return int(digits or "0", 36)
