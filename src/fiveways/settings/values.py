"""Conversion and validation of setting values."""

import math
import types
from collections.abc import Mapping
from typing import Annotated, Literal, get_args, get_origin

import msgspec

from fiveways.settings.sections import Secret
from fiveways.settings.sources import SettingLocation, read_value
from fiveways.settings.text_formats import TextFormat

_MAX_SHOWN = 60
"""Maximum length of an invalid value in an error text."""


def convert(raw_value: object, kind: object, location: SettingLocation, key: str) -> object:
    """Convert a value to the type of its setting.

    Raises:
        SettingsError: The value has another type, is out of range, or has an invalid format.
    """
    if kind is Secret:
        if isinstance(raw_value, str):
            return Secret(raw_value)
        raise location.error(f"{key} must be a text", key)
    try:
        value: object = msgspec.convert(raw_value, _msgspec_type(kind), strict=True)
    except msgspec.ValidationError:
        raise _invalid_value_error(raw_value, kind, location, key) from None
    if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):
        raise _invalid_value_error(raw_value, kind, location, key)
    text_format = _text_format(kind)
    items = value if isinstance(value, tuple) else (value,)
    if text_format is not None and not all(isinstance(item, str) and text_format.is_valid(item) for item in items):
        raise _invalid_value_error(raw_value, kind, location, key)
    return types.MappingProxyType(value) if isinstance(value, dict) else value


def parse_text(text: str, kind: object, location: SettingLocation, key: str) -> object:
    """Return the value of a variable or flag: a text unchanged, comma-separated texts, or a TOML value."""
    origin = get_origin(_without_annotation(kind))
    if _without_annotation(kind) in (str, Secret) or origin is Literal:
        return text
    if origin is tuple and get_args(kind)[0] is str and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return read_value(text)
    except ValueError:
        raise _invalid_value_error(text, kind, location, key) from None


def _invalid_value_error(raw_value: object, kind: object, location: SettingLocation, key: str) -> Exception:
    # A list, a table or a URL may contain credentials.
    shown = (
        f", not {_show_value(raw_value)}" if isinstance(raw_value, str | int | float) and _may_show_value(kind) else ""
    )
    return location.error(f"{key} must be {describe_type(kind)}{shown}", key)


def _show_value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _may_show_value(kind: object) -> bool:
    return _text_format(kind) is None and (
        _without_annotation(kind) in (str, int, float, bool) or get_origin(_without_annotation(kind)) is Literal
    )


def _without_annotation(kind: object) -> object:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _msgspec_type(kind: object) -> object:
    """Return a type for which msgspec creates a new value."""
    return dict[get_args(kind)] if get_origin(kind) is Mapping else kind  # type: ignore[misc]  # known when it runs


def describe_type(kind: object) -> str:
    """Return a description of the valid values of a type."""
    plain_type = _without_annotation(kind)
    arguments = get_args(plain_type)
    text_format = _text_format(kind)
    if text_format is not None:
        return text_format.description
    match get_origin(plain_type):
        case origin if origin is Literal:
            return f"one of {', '.join(map(str, arguments))}"
        case origin if origin is tuple:
            return "a list of texts" if arguments[0] is str else "a list of tables"
        case origin if origin is Mapping or origin is get_origin(Mapping[str, str]):
            return f"a table of texts, each {describe_type(arguments[1])}"
        case _:
            pass
    if plain_type in (str, Secret):
        return "a text that is not empty" if _bounds(kind).min_length else "a text"
    if plain_type is bool:
        return "true or false"
    return _describe_number(plain_type, _bounds(kind))


def _describe_number(plain_type: object, bounds: msgspec.Meta) -> str:
    noun = "a whole number" if plain_type is int else "a number"
    if bounds.gt is not None:
        return f"{noun} above {bounds.gt}"
    low = bounds.ge if bounds.ge is not None else 0
    return f"{noun} from {low} to {bounds.le}" if bounds.le is not None else f"{noun}, {low} or more"


def _bounds(kind: object) -> msgspec.Meta:
    bounds = (
        [item for item in get_args(kind)[1:] if isinstance(item, msgspec.Meta)]
        if kind is not _without_annotation(kind)
        else []
    )
    return bounds[0] if bounds else msgspec.Meta()


def _text_format(kind: object) -> TextFormat | None:
    return next((item for item in get_args(kind)[1:] if isinstance(item, TextFormat)), None)
