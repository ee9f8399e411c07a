"""Redaction of texts: named values, JSON, passwords in URLs, HTTP credentials, JWTs and private keys."""

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
# Repetitions are bounded and do not overlap: a peer may send any text, and the time must be linear.
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
"""Prefilter: most texts do not match, and then no other pattern except `patterns` can match."""
CREDENTIAL_MARKERS: Final = {
    "://": r"://[^\s/?#]*@",
    "bearer": r"bearer\s",
    "basic": r"basic\s",
    "eyj": "eyJ",
    "ate key": "private key",
}
"""Substrings in lower case, with regular expressions. Without one of them no `_CREDENTIAL_PATTERNS` can match."""


class TextRedactor:
    """Redactor for texts."""

    def __init__(
        self, names: SecretNameMatcher, patterns: Iterable[str], redact_value: Callable[[object], object]
    ) -> None:
        """Initialize. `patterns` match further secrets; `redact_value` redacts a parsed JSON value."""
        self._names = names
        own = [(re.compile(pattern), REDACTED) for pattern in patterns]
        self._patterns, self._has_patterns = (*_CREDENTIAL_PATTERNS, *own), bool(own)
        self._redact_value = redact_value

    def redact(self, text: str) -> str:
        """Return the redacted text; the same object if it has no secrets."""
        if not self._has_patterns and text.isalnum():
            return text
        if text[:1] in _JSON_FIRST_CHARACTERS:
            try:
                value = strict_json.parse_text(text.strip())
            except FivewaysError:
                pass  # not JSON, or only in part
            else:
                redacted = redacted_json(text.strip().encode(), value, self._redact_value(value))
                return text if redacted is None else redacted.decode()
        if not self._has_patterns and _MAY_HOLD_SECRET.search(text) is None:
            return text
        unescaped = _UNICODE_ESCAPE.sub(_decode_escape, text)
        cleaned_text = self._redact_prose(unescaped)
        return text if cleaned_text == unescaped else cleaned_text

    def _redact_prose(self, text: str) -> str:
        for pattern, replacement in self._patterns:
            text = pattern.sub(replacement, text)
        return self._redact_pairs(
            _XML_ELEMENT.sub(self._redact_match, _COMMAND_LINE_OPTION.sub(self._redact_match, text))
        )

    def _redact_match(self, match: re.Match[str]) -> str:
        return f"{match['name']}{match['between']}{REDACTED}" if self._names.is_secret(match["name"]) else match[0]

    def _redact_pairs(self, text: str) -> str:
        """Redact the values after names of secrets."""
        pieces, start, at = list[str](), 0, 0
        while (match := _NAME_AND_SEPARATOR.search(text, at)) is not None:
            at = match.end()
            if self._names.is_secret(match["name"]):
                opening = _OPENING_QUOTE.match(text, at)
                pieces += text[start:at], REDACTED
                start = at = _value_end(text, at, match, opening)
        return "".join([*pieces, text[start:]])


def redacted_json(raw: bytes, value: object, cleaned: object) -> bytes | None:
    """Return redacted JSON, or None if nothing changes. Values hidden by a repeated key are dropped."""
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
    """A JSON object has a repeated key."""


def _decode_escape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _value_end(text: str, at: int, name: re.Match[str], opening: re.Match[str] | None) -> int:
    """Return the end of a value: the closing quote of a quoted value, the end of the line after a colon."""
    if opening is not None:
        pattern, at = _closing_quote_pattern(opening[0]), opening.end()
    elif name["quotes"]:
        pattern = _JSON_SCALAR
    else:
        pattern = _FORM_FIELD if name["between"].strip() in {"=", "=>"} or "%" in name["between"] else _REST_OF_LINE
    match = pattern.match(text, at)
    return at if match is None else match.end()


@lru_cache(64)
def _closing_quote_pattern(opening: str) -> re.Pattern[str]:
    """Return a pattern up to the closing quote, which has exactly as many backslashes as the opening one."""
    quote = re.escape(opening)
    if opening in {'"', "'"}:
        return re.compile(rf"(?:[^{opening}\\]|\\.)*(?:{opening}|\Z)", re.DOTALL)
    return re.compile(rf".*?(?:(?<!\\){quote}|\Z)", re.DOTALL)
