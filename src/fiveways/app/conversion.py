"""Conversion of decoded values to the program's types, with the same rules as arguments of methods."""

from typing import TypeVar

import msgspec

from fiveways.errors import BadValue

T = TypeVar("T")


def decode(value: object, kind: type[T]) -> T:
    """Return a value as a type: a dataclass, Struct, TypedDict, NamedTuple, Enum, datetime, pydantic model and so on.

    Raises:
        BadValue: the value does not fit.
        TypeError: no value can be converted to this type.
    """
    try:
        # All protocols deliver bytes as bytes; JSON has only string keys.
        return msgspec.convert(value, kind, builtin_types=(bytes,), str_keys=True, dec_hook=to_model)
    except msgspec.ValidationError as exc:
        raise BadValue(f"the value is not of type {getattr(kind, '__name__', kind)}: {exc}") from exc


def is_model(kind: object) -> bool:
    """Return whether a type is a pydantic model; pydantic need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def to_model(kind: type, value: object) -> object:
    """Convert a value to a pydantic model (`dec_hook` of msgspec); ValueError if it does not fit."""
    if not is_model(kind):
        raise TypeError(f"a value cannot be converted to {kind.__name__}")
    try:
        return kind.model_validate(value)  # type: ignore[attr-defined]  # see `is_model`
    except ValueError as exc:  # pydantic's error is a ValueError with several lines
        raise ValueError(" ".join(str(exc).split())) from exc


def from_model(value: object) -> object:
    """Return a pydantic model as builtin types (`enc_hook` of msgspec); TypeError for any other object."""
    if not is_model(type(value)):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump()  # type: ignore[attr-defined]  # see `is_model`
