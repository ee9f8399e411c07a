"""From what was written to what a setting's type asks for, or to a sentence that says what is expected."""

import math
import types
from collections.abc import Mapping
from typing import Annotated, Literal, get_args, get_origin

import msgspec

from fiveways.settings.sections import Secret
from fiveways.settings.sources import SettingLocation, read_value
from fiveways.settings.text_formats import TextFormat

_MAX_SHOWN = 60
"""A wrong value is shown up to here."""


def convert(given: object, kind: object, place: SettingLocation, key: str) -> object:
    """Return a value as its setting has it.

    Raises:
        SettingsError: it is of another type, or out of bounds.
    """
    if kind is Secret:
        if isinstance(given, str):
            return Secret(given)
        raise place.error(f"{key} must be a text", key)
    try:
        value: object = msgspec.convert(given, _msgspec_type(kind), strict=True)
    except msgspec.ValidationError:
        raise _invalid_value_error(given, kind, place, key) from None
    if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):
        raise _invalid_value_error(given, kind, place, key)
    form = _text_format(kind)
    items = value if isinstance(value, tuple) else (value,)
    if form is not None and not all(isinstance(item, str) and form.is_valid(item) for item in items):
        raise _invalid_value_error(given, kind, place, key)
    return types.MappingProxyType(value) if isinstance(value, dict) else value


def parse_text(text: str, kind: object, place: SettingLocation, key: str) -> object:
    """Return what a variable or a flag says: a text as it is, texts between commas, or any value as TOML has it."""
    origin = get_origin(_without_annotation(kind))
    if _without_annotation(kind) in (str, Secret) or origin is Literal:
        return text
    if origin is tuple and get_args(kind)[0] is str and not text.lstrip().startswith("["):
        return [each.strip() for each in text.split(",") if each.strip()]
    try:
        return read_value(text)
    except ValueError:
        raise _invalid_value_error(text, kind, place, key) from None


def _invalid_value_error(given: object, kind: object, place: SettingLocation, key: str) -> Exception:
    # A list or a table may hold secrets, and so may a URL.
    shown = f", not {_show_value(given)}" if isinstance(given, str | int | float) and _may_show_value(kind) else ""
    return place.error(f"{key} must be {describe_type(kind)}{shown}", key)


def _show_value(given: object) -> str:
    text = str(given).lower() if isinstance(given, bool) else repr(given)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _may_show_value(kind: object) -> bool:
    return _text_format(kind) is None and (
        _without_annotation(kind) in (str, int, float, bool) or get_origin(_without_annotation(kind)) is Literal
    )


def _without_annotation(kind: object) -> object:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _msgspec_type(kind: object) -> object:
    """Return a type that msgspec makes a new value of."""
    return dict[get_args(kind)] if get_origin(kind) is Mapping else kind  # type: ignore[misc]  # known when it runs


def describe_type(kind: object) -> str:
    """Return what a setting of this type must be, in words."""
    bare = _without_annotation(kind)
    arguments = get_args(bare)
    form = _text_format(kind)
    if form is not None:
        return form.description
    match get_origin(bare):
        case origin if origin is Literal:
            return f"one of {', '.join(map(str, arguments))}"
        case origin if origin is tuple:
            return "a list of texts" if arguments[0] is str else "a list of tables"
        case origin if origin is Mapping or origin is get_origin(Mapping[str, str]):
            return f"a table of texts, each {describe_type(arguments[1])}"
        case _:
            pass
    if bare in (str, Secret):
        return "a text that is not empty" if _bounds(kind).min_length else "a text"
    if bare is bool:
        return "true or false"
    return _describe_number(bare, _bounds(kind))


def _describe_number(bare: object, bounds: msgspec.Meta) -> str:
    noun = "a whole number" if bare is int else "a number"
    if bounds.gt is not None:
        return f"{noun} above {bounds.gt}"
    low = bounds.ge if bounds.ge is not None else 0
    return f"{noun} from {low} to {bounds.le}" if bounds.le is not None else f"{noun}, {low} or more"


def _bounds(kind: object) -> msgspec.Meta:
    found = (
        [each for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)]
        if kind is not _without_annotation(kind)
        else []
    )
    return found[0] if found else msgspec.Meta()


def _text_format(kind: object) -> TextFormat | None:
    return next((each for each in get_args(kind)[1:] if isinstance(each, TextFormat)), None)
