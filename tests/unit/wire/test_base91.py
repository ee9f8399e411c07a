"""Tests of the base91 encoder and decoder: vectors of RULES NQ-a12, round trips, and all short texts."""

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.errors import Malformed
from fiveways.wire import base91

VECTORS = {
    b"": "",
    b"\x00": "!!",
    b"\xff": "l$",
    b"\x00\x00": "!!!",
    b"\xff\xff": "#})",
    b"Hello": "q0R+Cq!",
    bytes(range(8)): "m$bfm$rC7#",
}
data = st.binary(max_size=200) | st.lists(st.sampled_from([b"\x00", b"\xff", b"\x58", b"\x59\x20"])).map(b"".join)


def reference_encode(whole: bytes) -> str:
    """Encode as NQ-a12 describes it, with one bit string and no table."""
    bits, count, text = int.from_bytes(whole, "little"), 8 * len(whole), ""
    while count > 13:
        width = 13 if bits % 2**13 > 88 else 14
        group = bits % 2**width
        text += base91.ALPHABET[group % 91] + base91.ALPHABET[group // 91]
        bits >>= width
        count -= width
    if count:
        text += base91.ALPHABET[bits % 91]
        if count > 7 or bits > 90:
            text += base91.ALPHABET[bits // 91]
    return text


@pytest.mark.parametrize(("raw", "text"), VECTORS.items())
def test_vectors_of_nq_a12(raw: bytes, text: str) -> None:
    assert base91.encode(raw) == text
    assert base91.decode(text) == raw


def test_alphabet_needs_no_escape_in_json() -> None:
    assert len(set(base91.ALPHABET)) == 91
    assert list(base91.ALPHABET) == sorted(base91.ALPHABET)
    assert json.dumps(base91.ALPHABET) == f'"{base91.ALPHABET}"'


@given(raw=data)
def test_encode_does_as_the_rule_says_and_decode_undoes_it(raw: bytes) -> None:
    text = base91.encode(raw)
    assert text == reference_encode(raw)
    assert base91.decode(text) == raw


@given(text=st.text(base91.ALPHABET, max_size=40))
def test_a_text_encodes_back_to_itself_or_is_refused(text: str) -> None:
    try:
        raw = base91.decode(text)
    except Malformed:
        return
    assert base91.encode(raw) == text


def test_the_short_texts_that_decode_are_the_short_texts_that_encode() -> None:
    written = {base91.encode(bytes(raw)) for size in range(3) for raw in product(range(256), repeat=size)}
    read = set()
    for size in range(3):
        for text in map("".join, product(base91.ALPHABET, repeat=size)):
            try:
                base91.decode(text)
            except Malformed:
                continue
            read.add(text)
    assert read == {text for text in written if len(text) <= 2}


@pytest.mark.parametrize("text", ["!", "~~", "! ", '!"', "!\\", "!\n", "é!", "！！", "!\x00", "\ud800!", "}}"])
def test_foreign_characters_and_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        base91.decode(text)
