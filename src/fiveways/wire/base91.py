"""Base91: bytes as text without JSON escapes, 13 or 14 bits in two characters, low bits first (RULES NQ-a12)."""

import sys
from struct import iter_unpack

from fiveways.errors import Malformed

ALPHABET = "".join(map(chr, range(ord("!"), ord("~")))).replace('"', "").replace("\\", "")

_BASE = len(ALPHABET)
_BITS_13 = (1 << 13) - 1
_BITS_14 = (1 << 14) - 1
# Two characters have 8281 values, 89 more than 13 bits: the encoder stores 14 bits in groups up to this value.
_LAST_14_BIT_GROUP = _BASE**2 - (1 << 13) - 1

_PAIRS = [ALPHABET[group % _BASE] + ALPHABET[group // _BASE] for group in range(_BASE**2)]
_ALPHABET_BYTES = ALPHABET.encode()


def encode(data: bytes) -> str:
    """Return the base91 text of `data`."""
    pairs: list[str] = []
    append, pair_of, last_wide = (
        pairs.append,
        _PAIRS,
        _LAST_14_BIT_GROUP,
    )  # local names: the loop dominates the run time
    odd = len(data) % 2
    bits = count = 0
    # Two bytes and the rest of the last group fit into 30 bits, one digit of Python's integers.
    for (pair_of_bytes,) in iter_unpack("<H", memoryview(data)[: len(data) - odd]):
        bits |= pair_of_bytes << count
        count += 16
        while count > 13:
            group = bits & 0x1FFF
            if group > last_wide:
                bits >>= 13
                count -= 13
            else:
                group = bits & 0x3FFF
                bits >>= 14
                count -= 14
            append(pair_of[group])
    if odd:
        bits |= data[-1] << count
        count += 8
    append(_encode_tail(bits, count))
    return "".join(pairs)


def decode(text: str) -> bytes:
    """Return the bytes of a base91 text; Malformed for any text that `encode` would not return."""
    try:
        raw = text.encode("ascii")
    except UnicodeEncodeError as exc:
        raise Malformed("not base91: foreign character") from exc
    if raw.translate(None, _ALPHABET_BYTES):
        raise Malformed("not base91: foreign character")
    if not raw:
        return b""
    end = (len(raw) - 1) // 2 * 2
    groups = memoryview(raw)[:end].cast("H")
    bits = "".join(map(_BITS_OF_PAIR.__getitem__, groups[::-1]))
    bits = _decode_tail(text[end:], len(bits)) + bits
    return int(bits, 2).to_bytes(len(bits) // 8, "little")


def _encode_tail(bits: int, count: int) -> str:
    """Return the text of the last bits, fewer than 22."""
    text = ""
    if count > 13:
        wide = bits & _BITS_13 <= _LAST_14_BIT_GROUP
        text = _PAIRS[bits & (_BITS_14 if wide else _BITS_13)]
        bits >>= 13 + wide
        count -= 13 + wide
    if count > 7 or bits >= _BASE:
        return text + _PAIRS[bits]
    return text + ALPHABET[bits] if count else text


def _decode_tail(text: str, count: int) -> str:
    """Return the bits, high first, of the last one or two characters; `count` bits precede them."""
    bits = sum(ALPHABET.index(char) * _BASE**exponent for exponent, char in enumerate(text))
    to_whole_byte = -count % 8
    for width in (to_whole_byte, to_whole_byte + 8):
        if bits >> width == 0 and _encode_tail(bits, width) == text:
            return f"{bits:0{width}b}"
    raise Malformed("not base91: does not encode back to itself")


def _build_bit_table() -> list[str]:
    """Return the bits, high first, for each pair of characters, indexed by the pair as a 16-bit number."""
    table = [""] * (1 << 16)
    for group, pair in enumerate(_PAIRS):
        width = 13 if _LAST_14_BIT_GROUP < group <= _BITS_13 else 14
        table[int.from_bytes(pair.encode(), sys.byteorder)] = f"{group:0{width}b}"
    return table


_BITS_OF_PAIR = _build_bit_table()
