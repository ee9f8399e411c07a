"""Bidirectional control characters, which are forbidden in names because they change how the text is displayed."""

import re
from typing import Final

BIDI_CONTROLS: Final = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069"
"""Content of a regex character class: marks, embeddings, overrides and isolates of the Unicode Bidirectional Algorithm.

With them, a name can be displayed as another one.
"""
_BIDI_CONTROL: Final = re.compile(f"[{BIDI_CONTROLS}]")


def find_bidi_control(text: str) -> str:
    """Return the first bidirectional control character of a text, or an empty string."""
    match = _BIDI_CONTROL.search(text)
    return "" if match is None else match[0]
