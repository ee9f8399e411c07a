"""Texts that have to be of some form, which no type tells."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit


class Form(NamedTuple):
    """Beside a type: what a text must be, in words, and whether one is."""

    words: str
    fits: Callable[[str], bool]


def is_web_url(text: str) -> bool:
    """Whether a text says where something takes HTTP requests."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
