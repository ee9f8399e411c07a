"""Texts that have to be of some form, which no type tells."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit


class TextFormat(NamedTuple):
    """Beside a type: what a text, or each text of a list, must be, in words, and whether one is."""

    description: str
    is_valid: Callable[[str], bool]


def is_web_url(text: str) -> bool:
    """Whether a text says where something takes HTTP requests."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0


def is_useful_regex(text: str) -> bool:
    """Whether a text is a regular expression that matches something, and not everything."""
    try:
        return re.compile(text).fullmatch("") is None
    except re.error:
        return False
