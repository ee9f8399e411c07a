"""The prefilter never misses a word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveways.journal.word_prefilter import WordPrefilter

WORDS = (b"authorization", b"password", b"secret", b"token", b'"peer"', b"cook", b"pwd")
PIECES = st.lists(st.sampled_from([*WORDS, b"tok", b"ken", b"secre", b"x", b" ", b"\0\xff"]), max_size=8).map(b"".join)


def may_find(words: tuple[bytes, ...], data: bytes) -> bool:
    return len(WordPrefilter(words).find_candidates(np.frombuffer(data, np.uint8))) > 0


@given(PIECES)
def test_contained_word_is_found(data: bytes) -> None:
    if any(word in data for word in WORDS):
        assert may_find(WORDS, data)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("behind", range(4))
def test_word_is_found_at_any_offset(word: bytes, before: int, behind: int) -> None:
    assert may_find(WORDS, b"x" * before + word + b"x" * behind)


@pytest.mark.parametrize("data", [b"", b"t", b"to", b"took", b"nothing of that kind is to be kept", bytes(range(256))])
def test_data_without_words_has_no_candidates(data: bytes) -> None:
    assert not may_find(WORDS, data)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("before", range(4))
def test_candidate_is_within_the_word_in_any_case(word: bytes, before: int) -> None:
    data = np.frombuffer(b"-" * before + word.upper() + b"-" * 9, np.uint8)
    (place,) = WordPrefilter(WORDS).find_candidates(data)
    assert before <= place < before + len(word)


def test_short_word_makes_all_offsets_candidates() -> None:
    assert may_find((*WORDS, b"pi"), b"xyz")
    assert not may_find((), b"xyz")
