"""Failures as `<code> <message>`: what both dialects of UMQ do with their column of the table of failures."""

import re
from collections.abc import Mapping

from fiveways.model.failures import Reason
from fiveways.model.messages import Failure

_CODED = re.compile(r"([0-9]{1,9}) (.*)", re.DOTALL)


def text_of(failure: Failure, codes: Mapping[Reason, int]) -> str:
    """What a caller reads.

    A method's own text goes as it is, unless it looks like one of the hub's: the code of an unhandled exception then
    stands before it, so that nobody takes a method that ran for one that did not.
    """
    if failure.reason is Reason.RAISED and failure.text and not _CODED.fullmatch(failure.text):
        return failure.text
    return f"{codes[failure.reason]} {failure.text or failure.reason.value}"


def reason_of(text: str, codes: Mapping[Reason, int]) -> tuple[Reason | None, str]:
    """The reason that a hub stated, None if the code is not one of these, and the text behind it."""
    coded = _CODED.fullmatch(text)
    if coded is None:
        return None, text
    number = int(coded[1])
    return next((reason for reason, code in codes.items() if code == number), None), coded[2]
