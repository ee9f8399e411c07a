"""What an HTTP connection does at a time."""

from enum import IntEnum


class HttpState(IntEnum):
    """What a connection does."""

    READING = 0
    BUSY = 1
    """Its answer is being made, or it waits for its next turn."""
    CLOSING = 2
    """It has said all that it will say."""
    GONE = 3
    """It is closed, or somebody else's."""


class TimeoutKind(IntEnum):
    """What the alarm is for."""

    REQUEST = 0
    HEAD = 1
    BODY = 2
    NONE = 3
    CLIENT = 4
    """The client must read some of what waits for it."""
