"""Output on terminals that cannot show every character: ASCII and latin-1 must not end a command."""

import codecs
import io
import sys
from typing import Final

_ERROR_HANDLER: Final = "fiveways.spelled"
_ASCII_REPLACEMENTS: Final = {"→": ">", "←": "<", "…": "~", "·": ".", "●": "o", "✓": "v", "│": "|", "─": "-"}
"""Characters of our own output, each as one that is as wide."""


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    spelled = (_ASCII_REPLACEMENTS.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text)
    return "".join(spelled), error.end


def tolerate_any_terminal() -> None:
    """Write characters that the terminal's encoding lacks in ASCII, instead of failing."""
    codecs.register_error(_ERROR_HANDLER, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERROR_HANDLER)
