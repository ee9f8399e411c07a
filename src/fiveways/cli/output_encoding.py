"""Output on terminals with a limited character set, such as ASCII or Latin-1."""

import codecs
import io
import sys
from typing import Final, TextIO

_ERROR_HANDLER: Final = "fiveways.ascii"
_ASCII_REPLACEMENTS: Final = {"→": ">", "←": "<", "…": "~", "·": ".", "●": "o", "✓": "v", "│": "|", "─": "-"}
"""ASCII characters of the same width for symbols in our own output."""


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    replacements = (
        _ASCII_REPLACEMENTS.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in text
    )
    return "".join(replacements), error.end


def tolerate_any_terminal() -> None:
    """Replace characters that the terminal's encoding lacks with ASCII, instead of failing."""
    codecs.register_error(_ERROR_HANDLER, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERROR_HANDLER)


def is_unicode(stream: TextIO) -> bool:
    """Return whether the encoding of a stream has all characters of Unicode."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")
