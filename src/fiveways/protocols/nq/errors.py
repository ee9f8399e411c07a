"""ERR objects: what happened to a message, as a code for programs and a text for people (NQ-08, NQ-09)."""

from typing import Final

import msgspec

from fiveways.errors import ErrorText, Malformed, fill_placeholders
from fiveways.wire import strict_json

ERROR_TYPES: Final = frozenset({"", "local", "remote", "app", "tmp", "warn", "note", "debug", "sys"})
"""The empty one stands for an error object that names no type, as a cancellation may (NQ-a02)."""

_encode: Final = msgspec.json.Encoder().encode


class ErrorObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One ERR object. `fatal` means that the message it is about is dead."""

    type: str
    fatal: bool
    err: str = ""
    warn: str = ""
    note: str = ""
    text: str = ""
    args: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """What `{0}` stands for: the first code there is."""
        return self.err or self.warn or self.note

    def format(self, text: str | None = None, args: tuple[str, ...] | None = None) -> str:
        """Fill the placeholders of the text, or of a translation of it; what is missing is empty, odd braces stay."""
        codes = {"err": self.err, "warn": self.warn, "note": self.note}
        return fill_placeholders(self.text if text is None else text, codes, self.args if args is None else args)

    @property
    def wording(self) -> ErrorText:
        """How it is said, whatever it means."""
        return ErrorText(self.text, self.args, self.err, self.warn, self.note)

    def as_received(self) -> "ErrorObject":
        """Return it as the receiver sees it: what the sender's own library made is `remote` here (NQ-08)."""
        return msgspec.structs.replace(self, type="remote") if self.type == "local" else self


def escape_braces(text: str, args: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """Return text and args that `format` turns into exactly this text, though NQ has no way to escape a brace."""
    return (text, args) if "{" not in text else (f"{{{len(args) + 1}}}", (*args, text))


def write(error: ErrorObject) -> bytes:
    """Return the object; `type` and `fatal` are always said, the rest where there is something to say."""
    return _encode(error)


def read(raw: bytes) -> ErrorObject:
    """Return what the object says; keys that are not in the list are tolerated. Malformed if it cannot be used."""
    value = strict_json.parse(raw)
    if not isinstance(value, dict):
        raise Malformed("e is no object")
    kind, fatal, args = value.get("type", ""), value.get("fatal", False), value.get("args", [])
    if not isinstance(kind, str) or kind not in ERROR_TYPES:
        raise Malformed("e.type is none of the types there are")
    if not isinstance(fatal, bool):
        raise Malformed("e.fatal is neither true nor false")
    if not isinstance(args, list):
        raise Malformed("e.args is no array")
    err, warn, note, text = (_text(value.get(key, ""), key) for key in ("err", "warn", "note", "text"))
    return ErrorObject(kind, fatal, err, warn, note, text, tuple(_text(each, "args") for each in args))


def _text(value: object, key: str) -> str:
    """Return a text; numbers are tolerated, as the document tolerates them for identifiers."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return strict_json.write(value).decode()
    raise Malformed(f"e.{key} holds what is no text")
