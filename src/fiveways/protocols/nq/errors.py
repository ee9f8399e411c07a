"""ERR objects: an error code for programs and a text for people (NQ-08, NQ-09)."""

from typing import Final, Self

import msgspec

from fiveways.errors import ErrorText, Malformed, fill_placeholders
from fiveways.wire import strict_json

ERROR_TYPES: Final = frozenset({"", "local", "remote", "app", "tmp", "warn", "note", "debug", "sys"})
"""The empty type stands for an error object without a type, such as a cancellation (NQ-a02)."""

_encode: Final = msgspec.json.Encoder().encode


class ErrorObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An ERR object. `fatal` means that the message with this error has failed for good."""

    type: str
    fatal: bool
    err: str = ""
    warn: str = ""
    note: str = ""
    text: str = ""
    args: tuple[str, ...] = ()

    @classmethod
    def local(cls, code: str, text: str = "", args: tuple[str, ...] = ()) -> Self:
        """Return a fatal error of NQ itself, not of the application."""
        return cls("local", True, code, text=text, args=args)

    @classmethod
    def system(cls, note: str, args: tuple[str, ...] = ()) -> Self:
        """Return a note of type `sys`, which is not fatal."""
        return cls("sys", False, note=note, args=args)

    @property
    def code(self) -> str:
        """The value for the placeholder `{0}`: the first code that is present."""
        return self.err or self.warn or self.note

    def format(self, text: str | None = None, args: tuple[str, ...] | None = None) -> str:
        """Fill the placeholders of the text or its translation. Missing values are empty; unmatched braces stay."""
        codes = {"err": self.err, "warn": self.warn, "note": self.note}
        return fill_placeholders(self.text if text is None else text, codes, self.args if args is None else args)

    @property
    def wording(self) -> ErrorText:
        """The texts and codes without the type."""
        return ErrorText(self.text, self.args, self.err, self.warn, self.note)

    def as_received(self) -> "ErrorObject":
        """Return the error as its receiver sees it: type `local` of the sender's library becomes `remote` (NQ-08)."""
        return msgspec.structs.replace(self, type="remote") if self.type == "local" else self


def escape_braces(text: str, args: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """Return text and args that `format` turns into exactly this text, because NQ cannot escape a brace."""
    return (text, args) if "{" not in text else (f"{{{len(args) + 1}}}", (*args, text))


def write(error: ErrorObject) -> bytes:
    """Return the JSON object; `type` and `fatal` are always present, other keys unless they are empty."""
    return _encode(error)


def read(raw: bytes) -> ErrorObject:
    """Parse the object; unknown keys are ignored. Malformed if it is invalid."""
    value = strict_json.parse(raw)
    if not isinstance(value, dict):
        raise Malformed("e is not an object")
    kind, fatal, args = value.get("type", ""), value.get("fatal", False), value.get("args", [])
    if not isinstance(kind, str) or kind not in ERROR_TYPES:
        raise Malformed("e.type is unknown")
    if not isinstance(fatal, bool):
        raise Malformed("e.fatal is neither true nor false")
    if not isinstance(args, list):
        raise Malformed("e.args is not an array")
    err, warn, note, text = (_text(value.get(key, ""), key) for key in ("err", "warn", "note", "text"))
    return ErrorObject(kind, fatal, err, warn, note, text, tuple(_text(arg, "args") for arg in args))


def _text(value: object, key: str) -> str:
    """Return a text; numbers are accepted, as the spec accepts them for identifiers."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return strict_json.write(value).decode()
    raise Malformed(f"e.{key} is not a string")
