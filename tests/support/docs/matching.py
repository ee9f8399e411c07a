"""Comparison of expected output of a page with actual output.

`...` stands for any text, and alone on a line for any number of lines. A name in angle brackets, such as `<PEER>`,
stands for the text of its first occurrence everywhere.
"""

import re
from collections.abc import Mapping

_PARTS = re.compile(
    r"(?m)(?P<rest>\n[ ]*\.\.\.\Z)|(?P<lines>^[ ]*\.\.\.$\n?)|(?P<some>\.\.\.)|<(?P<name>[A-Z][A-Z0-9_]*)>"
)
_ANYTHING = {"rest": r"(?:\n[\s\S]*)?", "lines": r"[\s\S]*?", "some": r"[^\n]*?"}


def pattern(shown: str, known: Mapping[str, str]) -> str:
    """Return the regular expression of an expected output."""
    parts: list[str] = []
    seen: set[str] = set()
    at = 0
    for part in _PARTS.finditer(shown):
        parts.append(re.escape(shown[at : part.start()]))
        at = part.end()
        name = part["name"]
        if name is None:
            parts.append(_ANYTHING[part.lastgroup or ""])
        elif name in known:
            parts.append(re.escape(known[name]))
        else:
            parts.append(f"(?P={name})" if name in seen else rf"(?P<{name}>[^\s\"':,]+?)")
            seen.add(name)
    return "".join([*parts, re.escape(shown[at:])])


def matches(shown: str, actual: str, known: dict[str, str], *, whole: bool = True) -> bool:
    """Return whether the outputs match; with `whole` false, whether the beginning matches.

    Placeholders that are matched are added to `known`.
    """
    expression = pattern(strip_blanks(shown), known)
    match = (re.fullmatch if whole else re.match)(expression, strip_blanks(actual))
    if match is None:
        return False
    known.update(match.groupdict())
    return True


def fill(text: str, known: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced."""
    return _PARTS.sub(lambda match: known.get(match["name"] or "", match[0]), text)


def strip_blanks(text: str) -> str:
    """Remove blanks at the ends of lines, and empty lines at the end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()
