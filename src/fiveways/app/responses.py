"""What a method may say at the end of its call, and the words that say it."""

import asyncio
import io
import logging
import secrets
from collections.abc import AsyncIterable, Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from fiveways.app.attachments import AttachmentError
from fiveways.app.late_attachments import LateAttachment
from fiveways.app.values import Unsendable, to_body
from fiveways.errors import FivewaysError, Reason
from fiveways.model.messages import Attachment, Failure, HubMessage, Result

MAX_ERROR_TEXT: Final = 1000
"""Characters of an error's text that are told to the caller."""

_log = logging.getLogger("fiveways.app")


class Fail(FivewaysError):
    """Raised by a method: its call fails with this text, and no traceback is logged.

    The text of any other exception stays in the log, unless `show_errors` is set.

    `name` (a uri such as `app.err.no_funds`), `code` and `data` are the method's own, and arrive where the caller's
    protocol has room for them. After `retry_after` seconds another try is worth it.
    """

    def __init__(
        self, text: str, name: str = "", data: object = None, *, retry_after: float | None = None, code: int = 0
    ) -> None:
        super().__init__(text)
        self.text = text
        self.name = name
        self.data = data
        self.retry_after = retry_after
        self.code = code


@dataclass(frozen=True, slots=True)
class Reply:
    """A result with attachments.

    Each is bytes. A method may also return a `Path`, an open binary file, an awaitable or an async iterator of bytes:
    the answer leaves at once, and the attachment follows when it is read. An `AttachmentError`, or what a source
    raises, makes that attachment fail for the receiver. The result of a call has bytes.
    """

    value: object = None
    attachments: Sequence[Any] = ()


class ResponseBuilder:
    """Turns what methods return and raise into words. Its attachments are named by counting."""

    def __init__(self) -> None:
        self._attachment_numbers = count(1)

    def result(self, call_id: str, value: object) -> Sequence[HubMessage]:
        """Return the answer, and the attachments that follow it; Unsendable if the value cannot be said."""
        if type(value) is Reply:
            return self._reply(call_id, value)
        return (Result(call_id, to_body(value)),)

    def part(self, call_id: str, value: object) -> Sequence[HubMessage]:
        """Return one element of a streamed answer likewise."""
        if type(value) is Reply:
            return self._reply(call_id, value, stream=True, last=False)
        return (Result(call_id, to_body(value), stream=True, last=False),)

    def _reply(self, call_id: str, reply: Reply, *, stream: bool = False, last: bool = True) -> Sequence[HubMessage]:
        attached = [_to_attachment(f"reply{next(self._attachment_numbers)}", given) for given in reply.attachments]
        names = tuple(attachment.name for attachment in attached)
        return (Result(call_id, to_body(reply.value), names, stream=stream, last=last), *attached)


def _to_attachment(name: str, given: object) -> Attachment | LateAttachment:
    if isinstance(given, bytes | bytearray | memoryview):
        return Attachment(name, bytes(given))
    if isinstance(given, Path | io.IOBase | Awaitable | AsyncIterable | AttachmentError):
        return LateAttachment(name, given)
    raise Unsendable(f"an attachment is bytes, not {type(given).__name__}")


def log_failure(call_id: str, method: str, error: BaseException, *, show_errors: bool, kind: str = "method") -> Failure:
    """Return why a method has no result, and log it, unless the method chose its words itself.

    An exception may hold what no caller may know: paths, queries, other people's data. So the caller gets a reference
    under which the log has the traceback.
    """
    if isinstance(error, Fail):
        return to_failure(call_id, error)
    reference = secrets.token_hex(6)
    # Python 3.11 may raise SystemError while it writes a traceback; it must not cost the next call its worker.
    with suppress(Exception):
        fields = {"fields": {"method": method, "reference": reference}}
        _log.error("%s failed (reference %s)", method, reference, exc_info=error, extra=fields)
    if show_errors or isinstance(error, asyncio.CancelledError):
        return to_failure(call_id, error)
    what = f"the {kind} ran, but its answer cannot be sent" if isinstance(error, Unsendable) else f"the {kind} failed"
    return Failure(call_id, Reason.RAISED, f"{what} (reference {reference})")


def to_failure(call_id: str, error: BaseException) -> Failure:
    """Return why a method has no result, with all that its exception says."""
    if not isinstance(error, Fail):
        return Failure(call_id, Reason.RAISED, _describe_error(error))
    try:
        data = None if error.data is None else to_body(error.data)
    except Unsendable as exc:
        return Failure(call_id, Reason.RAISED, truncate(f"{error.text} (and its data is lost: {exc})"))
    return Failure(
        call_id, Reason.RAISED, _replace_surrogates(error.text), data, error.retry_after, error.name, error.code
    )


def truncate(sentence: str) -> str:
    """Return a sentence that is no longer than anyone wants to read, and can be written everywhere."""
    return _replace_surrogates(f"{sentence[:MAX_ERROR_TEXT]}..." if len(sentence) > MAX_ERROR_TEXT else sentence)


def _replace_surrogates(text: str) -> str:
    """Return a text in which halves of surrogate pairs are question marks: a failure must arrive."""
    return text.encode(errors="replace").decode()


def _describe_error(error: BaseException) -> str:
    if isinstance(error, Unsendable):
        return truncate(f"the method ran, but {error}")
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception as exc:  # noqa: BLE001  # an exception whose own text fails must not fail anything else
        text = f"(without a text: {type(exc).__name__})"
    return truncate(f"{kind}: {text}" if text else kind)
