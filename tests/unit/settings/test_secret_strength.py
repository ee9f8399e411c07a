"""Tests of the strength estimate for secrets."""

import secrets

import pytest

from fiveways.settings.secret_strength import MIN_BITS, estimate_bits


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("", 0),
        ("a" * 100, 0),
        ("ab" * 50, 100),
        ("0123456789" * 2, 66),
        ("0123456789abcdef" * 2, 128),
        ("abcdefghij", 47),
        ("change-me", 59),
        ("p4ssw0rdX", 53),
    ],
)
def test_bits_depend_on_length_and_alphabet(text: str, bits: int) -> None:
    assert estimate_bits(text) == bits


def test_random_tokens_of_128_bits_are_accepted() -> None:
    for _ in range(100):
        assert estimate_bits(secrets.token_hex(16)) >= MIN_BITS
        assert estimate_bits(secrets.token_urlsafe(16)) >= MIN_BITS
