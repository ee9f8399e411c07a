"""The messages of UMQ. Its two dialects have them in common, but for the call, and differ in how they write them."""

from typing import TYPE_CHECKING, ClassVar

import msgspec

from fiveways.wire.blob import Blob


class UmqMessage(msgspec.Struct, frozen=True, gc=False):
    """The root of all of them."""

    if TYPE_CHECKING:

        @property
        def count(self) -> int:
            """The number of binary frames that belong to the message."""


class Hello(UmqMessage, frozen=True):
    """The client opens the conversation and offers a version."""

    version: str
    payload: str = ""
    count: int = 0


class Welcome(UmqMessage, frozen=True):
    """The server lets the client in, at the same version or a lower one."""

    version: str
    payload: str = ""
    count: int = 0


class Fatal(UmqMessage, frozen=True):
    """The last message of its sender, who then closes."""

    text: str
    count: int = 0


class Data(UmqMessage, frozen=True):
    """A binary frame: the next attachment that was announced."""

    count: ClassVar[int] = 0
    data: bytes | Blob


class AttachmentError(UmqMessage, frozen=True):
    """Stands in for one announced attachment that cannot be delivered."""

    text: str
    count: int = 0


class Callback(UmqMessage, frozen=True):
    """A call of a callback that the receiver once handed out; good for one call."""

    id: str
    callback: str
    payload: str = ""
    count: int = 0


class Result(UmqMessage, frozen=True):
    """The request `id` was done."""

    id: str
    payload: str = ""
    count: int = 0


class Error(UmqMessage, frozen=True):
    """The request `id` was run and failed."""

    id: str
    text: str = ""
    count: int = 0


class NotRun(UmqMessage, frozen=True):
    """The request `id` was certainly not run; the text is `<code> <message>`."""

    id: str
    text: str = ""
    count: int = 0


class TopicUpdate(UmqMessage, frozen=True):
    """News on a topic whose id the receiver chose."""

    id: str
    payload: str = ""
    count: int = 0


class TopicClose(UmqMessage, frozen=True):
    """The publisher ends the topic."""

    id: str
    count: int = 0


class Unsubscribe(UmqMessage, frozen=True):
    """The subscriber ends the topic."""

    id: str
    count: int = 0


class SetVariable(UmqMessage, frozen=True):
    """The sender's variable has this value from now on."""

    name: str
    payload: str = ""
    count: int = 0


class UnsetVariable(UmqMessage, frozen=True):
    """The sender's variable is gone."""

    name: str
    count: int = 0
