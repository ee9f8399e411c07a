"""Characters that no name may have, because they change how the text around them is displayed."""

import re
from typing import Final

DIRECTION: Final = "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069"
"""For a character class: marks, embeddings, overrides and isolates of the Unicode Bidirectional Algorithm.

With them, a name can be displayed as another one.
"""
_DIRECTION: Final = re.compile(f"[{DIRECTION}]")


def direction_in(text: str) -> str:
    """Return the first bidirectional control character of a text; empty if it has none."""
    found = _DIRECTION.search(text)
    return "" if found is None else found[0]
