"""Names of secrets, regardless of case and separators: `apiKey`, `API_KEY` and `X-Api-Key` are the same."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

DEFAULT_SECRET_NAMES: Final = (
    "access key",
    "api key",
    "auth",
    "auth key",
    "authorisation",
    "authorization",
    "cookie",
    "credential",
    "csrf",
    "encryption key",
    "jwt",
    "otp",
    "pass",
    "pass code",
    "pass phrase",
    "pass wd",
    "pass word",
    "private key",
    "pwd",
    "secret",
    "secret key",
    "sess id",
    "session id",
    "session key",
    "shared key",
    "sid",
    "signing key",
    "token",
    "xsrf",
)
"""Default names; a space matches an optional separator."""
_MIN_ANYWHERE_LETTERS: Final = 8
"""Minimum letters of a name that is matched anywhere in another one: no harmless word contains it."""
_MAX_LAST_WORD_LETTERS: Final = 4
"""Maximum letters of a name that is matched only as the last word: too many harmless words end with it.

Names without vowels, such as `pwd`, are excepted.
"""
_VOWELS: Final = frozenset("aeiou")
_MAX_NAME_LENGTH: Final = 128
"""Maximum characters of a name; a longer text is not a name."""
_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_MATCHES_NOTHING: Final = "(?!)"


class SecretNameMatcher:
    """Matcher for names of secrets.

    `password` and other long names match anywhere in a name, `token` at the end of a word (not in `tokenizer`), `pwd`
    and other short names only as the last word (not in `auth_method`).
    """

    def __init__(self, names: Iterable[str] = DEFAULT_SECRET_NAMES) -> None:
        words = [[part.lower() for part in _SEPARATORS.split(name) if part] for name in names]
        self.names: Final = [parts for parts in words if parts]
        """Words of each name in lower case."""
        kinds: dict[str, list[str]] = {"anywhere": [], "ending": [], "last": []}
        for parts in self.names:
            letters = len("".join(parts))
            is_short = letters <= _MAX_LAST_WORD_LETTERS and not _VOWELS.isdisjoint("".join(parts))
            kind = "anywhere" if letters >= _MIN_ANYWHERE_LETTERS else "last" if is_short else "ending"
            kinds[kind].append("_?".join(map(re.escape, parts)))
        anywhere, ending, last = (_alternatives(patterns) for patterns in kinds.values())
        self._anywhere_pattern = re.compile(rf"{anywhere}|{ending}s?(?![^\W\d_])")
        self._ending_pattern = re.compile(rf"(?:{anywhere}|{ending}|(?<![^\W\d_]){last})[\d_]*(?![^ ])")
        self._is_secret = lru_cache(1024)(self._classify)

    def is_secret(self, name: object) -> bool:
        """Return whether this is the name of a secret."""
        text = _as_text(name)
        return text is not None and len(text) <= _MAX_NAME_LENGTH and self._is_secret(text)[0]

    def is_secret_value(self, name: object, value: object) -> bool:
        """Return whether a value under this name is secret: truth values and counts (`max_tokens`) are not."""
        text = _as_text(name)
        if text is None or len(text) > _MAX_NAME_LENGTH or value is None or isinstance(value, bool):
            return False
        is_secret, is_whole, is_long = self._is_secret(text)
        if isinstance(value, int | float):
            return is_secret and is_whole
        return is_secret and (is_long or not isinstance(value, dict))

    def occurs_in(self, text: str) -> bool:
        """Return whether a text contains one of the longer names."""
        return self._anywhere_pattern.search(_normalized_spellings(text)) is not None

    def _classify(self, name: str) -> tuple[bool, bool, bool]:
        """Return whether a name is secret, whether it ends with a secret name, and whether it contains a longer one."""
        spellings = _normalized_spellings(name)
        is_long, is_whole = (
            self._anywhere_pattern.search(spellings) is not None,
            self._ending_pattern.search(spellings) is not None,
        )
        return is_long or is_whole, is_whole, is_long


def _alternatives(patterns: list[str]) -> str:
    return f"(?:{'|'.join(patterns)})" if patterns else _MATCHES_NOTHING


def _as_text(name: object) -> str | None:
    if isinstance(name, bytes):
        return name.decode("latin-1")
    return name if isinstance(name, str) else None


def _normalized_spellings(text: str) -> str:
    """Return a text in lower case with `_` between words, first split at camel case, then not."""
    return f"{_WORD_BOUNDARY.sub('_', text)} {_SEPARATORS.sub('_', text)}".lower()
