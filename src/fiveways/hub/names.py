"""How names are written to those who are told of them, and what of a name lies below a route."""

from functools import lru_cache
from typing import Final

from fiveways.errors import Unrepresentable
from fiveways.model.names import BadName, NameStyle, fold, spell, spell_prefix

_CACHED: Final = 4096


def below(prefix: str, name: str) -> str:
    """Return what of a folded name is below a folded prefix; nothing, if they are the same."""
    return name[len(prefix) + 1 :]


def spelled(folded: str, style: NameStyle) -> str:
    """Return a folded name in this style; empty if it cannot be written so."""
    try:
        return spell(folded, style)
    except Unrepresentable:
        return ""


def spelled_below(folded: str, style: NameStyle) -> str:
    """Return a name below a route in this style; empty if it cannot be written so."""
    # On MQTT a whole name begins with a topic, which the route has taken already.
    return folded.replace(".", "/") if style.topic_and_type else spelled(folded, style)


def spelled_route(folded: str, style: NameStyle) -> str:
    """Return a route in this style, with the separator that makes it one; empty if it cannot be written so."""
    try:
        return spell_prefix(folded, style)
    except Unrepresentable:
        return ""


@lru_cache(_CACHED)
def cut(spelling: str, prefix: str, name: str, style: NameStyle) -> str:
    """Return how `name`, without its prefix, stands in the spelling of the whole; empty if that cannot be told."""
    levels = prefix.count(".") + 1
    text = spelling.removeprefix("/") if style.topic_and_type else spelling
    ends = [index for index, character in enumerate(text) if character in style.separators]
    if len(ends) < levels:
        return ""
    rest = text[ends[levels - 1] + 1 :]
    try:
        return rest if fold(rest, style) == below(prefix, name) else ""
    except BadName:
        return ""
