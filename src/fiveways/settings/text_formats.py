"""Formats of text settings that their types do not express."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit


class TextFormat(NamedTuple):
    """Annotation of a type: description and check of a text, or of each text of a list."""

    description: str
    is_valid: Callable[[str], bool]


def is_web_url(text: str) -> bool:
    """Return whether a text is a valid HTTP URL."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    has_no_spaces = text.isprintable() and " " not in text
    return has_no_spaces and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0


def is_useful_regex(text: str) -> bool:
    """Return whether a text is a valid regular expression that does not match the empty text."""
    try:
        return re.compile(text).fullmatch("") is None
    except re.error:
        return False
