"""Secrets in texts: values behind names, JSON, passwords in URLs, credentials of HTTP, JWTs, private keys."""

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from fiveways.errors import FivewaysError
from fiveways.model.secret_names import SecretNameMatcher
from fiveways.wire import strict_json

REDACTED: Final = "***"
_JSON_FIRST_CHARACTERS: Final = frozenset('[{" \t\n\r')
_UNICODE_ESCAPE: Final = re.compile(r"\\{1,64}u00([2-7][0-9a-fA-F])")
# Repetitions are bounded, and no two of them compete: a peer may send any text, and the time has to be linear.
_QUOTE: Final = r"""\\{0,64}["']|%22|&quot;"""
_NAME_AND_SEPARATOR: Final = re.compile(
    rf"""(?<![A-Za-z_.-])(?P<name>(?:[A-Za-z]{{1,32}}[ ])?[A-Za-z_][\w.\-\[\]]{{0,127}})
    (?P<quotes>(?:{_QUOTE}|%5[Dd]){{0,2}})(?P<between>\s{{0,8}}(?:=>|[:=]|%3[AaDd]|\s(?:is|was)\s)\s{{0,8}})""",
    re.VERBOSE,
)
_OPENING_QUOTE: Final = re.compile(_QUOTE)
_REST_OF_LINE: Final = re.compile(r".*")
_FORM_FIELD: Final = re.compile(r"[^&;\s]*")
_JSON_SCALAR: Final = re.compile(r"[^,}\]\s]*")
_COMMAND_LINE_OPTION: Final = re.compile(
    r"(?<!\S)(?P<name>--?[A-Za-z][\w-]{1,63})(?P<between>\s{1,8})(?P<value>[^\s-]\S*)"
)
_XML_ELEMENT: Final = re.compile(
    r"(?<=<)(?P<name>[A-Za-z][\w.:-]{0,63})(?P<between>(?:\s[^<>]{0,256})?>)(?P<value>[^<]+)"
)
_CREDENTIAL_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"""(://[^\s/?#:@"'<>]*:)[^\s/?#"'<>]*@"""), rf"\1{REDACTED}@"),
    (re.compile(r"""(://)[^\s/?#:@"'<>]{16,}@"""), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)(\bbearer\s{1,8})[\w.~+/=-]+"), rf"\1{REDACTED}"),
    (re.compile(r"(\b(?i:basic)\s{1,8})(?=[a-z+/]{0,256}[A-Z0-9=])[\w+/=-]{4,}"), rf"\1{REDACTED}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REDACTED),
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REDACTED,
    ),
)
_MAY_HOLD_SECRET: Final = re.compile(r"(?i)[=:<\\]|%3|(?<!\S)-|bearer|basic|eyJ|begin|\s(?:is|was)\s")
"""A text in which this is not found, as most, has no secret that the others find."""
CREDENTIAL_MARKERS: Final = {
    "://": r"://[^\s/?#]*@",
    "bearer": r"bearer\s",
    "basic": r"basic\s",
    "eyj": "eyJ",
    "ate key": "private key",
}
"""Words of which a text must have one, in any case, for `_FIXED` to find something, with their regular expressions."""


class TextRedactor:
    """Takes secrets out of texts."""

    def __init__(self, names: SecretNameMatcher, patterns: Iterable[str], walk: Callable[[object], object]) -> None:
        """Make it; what a pattern matches is secret, too; `walk` returns a value without secrets."""
        self._names = names
        own = [(re.compile(pattern), REDACTED) for pattern in patterns]
        self._patterns, self._has_patterns = (*_CREDENTIAL_PATTERNS, *own), bool(own)
        self._redact_value = walk

    def redact(self, text: str) -> str:
        """Return a text without secrets; the same one if there are none."""
        if not self._has_patterns and text.isalnum():
            return text
        if text[:1] in _JSON_FIRST_CHARACTERS:
            try:
                value = strict_json.parse_text(text.strip())
            except FivewaysError:
                pass  # not JSON, or not all of it
            else:
                written = redacted_json(text.strip().encode(), value, self._redact_value(value))
                return text if written is None else written.decode()
        if not self._has_patterns and _MAY_HOLD_SECRET.search(text) is None:
            return text
        unescaped = _UNICODE_ESCAPE.sub(_decode_escape, text)
        cleaned_text = self._redact_prose(unescaped)
        return text if cleaned_text == unescaped else cleaned_text

    def _redact_prose(self, text: str) -> str:
        for pattern, instead in self._patterns:
            text = pattern.sub(instead, text)
        return self._redact_pairs(
            _XML_ELEMENT.sub(self._redact_match, _COMMAND_LINE_OPTION.sub(self._redact_match, text))
        )

    def _redact_match(self, found: re.Match[str]) -> str:
        return f"{found['name']}{found['between']}{REDACTED}" if self._names.is_secret(found["name"]) else found[0]

    def _redact_pairs(self, text: str) -> str:
        """Replace the values behind names of secrets."""
        kept, start, at = list[str](), 0, 0
        while (found := _NAME_AND_SEPARATOR.search(text, at)) is not None:
            at = found.end()
            if self._names.is_secret(found["name"]):
                opening = _OPENING_QUOTE.match(text, at)
                kept += text[start:at], REDACTED
                start = at = _value_end(text, at, found, opening)
        return "".join([*kept, text[start:]])


def redacted_json(raw: bytes, value: object, cleaned: object) -> bytes | None:
    """Return JSON without secrets; None if it may stay as it is. The values that a repeated key hides are left out."""
    return strict_json.write(cleaned) if cleaned != value or _has_repeated_keys(raw) else None


def _has_repeated_keys(raw: bytes) -> bool:
    def check(pairs: list[tuple[str, object]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise _RepeatedKey

    try:
        json.loads(raw, object_pairs_hook=check)
    except _RepeatedKey:
        return True
    return False


class _RepeatedKey(Exception):
    """An object has a key twice."""


def _decode_escape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def _value_end(text: str, at: int, name: re.Match[str], opening: re.Match[str] | None) -> int:
    """Return where the value at a place ends: a quoted one with its quote, one behind a colon with its line."""
    if opening is not None:
        shape, at = _closing_quote_pattern(opening[0]), opening.end()
    elif name["quotes"]:
        shape = _JSON_SCALAR
    else:
        shape = _FORM_FIELD if name["between"].strip() in {"=", "=>"} or "%" in name["between"] else _REST_OF_LINE
    found = shape.match(text, at)
    return at if found is None else found.end()


@lru_cache(64)
def _closing_quote_pattern(opening: str) -> re.Pattern[str]:
    """Return a text up to its closing quote: that has as many backslashes as the opening one, others have more."""
    quote = re.escape(opening)
    if opening in {'"', "'"}:
        return re.compile(rf"(?:[^{opening}\\]|\\.)*(?:{opening}|\Z)", re.DOTALL)
    return re.compile(rf".*?(?:(?<!\\){quote}|\Z)", re.DOTALL)
