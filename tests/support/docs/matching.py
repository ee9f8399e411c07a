"""What a page shows, compared with what came.

`...` stands for anything, alone on a line for any number of lines. A name in angle brackets, `<PEER>`, is whatever it
was when it was seen first, and the same from then on.
"""

import re
from collections.abc import Mapping

_PARTS = re.compile(
    r"(?m)(?P<rest>\n[ ]*\.\.\.\Z)|(?P<lines>^[ ]*\.\.\.$\n?)|(?P<some>\.\.\.)|<(?P<name>[A-Z][A-Z0-9_]*)>"
)
_ANYTHING = {"rest": r"(?:\n[\s\S]*)?", "lines": r"[\s\S]*?", "some": r"[^\n]*?"}


def pattern(shown: str, known: Mapping[str, str]) -> str:
    """Return the expression that matches what is shown."""
    made: list[str] = []
    named: set[str] = set()
    at = 0
    for part in _PARTS.finditer(shown):
        made.append(re.escape(shown[at : part.start()]))
        at = part.end()
        name = part["name"]
        if name is None:
            made.append(_ANYTHING[part.lastgroup or ""])
        elif name in known:
            made.append(re.escape(known[name]))
        else:
            made.append(f"(?P={name})" if name in named else rf"(?P<{name}>[^\s\"':,]+?)")
            named.add(name)
    return "".join([*made, re.escape(shown[at:])])


def matched(shown: str, came: str, known: dict[str, str], *, whole: bool = True) -> bool:
    """Say whether this is what came, or with `whole` false how it began; what names stand for is added to `known`."""
    asked = pattern(tidy(shown), known)
    found = (re.fullmatch if whole else re.match)(asked, tidy(came))
    if found is None:
        return False
    known.update(found.groupdict())
    return True


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with what its names stand for."""
    return _PARTS.sub(lambda found: known.get(found["name"] or "", found[0]), text)


def tidy(text: str) -> str:
    """Blanks at the ends of lines, and empty lines at the end, are not seen."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()
