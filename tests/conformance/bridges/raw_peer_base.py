"""What every raw peer has in common: the words in which it tells what it heard, and its verbs.

Peers share no code with the hub: what they read is what the documents say, not what the hub believes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

RECEIVE_TIMEOUT: Final = 60.0
"""Seconds after which a peer gives up that hears nothing."""

# The table of failures (docs/crossing.md): reason, was it run, umq36, umq, lrpm.
TABLE: Final = (
    ("no such method", "no", "E7", "!7", "hub.err.no_such_procedure"),
    ("no such callback", "no", "E2", "!8", "hub.err.no_such_callback"),
    ("no callee is available", "no", "E8", "!11", "hub.err.unavailable"),
    ("refused", "no", "E12", "!12", "hub.err.denied"),
    ("bad arguments", "no", "E13", "!13", "hub.err.bad_arguments"),
    ("overloaded", "no", "E14", "!14", "hub.err.busy"),
    ("too large", "no", "E15", "!15", "hub.err.too_large"),
    ("timeout", "unknown", "E9", "E9", "hub.err.timeout"),
    ("lost", "unknown", "E10", "E10", "hub.err.lost"),
    ("cancelled", "unknown", "E16", "E16", ".err.cancelled"),
    ("raised", "yes", "E6", "E6", "app.err.failed"),
)
Meta: TypeAlias = Mapping[str, object]
NO_META: Final[Meta] = {}


@dataclass(frozen=True)
class ReceivedMessage:
    """One message, in words that are the same for all protocols."""

    kind: str
    """call, callback, discover, result, failure, cancel, event, closed or goodbye."""
    id: str = ""
    name: str = ""
    """The method, the callback, the subscription, or the reason of a failure."""
    body: Any = None
    attachments: tuple[bytes | str, ...] = ()
    """A text is the reason why one of them did not come."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    raw: str | bytes = field(default=b"", compare=False)
    """The frame."""


@dataclass(frozen=True)
class FailureDetails:
    """All that somebody says, or hears, about why a method failed; what was not said is empty."""

    text: str = ""
    name: str = ""
    data: Any = None
    code: int = 0
    retry_after: float = 0.0


class NotSupported(Exception):
    """A protocol has no message for this."""


class RawPeer(ABC):
    """One peer behind its handshake."""

    STREAM_META: ClassVar[Meta] = NO_META
    """What a call says whose answer may come in parts, where that has to be said."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._last = 9

    def _next(self) -> str:
        self._last += 1
        return str(self._last)

    @abstractmethod
    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        """Say a call; return its id."""

    @abstractmethod
    def call_back(self, token: str, body: object) -> str:
        """Call a callback by its token; return the call's id."""

    @abstractmethod
    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        """Answer a call that was heard."""

    @abstractmethod
    def fail(self, call: ReceivedMessage, text: str) -> None:
        """Let a call fail that was heard."""

    @abstractmethod
    async def receive(self) -> ReceivedMessage:
        """Return the next message, with all its attachments."""

    @abstractmethod
    async def set(self, name: str, value: object) -> None:
        """Set a variable of this session."""

    @abstractmethod
    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        """Subscribe, and return the name of the subscription."""

    @abstractmethod
    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> str:
        """Publish, and return the id under which the answer comes."""

    async def call_and_wait(
        self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> ReceivedMessage:
        """Call, and return the answer."""
        return await self.wait_for_answer(self.call(name, body, attachments, meta))

    async def wait_for_answer(self, call_id: str) -> ReceivedMessage:
        """Return the next message, which must be the answer to this call."""
        received = await self.receive()
        assert (received.kind in {"result", "failure"}, received.id) == (True, call_id), received
        return received

    async def value(self, name: str, body: object = None) -> Any:  # noqa: ANN401  whatever it is
        """Call, and return the value of the answer."""
        received = await self.call_and_wait(name, body)
        assert received.kind == "result", received
        return received.body

    async def register(self, name: str, **options: object) -> None:
        """Offer a method or a route."""
        await self.value(self.builtin("register"), {"name": name, **options})

    def builtin(self, name: str) -> str:
        """Return how the protocol writes the name of a built-in."""
        return f"hub:{name}" if self.protocol == "umq" else f"hub.{name}"

    async def discover(self, name: str = "") -> dict[str, Any]:
        """Ask what there is, as an lrpm peer would read it."""
        found = await self.value(self.builtin("discover"), {"name": name} if name else {})
        assert isinstance(found, dict)
        return found

    async def check_alive(self) -> None:
        """Know that the session goes on, all that was said has been heard, and nothing else has come."""
        assert await self.value(self.builtin("ping")) == "pong"

    def describe(self, asked: ReceivedMessage, methods: list[str]) -> None:
        """Answer what was asked about our names."""
        self.answer(asked, {"methods": methods, "routes": []})

    def document(self, asked: ReceivedMessage, doc: str) -> None:
        """Answer what was asked about one of them."""
        self.answer(asked, {"doc": doc})

    # What only some protocols have words for.

    @abstractmethod
    def spell(self, namespace: str, message: str) -> str:
        """Return how the protocol writes the name of a method."""

    @abstractmethod
    def spell_topic(self, *segments: str) -> str:
        """Return how the protocol writes a topic."""

    @abstractmethod
    def disconnect(self) -> None:
        """Be gone, without a word."""

    @abstractmethod
    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        """Say that a call was not run for this reason, which is `refused` or `bad arguments`."""

    @abstractmethod
    def fail_with_details(self, call: ReceivedMessage, told: FailureDetails) -> FailureDetails:
        """Let a call fail with all that can be said about it; return that."""

    @abstractmethod
    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        """Return all that was said about a failure."""

    @abstractmethod
    def write_bytes(self, data: bytes) -> object:
        """Return how the protocol writes bytes within a body."""

    @abstractmethod
    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  as the encoding has it
        """Return bytes within a body, and how they were written: as our own, with another mark, or without one."""

    def cancel(self, call_id: str) -> None:
        """Say that an answer is not wanted any more; NotSupported if that cannot be said."""
        raise NotSupported(f"{self.protocol} has no message that takes a call back")

    def stream_call(self, name: str, elements: Sequence[object]) -> str:
        """Say a call with these elements as its argument, each by itself where that can be."""
        return self.call(name, list(elements))

    def stream_answer(self, call: ReceivedMessage, elements: Sequence[object]) -> None:
        """Answer with these elements, each by itself where that can be."""
        self.answer(call, list(elements))

    async def publish_and_wait(self, topic: str, data: object, *, retain: bool = False) -> None:
        """Publish, and know that it was taken."""
        received = await self.wait_for_answer(self.publish(topic, data, retain=retain))
        assert received.kind == "result", received
