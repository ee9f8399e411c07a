"""The UMQ messages of both dialects. The dialects differ in their calls and in the syntax."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from fiveways.wire.blob import Blob


class UmqMessage(msgspec.Struct, frozen=True, gc=False):
    """Base class of the messages."""

    if TYPE_CHECKING:

        @property
        def count(self) -> int:
            """The number of binary frames that follow the message."""


class Hello(UmqMessage, frozen=True):
    """The client's first message, with the version that it offers."""

    version: str
    payload: str = ""
    count: int = 0


class Welcome(UmqMessage, frozen=True):
    """The server's acceptance of the client, at the same version or a lower one."""

    version: str
    payload: str = ""
    count: int = 0


class Fatal(UmqMessage, frozen=True):
    """The last message of a side; the sender closes the connection after it."""

    text: str
    count: int = 0


class Data(UmqMessage, frozen=True):
    """A binary frame with the next announced attachment."""

    count: ClassVar[int] = 0
    data: bytes | Blob


class AttachmentError(UmqMessage, frozen=True):
    """A replacement for an announced attachment that cannot be delivered."""

    text: str
    count: int = 0


class Callback(UmqMessage, frozen=True):
    """A call of a callback token that the receiver created; valid once."""

    id: str
    callback: str
    payload: str = ""
    count: int = 0


class Result(UmqMessage, frozen=True):
    """The successful response to request `id`."""

    id: str
    payload: str = ""
    count: int = 0


class Error(UmqMessage, frozen=True):
    """The response to request `id`, which ran and failed."""

    id: str
    text: str = ""
    count: int = 0


class NotRun(UmqMessage, frozen=True):
    """The response to request `id`, which did not run; the text is `<code> <message>`."""

    id: str
    text: str = ""
    count: int = 0


class TopicUpdate(UmqMessage, frozen=True):
    """An event on a topic; the receiver chose the topic id."""

    id: str
    payload: str = ""
    count: int = 0


class TopicClose(UmqMessage, frozen=True):
    """The end of a topic, sent by the publisher."""

    id: str
    count: int = 0


class Unsubscribe(UmqMessage, frozen=True):
    """The end of a subscription, sent by the subscriber."""

    id: str
    count: int = 0


class SetVariable(UmqMessage, frozen=True):
    """A new value for a variable of the sender."""

    name: str
    payload: str = ""
    count: int = 0


class UnsetVariable(UmqMessage, frozen=True):
    """The removal of a variable of the sender."""

    name: str
    count: int = 0
