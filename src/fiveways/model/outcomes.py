"""Outcome of a call in Python: a value or an exception."""

from fiveways.errors import (
    CallError,
    CallFailed,
    CallLost,
    CallTimeout,
    Cancelled,
    Execution,
    LocalProtocolError,
    NotExecuted,
    Reason,
    TooLarge,
    Unrepresentable,
)
from fiveways.model.messages import Failure, Result
from fiveways.wire.payload import Payload


def error_from_failure(failure: Failure) -> CallError:
    """Return the exception for a failure."""
    error = _build_error(failure)
    error.wording = failure.wording
    return error


def _build_error(failure: Failure) -> CallError:
    reason, text, retry_after_seconds = failure.reason, failure.text, failure.retry_after
    data = None if failure.data is None else _value(failure.data)
    if reason.execution is Execution.NO:
        return NotExecuted(reason, text, data=data, retry_after=retry_after_seconds)
    if reason is Reason.RAISED:
        text = text or failure.name or "the method failed"
        return CallFailed(text, name=failure.name, code=failure.code, data=data, retry_after=retry_after_seconds)
    kind = {Reason.TIMEOUT: CallTimeout, Reason.LOST: CallLost, Reason.CANCELLED: Cancelled}[reason]
    return kind(text or reason.value, data=data, retry_after=retry_after_seconds)


def _value(body: Payload) -> object:
    try:
        return body.value()
    except Unrepresentable:
        return None


def value_of_result(result: Result) -> object:
    """Return the value of a result; CallFailed if it cannot be decoded."""
    body = result.body
    if body is None:
        return None
    try:
        return body.value()
    except Unrepresentable as exc:
        raise CallFailed(f"the answer cannot be read: {exc}") from exc


def unsendable_request_error(error: LocalProtocolError) -> NotExecuted:
    """Return the error for a request that the protocol cannot send: it was not executed."""
    return NotExecuted(unsendable_reason(error), str(error))


def unsendable_result_failure(error: LocalProtocolError, protocol: str) -> tuple[str, str]:
    """Return text and name of the error for a caller if `protocol` cannot represent the response."""
    if unsendable_reason(error) is Reason.OVERLOADED:
        # The reason remains "raised": "overloaded" would mean that the method has not run.
        return f"the method has run, and its answer was dropped: {error}", str(Reason.OVERLOADED.value)
    return f"the answer cannot be written in {protocol}", ""


def unsendable_reason(error: LocalProtocolError) -> Reason:
    """Return the failure reason of a request that the receiver's protocol cannot represent."""
    if isinstance(error, Unrepresentable):
        return Reason.TOO_LARGE if isinstance(error, TooLarge) else Reason.BAD_ARGUMENTS
    return Reason.OVERLOADED if "too many" in str(error) else Reason.UNAVAILABLE
