"""Failures as `<code> <message>`, with the error codes of either UMQ dialect."""

import re
from collections.abc import Mapping
from typing import Final

from fiveways.errors import Reason, Unrepresentable
from fiveways.model.messages import Failure

_CODE_AND_MESSAGE: Final = re.compile(r"([0-9]{1,9}) (.*)", re.DOTALL)
"""The form in which a hub writes failures; it never writes a code alone."""
_MAX_SHOWN_LENGTH: Final = 200


def method_text(failure: Failure) -> str:
    """Return a method's description of its failure: its text, else its name, else its data, else nothing."""
    if failure.text or failure.reason is not Reason.RAISED:
        return failure.text
    if failure.name or failure.data is None:
        return failure.name
    try:
        text = failure.data.text()
    except Unrepresentable:
        return ""
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}..."


def failure_text(failure: Failure, codes: Mapping[Reason, int]) -> str:
    """Return the text of a failure for the caller.

    A method's own text is unchanged, unless it looks like a text of the hub. Such a text gets the code of an unhandled
    exception as a prefix: a caller must not conclude that the method did not run.
    """
    text = method_text(failure)
    # The added blank matches a code without a message too: some readers accept a code alone.
    if is_uncoded(failure, text, codes) and not _CODE_AND_MESSAGE.fullmatch(f"{text} "):
        return text
    return f"{codes[failure.reason]} {text or failure.reason.text}"


def is_uncoded(failure: Failure, text: str, codes: Mapping[Reason, int]) -> bool:
    """Return whether a method gave this text without the code of an unhandled exception."""
    return failure.reason is Reason.RAISED and bool(text) and failure.code != codes[Reason.RAISED]


def parse_failure(call_id: str, text: str, codes: Mapping[Reason, int], default_reason: Reason) -> Failure:
    """Parse `<code> <message>`; a text with none of these codes is kept as a failure with `default_reason`."""
    reason, message = parse_reason(text, codes)
    return Failure(call_id, default_reason, text) if reason is None else Failure(call_id, reason, message)


def parse_callee_failure(call_id: str, text: str, codes: Mapping[Reason, int]) -> Failure:
    """Parse a callee's own `E`, which may contain any text.

    The code of an unhandled exception (UMQ1-a07) is stored apart from the text. Otherwise it would be added a second
    time when the failure is sent to another UMQ peer.
    """
    unhandled = codes[Reason.RAISED]
    reason, message = parse_reason(text, {Reason.RAISED: unhandled})
    return (
        Failure(call_id, Reason.RAISED, text) if reason is None else Failure(call_id, reason, message, code=unhandled)
    )


def parse_reason(text: str, codes: Mapping[Reason, int]) -> tuple[Reason | None, str]:
    """Return the reason for the code, None if it is not one of these, and the text after the code."""
    coded = _CODE_AND_MESSAGE.fullmatch(text)
    if coded is None:
        return None, text
    number = int(coded[1])
    return next((reason for reason, code in codes.items() if code == number), None), coded[2]
