"""What a page shows, compared with what came.

`...` stands for anything, alone on a line for any number of lines. A name in angle brackets, `<PEER>`, is whatever it
was when it was seen first, and the same from then on.
"""

import re
from collections.abc import Mapping

_PARTS = re.compile(r"(?m)(^[ ]*\.\.\.$\n?|\.\.\.|<[A-Z][A-Z0-9_]*>)")
_NAMED = re.compile(r"<([A-Z][A-Z0-9_]*)>")


def pattern(shown: str, known: Mapping[str, str]) -> str:
    """Return the expression that matches what is shown."""
    made: list[str] = []
    named: set[str] = set()
    for part in _PARTS.split(shown):
        name = _NAMED.fullmatch(part)
        if name is None:
            made.append(_plain(part))
        elif name[1] in known:
            made.append(re.escape(known[name[1]]))
        elif name[1] in named:
            made.append(f"(?P={name[1]})")
        else:
            named.add(name[1])
            made.append(rf"(?P<{name[1]}>[^\s\"':,]+?)")
    return "".join(made)


def _plain(part: str) -> str:
    if part.strip() != "...":
        return re.escape(part)
    return r"[^\n]*?" if part == "..." else r"(?:[^\n]*\n?)*?"


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
    return _NAMED.sub(lambda found: known.get(found[1], found[0]), text)


def tidy(text: str) -> str:
    """Blanks at the ends of lines, and empty lines at the end, are not seen."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()
