"""Redaction of values: keys of objects, names in lists, and texts."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fiveways.model.secret_names import SecretNameMatcher
from fiveways.model.text_redaction import REDACTED, TextRedactor

_NAME_LIKE_TEXT: Final = re.compile(r"[\w.\-\[\]:/]{1,128}(?: [\w\-]{1,64})?")
"""Pattern for texts that may be names; a longer text is prose."""
_NAME_KEYS: Final = frozenset({"name", "key", "header", "field", "variable", "param", "parameter", "n", "k"})
_VALUE_KEYS: Final = frozenset({"value", "values", "val", "v", "data", "content", "default"})
_ARGUMENTS_KEY: Final = "args"
_METHOD_SEPARATORS: Final = frozenset(".:/")
"""Separators in method names; the `args` of a method are not values of a name."""


class ValueRedactor:
    """Redactor for JSON and CBOR values."""

    def __init__(self, names: SecretNameMatcher, patterns: Sequence[str] = ()) -> None:
        self._names = names
        self.text_redactor = TextRedactor(names, patterns, self.redact)

    def redact(self, value: object) -> object:
        """Return the redacted value."""
        match value:
            case str():
                return self.text_redactor.redact(value)
            case dict():
                return self._redact_object(value)
            case list():
                return self._redact_list(value)
            case bytes():
                return self._redact_bytes(value)
        return value

    def redact_call_array(self, items: list[object], method_index: int) -> list[object]:
        """Redact a list whose item `method_index` is a method name, which says nothing about the next item."""
        rest = self.redact(items[method_index + 1 :])
        return [*self._redact_pairs(items[: method_index + 1]), *(rest if isinstance(rest, list) else [])]

    def _redact_list(self, items: list[object]) -> list[object]:
        if len(items) > 1 and self._is_secret_name(items[0]):  # positional arguments: a name and its value
            return [items[0], *map(_redact_scalar, items[1:])]
        return self._redact_pairs(items)

    def _redact_pairs(self, items: list[object]) -> list[object]:
        """Redact a list that may alternate between names and values, like HTTP headers."""
        redacted = [self.redact(item) for item in items]
        if len(items) % 2 == 0:
            for at in range(0, len(items), 2):
                if self._is_secret_name(items[at]) and isinstance(items[at + 1], str | bytes):
                    redacted[at + 1] = REDACTED
        return redacted

    def _redact_object(self, value: dict[str, object]) -> dict[object, object]:
        """Redact an object, which may itself be a pair of name and value."""
        redacted = {
            self.redact(key): REDACTED if self._names.is_secret_value(key, item) else self.redact(item)
            for key, item in value.items()
        }
        keys = {key.lower(): key for key in value if isinstance(key, str)}
        is_peer = value.get("note") == "peer"  # its argument is the id that resumes an NQ session
        label = next(
            (value[keys[key]] for key in _NAME_KEYS & keys.keys() if self._is_secret_name(value[keys[key]])), None
        )
        if label is not None:
            redacted |= {keys[key]: _redact_scalar(value[keys[key]]) for key in _VALUE_KEYS & keys.keys()}
        if _ARGUMENTS_KEY in value and (is_peer or (label is not None and _METHOD_SEPARATORS.isdisjoint(str(label)))):
            # An array must remain an array, or the frame could no longer be decoded.
            args = value[_ARGUMENTS_KEY]
            redacted[_ARGUMENTS_KEY] = [REDACTED] * len(args) if isinstance(args, list) else REDACTED
        return redacted

    def _redact_bytes(self, value: bytes) -> bytes:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        cleaned = self.text_redactor.redact(text)
        return value if cleaned == text else cleaned.encode()

    def _is_secret_name(self, name: object) -> bool:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        return isinstance(text, str) and _NAME_LIKE_TEXT.fullmatch(text) is not None and self._names.is_secret(text)


def _redact_scalar(value: object) -> object:
    return value if value is None or isinstance(value, bool) else REDACTED


_default_redactor: Final = ValueRedactor(SecretNameMatcher())
redact_value: Final = _default_redactor.redact
"""Redact a value for display, by the default names."""
redact_text: Final = lru_cache(1024)(_default_redactor.text_redactor.redact)
"""Redact a text by the default names; recent results are cached."""
