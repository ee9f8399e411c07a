"""Encodings that raw peers share: escaped topics, marked bytes, UMQ texts."""

import json
from base64 import b64decode
from typing import Any, Final

_ALPHABET: Final = [chr(code) for code in range(33, 126) if chr(code) not in '"\\']
"""The alphabet of base91."""


def escaped(segment: str, alphabet: str) -> str:
    """Return a topic segment with other bytes as `__hh`; `_` stays between two letters of the alphabet."""
    out = []
    for at, letter in enumerate(segment):
        beside = segment[at - 1 : at] + segment[at + 1 : at + 2]
        if letter in alphabet or (letter == "_" and len(beside) == 2 and set(beside) <= set(alphabet)):
            out.append(letter)
        else:
            out += [f"__{byte:02x}" for byte in letter.encode()]
    return "".join(out) or "__00"


def read_marked(value: Any, own: str) -> tuple[bytes, str]:  # noqa: ANN401  as the encoding has it
    """Parse bytes with either marker or none; return the bytes and their form."""
    if isinstance(value, str):
        return b64decode(value, validate=True), "bare"
    ((mark, text),) = value.items()
    data = base91(text) if mark == "$base91" else b64decode(text, validate=True)
    assert mark in {"$base64", "$base91"}, mark
    return data, "own" if mark == own else "other"


def base91(text: str) -> bytes:
    """Decode base91 as in rule NQ-a12."""
    data = bytearray()
    bits = count = 0
    for first, second in zip(text[::2], text[1::2], strict=False):
        value = _ALPHABET.index(first) + 91 * _ALPHABET.index(second)
        width = 13 if value & 8191 > 88 else 14
        bits |= value << count
        count += width
        while count > 7:
            data.append(bits & 255)
            bits, count = bits >> 8, count - 8
    if len(text) % 2:
        data.append((bits | _ALPHABET.index(text[-1]) << count) & 255)
    return bytes(data)


def in_base91(data: bytes) -> str:
    """Encode base91 as in rule NQ-a12."""
    text = []
    bits = count = 0
    for byte in data:
        bits |= byte << count
        count += 8
        if count > 13:
            value, width = bits & 8191, 13
            if value <= 88:
                value, width = bits & 16383, 14
            bits, count = bits >> width, count - width
            text += [_ALPHABET[value % 91], _ALPHABET[value // 91]]
    if count:
        text.append(_ALPHABET[bits % 91])
        if count > 7 or bits > 90:
            text.append(_ALPHABET[bits // 91])
    return "".join(text)


def compact_json(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def value_of(text: str) -> Any:  # noqa: ANN401  whatever it spells
    """Return the value of a UMQ text: parsed if it is JSON, else the text."""
    try:
        return json.loads(text, parse_constant=_not_json) if text.strip() == text else text
    except ValueError:
        return text


def _not_json(text: str) -> object:
    raise ValueError(text)


def spelled(value: object) -> str:
    """Return a value as UMQ text: a string has no quotes unless it would be parsed as JSON."""
    return value if isinstance(value, str) and value_of(value) is value else compact_json(value)
