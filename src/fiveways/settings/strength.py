"""The strength of tokens and secrets: an estimate of how many bits somebody who guesses has to guess."""

import string
from collections.abc import Iterator
from math import log2
from typing import Final

from fiveways.settings.sections import Settings

ENOUGH: Final = 128
"""Bits of a token or a secret."""
_FEW: Final = 8
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
_PRINTABLE: Final = 95


def bits_of(text: str) -> int:
    """Estimate the bits of a text: its length, by the smallest usual alphabet that it is from."""
    different = set(text)
    size = min((len(each) for each in _ALPHABETS if different <= set(each)), default=_PRINTABLE)
    if len(different) < _FEW:
        size = min(size, len(different))
    return int(len(text) * log2(size)) if size > 1 else 0


def weak(settings: Settings) -> Iterator[str]:
    """Yield a sentence about each token and each secret that is too weak."""
    if settings.auth.allow_weak_tokens:
        return
    for each in settings.auth.identity:
        for key, secret in (("token", each.token), ("secret", each.secret)):
            if secret and (bits := bits_of(secret.reveal())) < ENOUGH:
                yield (
                    f"the {key} of {each.name!r} has about {bits} bits, and should have {ENOUGH}: take the output of "
                    "`openssl rand -hex 24`, or set auth.allow_weak_tokens"
                )
