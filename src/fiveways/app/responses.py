"""Results and failures of methods, and the messages for them."""

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
"""Maximum length, in characters, of an error text for the caller."""

_log = logging.getLogger("fiveways.app")


class Fail(FivewaysError):
    """Exception of a method that fails its call with this text. It is not logged.

    The text of any other exception stays in the log, unless `show_errors` is set.

    Args:
        text: error text for the caller.
        name: error name such as `app.err.no_funds`, where the caller's protocol carries one.
        data: any value, where the caller's protocol carries it.
        retry_after: seconds after which a retry may succeed, where the caller's protocol carries it.
        code: error number, where the caller's protocol carries one.
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

    In the result of a call, attachments are bytes. A method may return bytes, a `Path`, an open binary file, an
    awaitable or an async iterator of bytes: the response is sent immediately, and the attachment follows when it is
    read. If reading fails, or the attachment is an `AttachmentError`, it fails for the receiver.
    """

    value: object = None
    attachments: Sequence[Any] = ()


class ResponseBuilder:
    """Creates the messages for results of methods. Their attachments are numbered."""

    def __init__(self) -> None:
        self._attachment_numbers = count(1)

    def result(self, call_id: str, value: object) -> Sequence[HubMessage]:
        """Return the response and its attachments; Unsendable if the value cannot be encoded."""
        if type(value) is Reply:
            return self._reply(call_id, value)
        return (Result(call_id, to_body(value)),)

    def part(self, call_id: str, value: object) -> Sequence[HubMessage]:
        """Return one part of a streamed response and its attachments; Unsendable if the value cannot be encoded."""
        if type(value) is Reply:
            return self._reply(call_id, value, stream=True, last=False)
        return (Result(call_id, to_body(value), stream=True, last=False),)

    def _reply(self, call_id: str, reply: Reply, *, stream: bool = False, last: bool = True) -> Sequence[HubMessage]:
        attached = [_to_attachment(f"reply{next(self._attachment_numbers)}", source) for source in reply.attachments]
        names = tuple(attachment.name for attachment in attached)
        return (Result(call_id, to_body(reply.value), names, stream=stream, last=last), *attached)


def _to_attachment(name: str, source: object) -> Attachment | LateAttachment:
    if isinstance(source, bytes | bytearray | memoryview):
        return Attachment(name, bytes(source))
    if isinstance(source, Path | io.IOBase | Awaitable | AsyncIterable | AttachmentError):
        return LateAttachment(name, source)
    raise Unsendable(f"an attachment must be bytes, not {type(source).__name__}")


def log_failure(call_id: str, method: str, error: BaseException, *, show_errors: bool, kind: str = "method") -> Failure:
    """Log the exception of a method, unless it is a `Fail`, and return the failure for its caller.

    An exception may contain secrets: paths, queries, data of other users. The caller gets only a reference to the
    traceback in the log.
    """
    if isinstance(error, Fail):
        return to_failure(call_id, error)
    reference = secrets.token_hex(6)
    # Python 3.11 may raise SystemError while it formats a traceback; that must not end the worker task.
    with suppress(Exception):
        fields = {"fields": {"method": method, "reference": reference}}
        _log.error("%s failed (reference %s)", method, reference, exc_info=error, extra=fields)
    if show_errors or isinstance(error, asyncio.CancelledError):
        return to_failure(call_id, error)
    text = f"the {kind} ran, but its result cannot be sent" if isinstance(error, Unsendable) else f"the {kind} failed"
    return Failure(call_id, Reason.RAISED, f"{text} (reference {reference})")


def to_failure(call_id: str, error: BaseException) -> Failure:
    """Return the failure for an exception, with its class and text."""
    if not isinstance(error, Fail):
        return Failure(call_id, Reason.RAISED, _describe_error(error))
    try:
        data = None if error.data is None else to_body(error.data)
    except Unsendable as exc:
        return Failure(call_id, Reason.RAISED, truncate(f"{error.text} (its data cannot be sent: {exc})"))
    return Failure(
        call_id, Reason.RAISED, _replace_surrogates(error.text), data, error.retry_after, error.name, error.code
    )


def truncate(text: str) -> str:
    """Return a text of at most `MAX_ERROR_TEXT` characters that can be encoded as UTF-8."""
    return _replace_surrogates(f"{text[:MAX_ERROR_TEXT]}..." if len(text) > MAX_ERROR_TEXT else text)


def _replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates by question marks, because a failure must be encodable."""
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
