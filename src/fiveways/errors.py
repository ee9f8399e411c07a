"""Exceptions and failure reasons.

Errors of protocols:

FivewaysError
├── Malformed                bytes that violate their encoding; raised by the decoders in wire/
└── ProtocolError
    ├── LocalProtocolError   our own side requested an operation that the protocol or its state forbids; the peer stays
    │   └── Unrepresentable  a value that the receiver's encoding cannot hold
    │       └── TooLarge     a value above the receiver's size limit
    └── RemoteProtocolError  the peer broke the protocol; it gets an error in its protocol, then the connection closes

Errors for programs that use the client:

FivewaysError
├── CallError
│   ├── NotExecuted          the method was certainly not run; `reason` is the failure reason
│   ├── CallFailed           the method ran, and failed
│   ├── CallTimeout          no response before the deadline; the method may have run
│   ├── CallLost             the callee or a connection was lost; the method may have run
│   └── Cancelled            the call was cancelled; the method may have run
├── BadValue                 a received value does not fit the requested type
├── ConnectionLost           the connection is lost, and no reconnect is tried
│   └── Refused              the hub refused the credentials
└── MissingExtra             the package was installed without a required extra
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{(0|[1-9][0-9]*|err|warn|note)\}")
_MAX_NUMBER_DIGITS: Final = 9
MAX_FILLED_LENGTH: Final = 1 << 16
"""Maximum length of a filled text, unless the text and its arguments, each used once, are longer."""


class Fault(Enum):
    """Protocol errors of a peer. Each protocol has one table from faults to its own codes."""

    MALFORMED = "malformed"
    UNKNOWN_KIND = "unknown_kind"
    UNEXPECTED = "unexpected"
    VERSION = "version"
    STRAY_ATTACHMENT = "stray_attachment"
    TOO_LARGE = "too_large"


class Execution(Enum):
    """Whether a failed method was run. A failure never claims more than is known."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


class Reason(Enum):
    """Reasons of failures. The value is the machine word in the API, metrics, the journal, tables and JSON."""

    NO_SUCH_METHOD = "no_such_method"
    NO_SUCH_CALLBACK = "no_such_callback"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    BAD_ARGUMENTS = "bad_arguments"
    OVERLOADED = "overloaded"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"
    RAISED = "raised"

    @property
    def text(self) -> str:
        """The reason as a sentence, for failures without a text of their own."""
        return _REASON_TEXTS.get(self) or self.value.replace("_", " ")

    @property
    def execution(self) -> Execution:
        """Whether a method that failed for this reason was run."""
        return _EXECUTION.get(self, Execution.NO)


_REASON_TEXTS: Final = {Reason.UNAVAILABLE: "no callee is available", Reason.DENIED: "permission denied"}
_EXECUTION: Final = {
    Reason.TIMEOUT: Execution.UNKNOWN,
    Reason.LOST: Execution.UNKNOWN,
    Reason.CANCELLED: Execution.UNKNOWN,
    Reason.RAISED: Execution.YES,
}


class FivewaysError(Exception):
    """Base class of all exceptions that this package raises on purpose."""


class Malformed(FivewaysError):
    """Bytes that violate their encoding."""


class BadValue(FivewaysError, ValueError):
    """A value that does not fit the requested type; the message names the path of the value."""


class ProtocolError(FivewaysError):
    """A violation of a wire protocol, committed or prevented."""


class LocalProtocolError(ProtocolError):
    """Our own side requested an operation that the protocol cannot express, or not in this state."""


class Unrepresentable(LocalProtocolError):
    """A value that the receiver's encoding cannot hold."""


class TooLarge(Unrepresentable):
    """A value above the receiver's size limit."""


class RemoteProtocolError(ProtocolError):
    """The peer broke `rule` (a number such as UMQ36-a07, explained in the protocol's README)."""

    def __init__(self, fault: Fault, text: str, rule: str) -> None:
        super().__init__(fault, text, rule)
        self.fault = fault
        self.text = text
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.text} [{self.rule}]"


