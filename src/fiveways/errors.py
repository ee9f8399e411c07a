"""What can go wrong, and whose fault it is.

FivewaysError
├── Malformed                bytes that are not what their encoding says; the tools of wire/ raise it
└── ProtocolError
    ├── LocalProtocolError   our own side asked for what the protocol, or its state, does not allow; the peer stays
    │   └── Unrepresentable  a value that the receiver's encoding cannot hold
    │       └── TooLarge     it can be written, but not within the receiver's limit
    └── RemoteProtocolError  the peer broke the protocol; it is answered in its own language, then the link is closed

What a program that uses the client has to deal with:

FivewaysError
├── CallError
│   ├── NotExecuted          the method was certainly not run; `reason` says why
│   ├── CallFailed           the method ran, and failed
│   ├── CallTimeout          no answer in time; it may have run
│   ├── CallLost             the callee or a link went away; it may have run
│   └── Cancelled            somebody cancelled it; it may have run
├── BadValue                 a value that came does not fit the type that was asked for
├── ConnectionLost           there is no connection (any more), and no new one is tried
│   └── Refused              the other end does not let us in
└── MissingExtra             the package was installed without the extra that a feature needs
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{(0|[1-9][0-9]*|err|warn|note)\}")
_MAX_NUMBER_DIGITS: Final = 9
MAX_FILLED_LENGTH: Final = 1 << 16
"""Characters of a filled text that repeats its arguments; one that says each once may be longer."""


class Fault(Enum):
    """What a peer did wrong. Each protocol has one table that turns these into its own codes."""

    MALFORMED = "malformed"
    UNKNOWN_KIND = "unknown_kind"
    UNEXPECTED = "unexpected"
    VERSION = "version"
    STRAY_ATTACHMENT = "stray_attachment"
    TOO_LARGE = "too_large"


class Execution(Enum):
    """Whether a method that failed was run. A failure never claims more than is known."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


class Reason(Enum):
    """The reason of a failure. Its value is the word for it in the API, metrics, the journal, tables and JSON."""

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
        """The reason in a sentence, for failures without a text of their own."""
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
    """The root: `except FivewaysError` catches all that this package raises on purpose."""


class Malformed(FivewaysError):
    """Bytes that are not what their encoding says they are."""


class BadValue(FivewaysError, ValueError):
    """A value that does not fit the type that was asked for; the message says where."""


class ProtocolError(FivewaysError):
    """A rule of a wire protocol was, or would have been, broken."""


class LocalProtocolError(ProtocolError):
    """Our own side asked for something the protocol cannot say, or not in this state."""


class Unrepresentable(LocalProtocolError):
    """A value that the receiver's encoding cannot hold."""


class TooLarge(Unrepresentable):
    """It can be written, but not within the receiver's limit."""


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
    """Fill placeholders: `{err}` and other names by `codes`, `{0}` by the first code there is, `{1}` on by `args`.

    What is missing is empty, odd braces stay. A short text can stand for gigabytes: it is cut before they are made.
    """

    def filling(name: str) -> str:
        if not name.isdigit():
            return codes.get(name, "")
        if name == "0":
            return next(filter(None, codes.values()), "")
        number = int(name) if len(name) <= _MAX_NUMBER_DIGITS else len(args) + 1
        return args[number - 1] if number <= len(args) else ""

    room = max(MAX_FILLED_LENGTH, len(text) + sum(map(len, args)))
    pieces: list[str] = []
    behind = 0
    for found in _PLACEHOLDER.finditer(text):
        for piece in (text[behind : found.start()], filling(found[1])):
            pieces.append(piece[:room])
            room -= len(pieces[-1])
        behind = found.end()
        if not room:
            break
    return "".join(pieces) + text[behind : behind + room]


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error as it was said, for who says it in another language: codes, and a text with placeholders for `args`."""

    text: str = ""
    args: tuple[str, ...] = ()
    err: str = ""
    warn: str = ""
    note: str = ""

    @property
    def code(self) -> str:
        """What `{0}` stands for: the first code there is."""
        return self.err or self.warn or self.note

    def format(self, translated: str | None = None) -> str:
        """Fill the placeholders of the text, or of a translation of it."""
        codes = {"err": self.err, "warn": self.warn, "note": self.note}
        return fill_placeholders(self.text if translated is None else translated, codes, self.args)


class CallError(FivewaysError):
    """A call that ended without a result. Its subclasses say what is known about the method."""

    wording: ErrorText | None = None
    """How the other end said it, before its text was filled; None where the protocol has nothing like that (NQ has)."""

    def __init__(self, text: str, *, data: object = None, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.data = data
        self.retry_after = retry_after
        """Seconds after which it is worth another try, where somebody said so."""

    def format(self, translated: str | None = None) -> str:
        """Say it in other words: `error.format("Chybí {1} ({0})")`; without them, as it was said.

        `{0}` is the code of the error, `{err}`, `{warn}` and `{note}` are the codes by their names, `{1}`, `{2}`, ...
        what came with it, where the protocol carries that. What is missing is empty. The result is bounded.
        """
        wording = self.wording
        if translated is None:
            return (wording and wording.format()) or self.text
        return (wording or ErrorText(err=self._own_code())).format(translated)

    def _own_code(self) -> str:
        return ""


class NotExecuted(CallError):
    """The method was certainly not run: the call may be made again without harm."""

    def __init__(
        self, reason: Reason, text: str = "", *, data: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{reason.text}: {text}" if text else reason.text, data=data, retry_after=retry_after)
        self.reason = reason

    def _own_code(self) -> str:
        return self.reason.value


class CallFailed(CallError):
    """The method ran, and failed. `name` and `code` are its own, where its protocol has them."""

    def __init__(
        self, text: str, *, name: str = "", code: int = 0, data: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(text, data=data, retry_after=retry_after)
        self.name = name
        self.code = code

    def _own_code(self) -> str:
        return self.name or (str(self.code) if self.code else "")


class CallTimeout(CallError):
    """No answer came in time. The method may have run."""


class CallLost(CallError):
    """The callee, or a link on the way, went away after the call was passed on. The method may have run."""


class Cancelled(CallError):
    """The call was cancelled. The method may have run."""


class ConnectionLost(FivewaysError):
    """There is no connection, and no new one will be tried."""


class Refused(ConnectionLost):
    """The other end does not let us in: who we are was not enough."""


class MissingExtra(FivewaysError, ImportError):
    """The package was installed without an extra: `by` needs the packages that `fiveways[extra]` adds."""

    def __init__(self, extra: str, by: str) -> None:
        super().__init__(f"{by} needs the {extra} extra: pip install 'fiveways[{extra}]'")
        self.extra = extra
