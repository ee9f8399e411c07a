"""Strength of tokens and secrets: an estimate of the bits that an attacker must guess."""

import string
from collections.abc import Iterator
from math import log2
from typing import Final

from fiveways.settings.sections import Settings

MIN_BITS: Final = 128
"""Minimum bits of a token or a secret."""
_MIN_DISTINCT: Final = 8
"""Minimum number of different characters; a text with fewer is not assumed to be random."""
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
    """Return the estimated bits of a text: its length times the bits per character of its smallest alphabet."""
    characters = set(text)
    size = min((len(alphabet) for alphabet in _ALPHABETS if characters <= set(alphabet)), default=_PRINTABLE_COUNT)
    if len(characters) < _MIN_DISTINCT:
        size = min(size, len(characters))
    return int(len(text) * log2(size)) if size > 1 else 0


def weak_secrets(settings: Settings) -> Iterator[str]:
    """Yield an error text for each token and each secret that is too weak."""
    if settings.auth.allow_weak_tokens:
        return
    for identity in settings.auth.identity:
        for key, secret in (("token", identity.token), ("secret", identity.secret)):
            if secret and (bits := estimate_bits(secret.reveal())) < MIN_BITS:
                yield (
                    f"the {key} of {identity.name!r} has about {bits} bits but needs {MIN_BITS}: use the output of "
                    "`openssl rand -hex 24`, or set auth.allow_weak_tokens"
                )
