"""Secrets in values: under the keys of objects, behind names in lists, in texts."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fiveways.model.secret_names import SecretNames
from fiveways.model.secret_texts import STARS, SecretTexts

_LABEL: Final = re.compile(r"[\w.\-\[\]:/]{1,128}(?: [\w\-]{1,64})?")
"""A text that may be a name; a longer one is prose."""
_LABELS: Final = frozenset({"name", "key", "header", "field", "variable", "param", "parameter", "n", "k"})
_VALUES: Final = frozenset({"value", "values", "val", "v", "data", "content", "default"})
_ARGUMENTS: Final = "args"
_PATH: Final = frozenset(".:/")
"""Characters of a method's name, whose `args` describe it."""


class SecretValues:
    """Takes secrets out of values as JSON and CBOR have them."""

    def __init__(self, names: SecretNames, patterns: Sequence[str] = ()) -> None:
        self._names = names
        self.texts = SecretTexts(names, patterns, self.clean)

    def clean(self, value: object) -> object:
        """Return a value without secrets."""
        match value:
            case str():
                return self.texts.clean(value)
            case dict():
                return self._object(value)
            case list():
                return self._list(value)
            case bytes():
                return self._bytes(value)
        return value

    def sequence(self, items: list[object], method: int) -> list[object]:
        """Return a list without secrets, one item of which is the name of a method and tells nothing of the next."""
        rest = self.clean(items[method + 1 :])
        return [*self._pairs(items[: method + 1]), *(rest if isinstance(rest, list) else [])]

    def _list(self, items: list[object]) -> list[object]:
        if len(items) > 1 and self._is_label(items[0]):  # positional: a name, and its value
            return [items[0], *map(_starred, items[1:])]
        return self._pairs(items)

    def _pairs(self, items: list[object]) -> list[object]:
        """Return a list that may have names and values in turn, as headers of HTTP."""
        kept = [self.clean(each) for each in items]
        if len(items) % 2 == 0:
            for at in range(0, len(items), 2):
                if self._is_label(items[at]) and isinstance(items[at + 1], str | bytes):
                    kept[at + 1] = STARS
        return kept

    def _object(self, value: dict[str, object]) -> dict[object, object]:
        """Return an object without secrets, which may be one name and its value."""
        kept = {
            self.clean(key): STARS if self._names.hides(key, each) else self.clean(each) for key, each in value.items()
        }
        keys = {key.lower(): key for key in value if isinstance(key, str)}
        is_peer = value.get("note") == "peer"  # the name under which a peer of NQ may come back
        label = next((value[keys[each]] for each in _LABELS & keys.keys() if self._is_label(value[keys[each]])), None)
        if label is not None:
            kept |= {keys[each]: _starred(value[keys[each]]) for each in _VALUES & keys.keys()}
        if _ARGUMENTS in value and (is_peer or (label is not None and _PATH.isdisjoint(str(label)))):
            # An array stays one, or the frame could not be read any more.
            args = value[_ARGUMENTS]
            kept[_ARGUMENTS] = [STARS] * len(args) if isinstance(args, list) else STARS
        return kept

    def _bytes(self, value: bytes) -> bytes:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        cleaned = self.texts.clean(text)
        return value if cleaned == text else cleaned.encode()

    def _is_label(self, name: object) -> bool:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        return isinstance(text, str) and _LABEL.fullmatch(text) is not None and self._names.is_secret(text)


def _starred(value: object) -> object:
    return value if value is None or isinstance(value, bool) else STARS


_by_default: Final = SecretValues(SecretNames())
without_secrets: Final = _by_default.clean
"""Return a value without secrets, by the default names, for people to look at."""
text_without_secrets: Final = lru_cache(1024)(_by_default.texts.clean)
"""Return a text without secrets; the latest are remembered."""
