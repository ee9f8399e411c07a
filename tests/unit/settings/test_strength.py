"""How strong tokens are."""

import secrets

import pytest

from fiveways.settings.strength import ENOUGH, bits_of


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
    assert bits_of(text) == bits


def test_random_tokens_of_128_bits_are_strong_enough() -> None:
    for _ in range(100):
        assert bits_of(secrets.token_hex(16)) >= ENOUGH
        assert bits_of(secrets.token_urlsafe(16)) >= ENOUGH
