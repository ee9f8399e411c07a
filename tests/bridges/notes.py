"""What the page says of everything that crosses changed, or not at all."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Note:
    """One documented change, or one clause that forbids."""

    text: str
    clause: str = ""
    """The rule that is the reason: what is impossible must have one."""


NOTES: Final[dict[str, Note]] = {
    "failure-umq": Note(
        "A method's own error is a text in UMQ: its name, data, code and `retry_after` have no place there.",
        "UMQ1-09, UMQ36-13",
    ),
    "failure-lrpm": Note(
        "LRPM has no place for a code. The error's uri, text, data and `retry_after` arrive.", "LRPM-11"
    ),
    "failure-nq": Note("NQ has no place for a code nor for `retry_after`. `err`, text and data arrive.", "NQ-08"),
}
"""By their keys, in the order of the page."""
