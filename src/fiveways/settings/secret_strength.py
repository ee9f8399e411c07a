"""The strength of tokens and secrets: an estimate of how many bits somebody who guesses has to guess."""

import string
from collections.abc import Iterator
from math import log2
from typing import Final

from fiveways.settings.sections import Settings

MIN_BITS: Final = 128
"""Bits of a token or a secret."""
_MIN_DISTINCT: Final = 8
"""Different characters; with fewer of them, a text is rather a pattern than random."""
_ALPHABETS: Final = (
    string.digits,
    string.digits + "abcdef",
    string.digits + "ABCDEF",
    string.ascii_lowercase,
    string.ascii_uppercase,
    string.digits + string.ascii_lowercase,
    string.digits + string.ascii_uppercase,
    string.digits + string.ascii_letters,
)
_PRINTABLE_COUNT: Final = 95


def estimate_bits(text: str) -> int:
    """Estimate the bits of a text: its length, by the smallest usual alphabet that it is from."""
    different = set(text)
    size = min((len(each) for each in _ALPHABETS if different <= set(each)), default=_PRINTABLE_COUNT)
    if len(different) < _MIN_DISTINCT:
        size = min(size, len(different))
    return int(len(text) * log2(size)) if size > 1 else 0


def weak_secrets(settings: Settings) -> Iterator[str]:
    """Yield a sentence about each token and each secret that is too weak."""
    if settings.auth.allow_weak_tokens:
        return
    for each in settings.auth.identity:
        for key, secret in (("token", each.token), ("secret", each.secret)):
            if secret and (bits := estimate_bits(secret.reveal())) < MIN_BITS:
                yield (
                    f"the {key} of {each.name!r} has about {bits} bits, and should have {MIN_BITS}: take the output of "
                    "`openssl rand -hex 24`, or set auth.allow_weak_tokens"
                )
