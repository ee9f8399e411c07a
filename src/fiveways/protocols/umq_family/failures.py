"""Failures as `<code> <message>`: what both dialects of UMQ do with their column of the table of failures."""

import re
from collections.abc import Mapping
from typing import Final

from fiveways.errors import Reason, Unrepresentable
from fiveways.model.messages import Failure

_CODE_AND_MESSAGE: Final = re.compile(r"([0-9]{1,9}) (.*)", re.DOTALL)
"""What a hub writes; a number alone it never does."""
_MAX_SHOWN_LENGTH: Final = 200


def method_text(failure: Failure) -> str:
    """What a method says about its failure: its text, else its name, else its data; empty if it says nothing."""
    if failure.text or failure.reason is not Reason.RAISED:
        return failure.text
    if failure.name or failure.data is None:
        return failure.name
    try:
        shown = failure.data.text()
    except Unrepresentable:
        return ""
    return shown if len(shown) <= _MAX_SHOWN_LENGTH else f"{shown[:_MAX_SHOWN_LENGTH]}..."


def failure_text(failure: Failure, codes: Mapping[Reason, int]) -> str:
    """What a caller reads.

    A method's own text goes as it is, unless it looks like one of the hub's: the code of an unhandled exception then
    stands before it, so that nobody takes a method that ran for one that did not.
    """
    text = method_text(failure)
    # With the blank, a number alone looks like a code as well: not every reader waits for a message behind it.
    if is_uncoded(failure, text, codes) and not _CODE_AND_MESSAGE.fullmatch(f"{text} "):
        return text
    return f"{codes[failure.reason]} {text or failure.reason.text}"


def is_uncoded(failure: Failure, text: str, codes: Mapping[Reason, int]) -> bool:
    """Whether a method said this text without the code of an unhandled exception."""
    return failure.reason is Reason.RAISED and bool(text) and failure.code != codes[Reason.RAISED]


def parse_failure(call_id: str, text: str, codes: Mapping[Reason, int], otherwise: Reason) -> Failure:
    """What `<code> <message>` means; a text with none of these codes is left as it is, and means `otherwise`."""
    reason, rest = parse_reason(text, codes)
    return Failure(call_id, otherwise, text) if reason is None else Failure(call_id, reason, rest)


def parse_callee_failure(call_id: str, text: str, codes: Mapping[Reason, int]) -> Failure:
    """What a callee's own `E` means, which may say any text.

    The code of an unhandled exception (UMQ1-a07) is kept apart from the text, and so stands before it once, not twice,
    when the failure goes to another peer of UMQ.
    """
    unhandled = codes[Reason.RAISED]
    reason, rest = parse_reason(text, {Reason.RAISED: unhandled})
    return Failure(call_id, Reason.RAISED, text) if reason is None else Failure(call_id, reason, rest, code=unhandled)


def parse_reason(text: str, codes: Mapping[Reason, int]) -> tuple[Reason | None, str]:
    """The reason that a hub stated, None if the code is not one of these, and the text behind it."""
    coded = _CODE_AND_MESSAGE.fullmatch(text)
    if coded is None:
        return None, text
    number = int(coded[1])
    return next((reason for reason, code in codes.items() if code == number), None), coded[2]
