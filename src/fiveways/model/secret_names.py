"""Names under which secrets stand, in any case and with any separators: `apiKey`, `API_KEY` and `X-Api-Key` are one."""

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
"""The default names; a space stands where a name may have a separator."""
_MIN_ANYWHERE_LETTERS: Final = 8
"""Letters of a name that is recognized anywhere in another one: no innocent word contains it."""
_MAX_LAST_WORD_LETTERS: Final = 4
"""Letters of a name that is recognized only as the last word of another one: too many innocent words end with it.

Names without vowels, such as `pwd`, are not among them.
"""
_VOWELS: Final = frozenset("aeiou")
_MAX_NAME_LENGTH: Final = 128
"""Characters of a name; a longer text is none."""
_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_SEPARATORS: Final = re.compile(r"[\W_]+")
_MATCHES_NOTHING: Final = "(?!)"


class SecretNameMatcher:
    """Recognizes the names of secrets.

    `password` and other long names count anywhere in a name, `token` at the end of a word of it (not in `tokenizer`),
    `pwd` and other short ones as its last word (not in `auth_method`).
    """

    def __init__(self, names: Iterable[str] = DEFAULT_SECRET_NAMES) -> None:
        words = [[part.lower() for part in _SEPARATORS.split(name) if part] for name in names]
        self.names: Final = [parts for parts in words if parts]
        """The words of each name, in lower case."""
        kinds: dict[str, list[str]] = {"anywhere": [], "ending": [], "last": []}
        for parts in self.names:
            letters = len("".join(parts))
            is_short = letters <= _MAX_LAST_WORD_LETTERS and not _VOWELS.isdisjoint("".join(parts))
            kind = "anywhere" if letters >= _MIN_ANYWHERE_LETTERS else "last" if is_short else "ending"
            kinds[kind].append("_?".join(map(re.escape, parts)))
        anywhere, ending, last = (_alternatives(each) for each in kinds.values())
        self._anywhere_pattern = re.compile(rf"{anywhere}|{ending}s?(?![^\W\d_])")
        self._ending_pattern = re.compile(rf"(?:{anywhere}|{ending}|(?<![^\W\d_]){last})[\d_]*(?![^ ])")
        self._is_secret = lru_cache(1024)(self._classify)

    def is_secret(self, name: object) -> bool:
        """Say whether what stands under this name is secret."""
        text = _as_text(name)
        return text is not None and len(text) <= _MAX_NAME_LENGTH and self._is_secret(text)[0]

    def is_secret_value(self, name: object, value: object) -> bool:
        """Say whether a value under this name is secret: truth values and counts (`max_tokens`) are not."""
        text = _as_text(name)
        if text is None or len(text) > _MAX_NAME_LENGTH or value is None or isinstance(value, bool):
            return False
        is_secret, is_whole, is_long = self._is_secret(text)
        if isinstance(value, int | float):
            return is_secret and is_whole
        return is_secret and (is_long or not isinstance(value, dict))

    def occurs_in(self, text: str) -> bool:
        """Say whether a longer name stands somewhere in a text."""
        return self._anywhere_pattern.search(_normalized_spellings(text)) is not None

    def _classify(self, name: str) -> tuple[bool, bool, bool]:
        """Return whether a name is secret, whether it ends with a secret name, whether that is a longer one."""
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
    """Return a text in lower case with `_` between its words: once with camel case taken apart, once without."""
    return f"{_WORD_BOUNDARY.sub('_', text)} {_SEPARATORS.sub('_', text)}".lower()
