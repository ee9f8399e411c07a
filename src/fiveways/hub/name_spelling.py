"""Spelling of method names in the styles of the protocols, whole or below a route."""

from functools import lru_cache
from typing import Final

from fiveways.errors import Unrepresentable
from fiveways.model.names import BadName, NameStyle, fold, spell, spell_prefix

_MAX_CACHED: Final = 4096


def strip_prefix(prefix: str, name: str) -> str:
    """Return the part of a folded name below a folded prefix; empty if they are equal."""
    return name[len(prefix) + 1 :]


def spell_name(folded: str, style: NameStyle) -> str:
    """Return a folded name in this style; empty if the style cannot write it."""
    try:
        return spell(folded, style)
    except Unrepresentable:
        return ""


def spell_below_route(folded: str, style: NameStyle) -> str:
    """Return a name below a route in this style; empty if the style cannot write it."""
    # In MQTT a whole name begins with a topic, and the route already contains it.
    return folded.replace(".", "/") if style.topic_and_type else spell_name(folded, style)


def spell_route(folded: str, style: NameStyle) -> str:
    """Return a route in this style, with the separator that makes it one; empty if the style cannot write it."""
    try:
        return spell_prefix(folded, style)
    except Unrepresentable:
        return ""


@lru_cache(_MAX_CACHED)
def respell(spelling: str, prefix: str, name: str, style: NameStyle, target_style: NameStyle) -> str:
    """Return the part of a spelling below a prefix, converted to the target style; empty if that is impossible."""
    inner = cut_spelling(spelling, prefix, name, style)
    if style is target_style or not inner:
        return inner
    for separator in style.separators:
        inner = inner.replace(separator, "/" if target_style.topic_and_type else target_style.joiner)
    if target_style.alphabet is not None and target_style.alphabet.fullmatch(inner) is None:
        return ""
    return inner if _is_folded_to(strip_prefix(prefix, name), inner, target_style) else ""


def cut_spelling(spelling: str, prefix: str, name: str, style: NameStyle) -> str:
    """Return the part of a spelling that stands for `name` below `prefix`; empty if it cannot be determined."""
    levels = prefix.count(".") + 1
    text = spelling.removeprefix("/") if style.topic_and_type else spelling
    ends = [index for index, character in enumerate(text) if character in style.separators]
    if len(ends) < levels:
        return ""
    inner = text[ends[levels - 1] + 1 :]
    return inner if _is_folded_to(strip_prefix(prefix, name), inner, style) else ""


def _is_folded_to(folded: str, spelling: str, style: NameStyle) -> bool:
    try:
        return fold(spelling, style) == folded
    except BadName:
        return False
