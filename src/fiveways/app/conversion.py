"""Values from the wire as types of the program: checked and converted, as arguments of methods are."""

from typing import TypeVar

import msgspec

from fiveways.errors import BadValue

T = TypeVar("T")


def decode(value: object, kind: type[T]) -> T:
    """Return a value as `kind`: a dataclass, Struct, TypedDict, NamedTuple, Enum, datetime, pydantic model and so on.

    Raises:
        BadValue: it does not fit.
        TypeError: no value can be converted to such a type.
    """
    try:
        # Bytes arrive as bytes in every protocol, and JSON has no other keys than strings.
        return msgspec.convert(value, kind, builtin_types=(bytes,), str_keys=True, dec_hook=to_model)
    except msgspec.ValidationError as exc:
        raise BadValue(f"the value is no {getattr(kind, '__name__', kind)}: {exc}") from exc


def is_model(kind: object) -> bool:
    """Return whether a type is a pydantic model; pydantic itself need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def to_model(kind: type, value: object) -> object:
    """Convert a value to a pydantic model: the `dec_hook` of msgspec; ValueError if it does not fit."""
    if not is_model(kind):
        raise TypeError(f"a {kind.__name__} cannot be made from a value")
    try:
        return kind.model_validate(value)  # type: ignore[attr-defined]  # see `is_model`
    except ValueError as exc:  # pydantic's own error is one, of several lines
        raise ValueError(" ".join(str(exc).split())) from exc


def from_model(value: object) -> object:
    """Return a pydantic model as plain values: the `enc_hook` of msgspec; TypeError for any other object."""
    if not is_model(type(value)):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump()  # type: ignore[attr-defined]  # see `is_model`
