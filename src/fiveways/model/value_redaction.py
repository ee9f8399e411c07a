"""Secrets in values: under the keys of objects, behind names in lists, in texts."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fiveways.model.secret_names import SecretNameMatcher
from fiveways.model.text_redaction import REDACTED, TextRedactor

_NAME_LIKE_TEXT: Final = re.compile(r"[\w.\-\[\]:/]{1,128}(?: [\w\-]{1,64})?")
"""A text that may be a name; a longer one is prose."""
_NAME_KEYS: Final = frozenset({"name", "key", "header", "field", "variable", "param", "parameter", "n", "k"})
_VALUE_KEYS: Final = frozenset({"value", "values", "val", "v", "data", "content", "default"})
_ARGUMENTS_KEY: Final = "args"
_METHOD_SEPARATORS: Final = frozenset(".:/")
"""Characters of a method's name, whose `args` describe it."""


class ValueRedactor:
    """Takes secrets out of values as JSON and CBOR have them."""

    def __init__(self, names: SecretNameMatcher, patterns: Sequence[str] = ()) -> None:
        self._names = names
        self.text_redactor = TextRedactor(names, patterns, self.redact)

    def redact(self, value: object) -> object:
        """Return a value without secrets."""
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

    def redact_call_array(self, items: list[object], method: int) -> list[object]:
        """Return a list without secrets, one item of which is the name of a method and tells nothing of the next."""
        rest = self.redact(items[method + 1 :])
        return [*self._redact_pairs(items[: method + 1]), *(rest if isinstance(rest, list) else [])]

    def _redact_list(self, items: list[object]) -> list[object]:
        if len(items) > 1 and self._is_secret_name(items[0]):  # positional: a name, and its value
            return [items[0], *map(_redact_scalar, items[1:])]
        return self._redact_pairs(items)

    def _redact_pairs(self, items: list[object]) -> list[object]:
        """Return a list that may have names and values in turn, as headers of HTTP."""
        kept = [self.redact(each) for each in items]
        if len(items) % 2 == 0:
            for at in range(0, len(items), 2):
                if self._is_secret_name(items[at]) and isinstance(items[at + 1], str | bytes):
                    kept[at + 1] = REDACTED
        return kept

    def _redact_object(self, value: dict[str, object]) -> dict[object, object]:
        """Return an object without secrets, which may be one name and its value."""
        kept = {
            self.redact(key): REDACTED if self._names.is_secret_value(key, each) else self.redact(each)
            for key, each in value.items()
        }
        keys = {key.lower(): key for key in value if isinstance(key, str)}
        is_peer = value.get("note") == "peer"  # the name under which a peer of NQ may come back
        label = next(
            (value[keys[each]] for each in _NAME_KEYS & keys.keys() if self._is_secret_name(value[keys[each]])), None
        )
        if label is not None:
            kept |= {keys[each]: _redact_scalar(value[keys[each]]) for each in _VALUE_KEYS & keys.keys()}
        if _ARGUMENTS_KEY in value and (is_peer or (label is not None and _METHOD_SEPARATORS.isdisjoint(str(label)))):
            # An array stays one, or the frame could not be read any more.
            args = value[_ARGUMENTS_KEY]
            kept[_ARGUMENTS_KEY] = [REDACTED] * len(args) if isinstance(args, list) else REDACTED
        return kept

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
"""Return a value without secrets, by the default names, for people to look at."""
redact_text: Final = lru_cache(1024)(_default_redactor.text_redactor.redact)
"""Return a text without secrets; the latest are remembered."""
