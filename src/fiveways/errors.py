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
└── ConnectionLost           there is no connection (any more), and no new one is tried
    └── Refused              the other end does not let us in
"""

from enum import Enum


class Fault(Enum):
    """What a peer did wrong. Each protocol has one table that turns these into its own codes."""

    MALFORMED = "malformed"
    UNKNOWN_KIND = "unknown_kind"
    UNEXPECTED = "unexpected"
    VERSION = "version"
    STRAY_ATTACHMENT = "stray_attachment"
    TOO_LARGE = "too_large"


class FivewaysError(Exception):
    """The root: `except FivewaysError` catches all that this package raises on purpose."""


class Malformed(FivewaysError):
    """Bytes that are not what their encoding says they are."""


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


class CallError(FivewaysError):
    """A call that ended without a result. Its subclasses say what is known about the method."""

    def __init__(self, text: str, *, data: object = None, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.data = data
        self.retry_after = retry_after
        """Seconds after which it is worth another try, where somebody said so."""


class NotExecuted(CallError):
    """The method was certainly not run: the call may be made again without harm."""

    def __init__(self, reason: Enum, text: str = "", *, data: object = None, retry_after: float | None = None) -> None:
        super().__init__(f"{reason.value}: {text}" if text else str(reason.value), data=data, retry_after=retry_after)
        self.reason = reason


class CallFailed(CallError):
    """The method ran, and failed. `name` and `code` are its own, where its protocol has them."""

    def __init__(
        self, text: str, *, name: str = "", code: int = 0, data: object = None, retry_after: float | None = None
    ) -> None:
        super().__init__(text, data=data, retry_after=retry_after)
        self.name = name
        self.code = code


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
