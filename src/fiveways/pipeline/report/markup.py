"""HTML and SVG that is safe by type: content that is not `Markup` is escaped when it is put into a tag.

The page is also well-formed XML, which tests parse.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

MAX_NAME_LENGTH: Final = 64
"""Maximum characters of a displayed name; longer names lose their middle."""
MAX_TITLE_LENGTH: Final = 240
"""Maximum characters of a name in a tooltip."""
_UNBREAKABLE_LENGTH: Final = 24
_VOID_ELEMENTS: Final = frozenset({"meta", "link", "br", "path", "line", "rect", "circle"})
_NO_VALUE: Final = "\N{EN DASH}"


class Markup(str):
    """Text that is inserted into the page without escaping."""

    __slots__ = ()


Content = str | int | float | None


def escape_invisible(text: str) -> str:
    """Replace invisible characters, such as control characters and changes of direction, by their escape codes."""
    if text.isprintable():
        return text
    return "".join(character if _is_visible(character) else repr(character)[1:-1] for character in text)


def _is_visible(character: str) -> bool:
    # The page itself uses no-break spaces between numbers and units.
    return character.isprintable() or character == "\N{NO-BREAK SPACE}"


def shorten(text: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Shorten a text to `max_length` characters by cutting its middle."""
    if len(text) <= max_length:
        return text
    tail = max_length // 3
    return f"{text[: max_length - tail - 1]}…{text[-tail:]}"


def to_markup(value: Content) -> Markup:
    """Return a value as escaped text."""
    return value if isinstance(value, Markup) else Markup(escape(escape_invisible("" if value is None else str(value))))


def join(parts: Iterable[Content]) -> Markup:
    """Concatenate parts."""
    return Markup("".join(to_markup(part) for part in parts))


def tag(name: str, /, *content: Content, **attributes: Content) -> Markup:
    """Return an element. `class_` is class, `data_v` is data-v; an attribute that is None or False is left out."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_markup(key.rstrip("_") if value is True else value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID_ELEMENTS:
        return Markup(f"<{name}{attribute_text}/>")
    return Markup(f"<{name}{attribute_text}>{join(content)}</{name}>")


def name_markup(value: str | None, *, none: str = _NO_VALUE, max_length: int = MAX_NAME_LENGTH) -> Markup:
    """Return a name from the data, shortened to a readable length; the tooltip has more of it."""
    if value is None:
        return tag("span", none, class_="none")
    if not value:
        return tag("span", "(empty)", class_="none")
    visible = escape_invisible(value)
    if len(visible) <= max_length:
        return tag("span", visible, class_="name" if len(visible) > _UNBREAKABLE_LENGTH else "word")
    return tag("span", shorten(visible, max_length), class_="name", title=shorten(visible, MAX_TITLE_LENGTH))
