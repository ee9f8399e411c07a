"""What can go wrong, and whose fault it is.

FivewaysError
├── Malformed                bytes that are not what their encoding says; the tools of wire/ raise it
└── ProtocolError
    ├── LocalProtocolError   our own side asked for what the protocol, or its state, does not allow; the peer stays
    │   └── Unrepresentable  a value that the receiver's encoding cannot hold
    └── RemoteProtocolError  the peer broke the protocol; it is answered in its own language, then the link is closed
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


class RemoteProtocolError(ProtocolError):
    """The peer broke `rule` (a number such as UMQ36-a07, explained in the protocol's README)."""

    def __init__(self, fault: Fault, text: str, rule: str) -> None:
        super().__init__(fault, text, rule)
        self.fault = fault
        self.text = text
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.text} [{self.rule}]"