def fill_placeholders(text: str, codes: Mapping[str, str], args: Sequence[str]) -> str:
    """Fill placeholders: `{err}` and other names from `codes`, `{0}` with the first code, `{1}` and on from `args`.

    A placeholder without a value becomes empty; other braces stay. The result is cut while it is built, because a short
    text can stand for gigabytes.
    """

    def value_of(name: str) -> str:
        if not name.isdigit():
            return codes.get(name, "")
        if name == "0":
            return next(filter(None, codes.values()), "")
        number = int(name) if len(name) <= _MAX_NUMBER_DIGITS else len(args) + 1
        return args[number - 1] if number <= len(args) else ""

    space = max(MAX_FILLED_LENGTH, len(text) + sum(map(len, args)))
    parts: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        for part in (text[end : match.start()], value_of(match[1])):
            parts.append(part[:space])
            space -= len(parts[-1])
        end = match.end()
        if not space:
            break
    return "".join(parts) + text[end : end + space]


@dataclass(frozen=True, slots=True)
class ErrorText:
    """The text of an error for translation: codes, and a text with placeholders for `args`."""

    text: str = ""
    args: tuple[str, ...] = ()
    err: str = ""
    warn: str = ""
    note: str = ""

    @property
    def code(self) -> str:
        """The value of `{0}`: the first code that is set."""
        return self.err or self.warn or self.note

    def format(self, translated: str | None = None) -> str:
        """Fill the placeholders of the text, or of a translation of it."""
        codes = {"err": self.err, "warn": self.warn, "note": self.note}
        return fill_placeholders(self.text if translated is None else translated, codes, self.args)


class CallError(FivewaysError):
    """A call that ended without a result. The subclass tells whether the method was run."""

    wording: ErrorText | None = None
    """The text of the callee with its placeholders; None if the protocol has no such texts (NQ has)."""

    def __init__(self, text: str, *, data: object = None, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.data = data
        self.retry_after = retry_after
        """Seconds after which a retry may succeed, if the hub or the callee gave a time."""

    def format(self, translated: str | None = None) -> str:
        """Return the error text, or a translation of it: `error.format("Chybí {1} ({0})")`.

        `{0}` is the code of the error, `{err}`, `{warn}` and `{note}` are the codes by their names, `{1}`, `{2}`, ...
        the arguments of the error, if the protocol carries them. A missing value becomes empty. The length is bounded.
        """
        wording = self.wording
        if translated is None:
            return (wording and wording.format()) or self.text
        return (wording or ErrorText(err=self._own_code())).format(translated)

    def _own_code(self) -> str:
        return ""


class NotExecuted(CallError):
    """The method was certainly not run, so a retry is safe."""

    def __init__(
        self, reason: Reason, text: str = "", *, data: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{reason.text}: {text}" if text else reason.text, data=data, retry_after=retry_after)
        self.reason = reason

    def _own_code(self) -> str:
        return self.reason.value


class CallFailed(CallError):
    """The method ran, and failed. `name` and `code` are the callee's own, if its protocol has them."""

    def __init__(
        self, text: str, *, name: str = "", code: int = 0, data: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(text, data=data, retry_after=retry_after)
        self.name = name
        self.code = code

    def _own_code(self) -> str:
        return self.name or (str(self.code) if self.code else "")


class CallTimeout(CallError):
    """No response came before the deadline. The method may have run."""


class CallLost(CallError):
    """The callee, or a connection to it, was lost after the call was forwarded. The method may have run."""


class Cancelled(CallError):
    """The call was cancelled. The method may have run."""


class ConnectionLost(FivewaysError):
    """The connection is lost, and no reconnect is tried."""


class Refused(ConnectionLost):
    """The hub refused the credentials."""


class MissingExtra(FivewaysError, ImportError):
    """The package was installed without an extra: `by` needs the packages of `fiveways[extra]`."""

    def __init__(self, extra: str, by: str) -> None:
        super().__init__(f"{by} needs the {extra} extra: pip install 'fiveways[{extra}]'")
        self.extra = extra
