"""HTML and SVG that is safe by its type: whatever is not `Markup` is escaped when it goes into a tag.

The page is well-formed XML too, so that a test can read all of it back.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

MAX_NAME_LENGTH: Final = 64
"""Characters of a name that are shown; a longer one loses its middle."""
MAX_TITLE_LENGTH: Final = 240
"""Characters of it that are told to whoever rests the pointer on it."""
_UNBREAKABLE_LENGTH: Final = 24
_VOID_ELEMENTS: Final = frozenset({"meta", "link", "br", "path", "line", "rect", "circle"})
_NO_VALUE: Final = "\N{EN DASH}"


class Markup(str):
    """Text that may go into the page as it is."""

    __slots__ = ()


Content = str | int | float | None


def escape_invisible(text: str) -> str:
    """Return a text in which every character can be seen; what turns the writing, or rings the bell, is its code."""
    return text if text.isprintable() else "".join(each if _is_visible(each) else repr(each)[1:-1] for each in text)


def _is_visible(character: str) -> bool:
    # The blank that holds a number and its unit together is our own.
    return character.isprintable() or character == "\N{NO-BREAK SPACE}"


def shorten(text: str, most: int = MAX_NAME_LENGTH) -> str:
    """Return a text of `most` characters at the most; names tell the most at both ends."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def to_markup(value: Content) -> Markup:
    """Return a value as text that cannot be taken for markup."""
    return value if isinstance(value, Markup) else Markup(escape(escape_invisible("" if value is None else str(value))))


def join(parts: Iterable[Content]) -> Markup:
    """Return the parts, one behind the other."""
    return Markup("".join(to_markup(part) for part in parts))


def tag(name: str, /, *content: Content, **attributes: Content) -> Markup:
    """Return an element. `class_` is class, `data_v` is data-v; an attribute that is None or False is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_markup(key.rstrip("_") if value is True else value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{given}/>" if name in _VOID_ELEMENTS else f"<{name}{given}>{join(content)}</{name}>")


def name_markup(value: str | None, *, none: str = _NO_VALUE, most: int = MAX_NAME_LENGTH) -> Markup:
    """Return a name that somebody else chose: cut to a length that can be read, whole in the title."""
    if value is None:
        return tag("span", none, class_="none")
    if not value:
        return tag("span", "(empty)", class_="none")
    seen = escape_invisible(value)
    if len(seen) <= most:
        return tag("span", seen, class_="name" if len(seen) > _UNBREAKABLE_LENGTH else "word")
    return tag("span", shorten(seen, most), class_="name", title=shorten(seen, MAX_TITLE_LENGTH))
