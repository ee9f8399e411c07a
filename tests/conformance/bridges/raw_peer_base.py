"""The interface of raw peers: received messages in a common form, and the operations.

Raw peers share no code with the hub: they implement the specs, not the hub's interpretation of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

RECEIVE_TIMEOUT: Final = 60.0
"""Timeout in seconds for the next message."""

# The table of failures (docs/crossing.md): reason, whether the method ran, umq36, umq, lrpm.
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
    """A received message in a form common to all protocols."""

    kind: str
    """call, callback, discover, result, failure, cancel, event, closed or goodbye."""
    id: str = ""
    name: str = ""
    """The method, the callback, the subscription, or the reason of a failure."""
    body: Any = None
    attachments: tuple[bytes | str, ...] = ()
    """A string is the error that replaces an attachment."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    raw: str | bytes = field(default=b"", compare=False)
    """The frame."""


@dataclass(frozen=True)
class FailureDetails:
    """All details of a failure; absent ones are empty."""

    text: str = ""
    name: str = ""
    data: Any = None
    code: int = 0
    retry_after: float = 0.0


class NotSupported(Exception):
    """The protocol has no message for an operation."""


class RawPeer(ABC):
    """A raw peer after its handshake."""

    STREAM_META: ClassVar[Meta] = NO_META
    """The meta of a call that requests a streamed result, if the protocol needs one."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._last = 9

    def _next(self) -> str:
        self._last += 1
        return str(self._last)

    @abstractmethod
    def call(self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META) -> str:
        """Send a call and return its id."""

    @abstractmethod
    def call_back(self, token: str, body: object) -> str:
        """Call a callback by its token and return the id of the call."""

    @abstractmethod
    def answer(
        self, call: ReceivedMessage, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> None:
        """Send the result of a received call."""

    @abstractmethod
    def fail(self, call: ReceivedMessage, text: str) -> None:
        """Send a failure of a received call."""

    @abstractmethod
    async def receive(self) -> ReceivedMessage:
        """Return the next message with its attachments."""

    @abstractmethod
    async def set(self, name: str, value: object) -> None:
        """Set a variable of this session."""

    @abstractmethod
    async def subscribe(self, topic: str, *, envelope: bool = False) -> str:
        """Subscribe and return the name of the subscription."""

    @abstractmethod
    def publish(self, topic: str, data: object, attachments: Sequence[bytes] = (), *, retain: bool = False) -> str:
        """Publish and return the id of the response."""

    async def call_and_wait(
        self, name: str, body: object = None, attachments: Sequence[bytes] = (), meta: Meta = NO_META
    ) -> ReceivedMessage:
        """Send a call and return its response."""
        return await self.wait_for_answer(self.call(name, body, attachments, meta))

    async def wait_for_answer(self, call_id: str) -> ReceivedMessage:
        """Return the next message, which must be the response to this call."""
        received = await self.receive()
        assert (received.kind in {"result", "failure"}, received.id) == (True, call_id), received
        return received

    async def value(self, name: str, body: object = None) -> Any:  # noqa: ANN401  whatever it is
        """Send a call and return the value of its result."""
        received = await self.call_and_wait(name, body)
        assert received.kind == "result", received
        return received.body

    async def register(self, name: str, **options: object) -> None:
        """Register a method or a route."""
        await self.value(self.builtin("register"), {"name": name, **options})

    def builtin(self, name: str) -> str:
        """Return the protocol's spelling of a built-in method."""
        return f"hub:{name}" if self.protocol == "umq" else f"hub.{name}"

    async def discover(self, name: str = "") -> dict[str, Any]:
        """Return a description in the form of LRPM."""
        description = await self.value(self.builtin("discover"), {"name": name} if name else {})
        assert isinstance(description, dict)
        return description

    async def check_alive(self) -> None:
        """Check that the session works and that there are no unread messages."""
        assert await self.value(self.builtin("ping")) == "pong"

    def describe(self, request: ReceivedMessage, methods: list[str]) -> None:
        """Answer a discovery with a list of methods."""
        self.answer(request, {"methods": methods, "routes": []})

    def document(self, request: ReceivedMessage, doc: str) -> None:
        """Answer a discovery with documentation."""
        self.answer(request, {"doc": doc})

    # Operations that not all protocols support.

    @abstractmethod
    def spell(self, namespace: str, message: str) -> str:
        """Return the protocol's spelling of a method."""

    @abstractmethod
    def spell_topic(self, *segments: str) -> str:
        """Return the protocol's spelling of a topic."""

    @abstractmethod
    def disconnect(self) -> None:
        """Disconnect without a goodbye."""

    @abstractmethod
    def reject(self, call: ReceivedMessage, text: str, reason: str = "refused") -> None:
        """Send a failure that means that the call did not run, because of `refused` or `bad arguments`."""

    @abstractmethod
    def fail_with_details(self, call: ReceivedMessage, details: FailureDetails) -> FailureDetails:
        """Send a failure with all details that the protocol can express, and return these."""

    @abstractmethod
    def read_failure(self, failure: ReceivedMessage) -> FailureDetails:
        """Return the details of a received failure."""

    @abstractmethod
    def write_bytes(self, data: bytes) -> object:
        """Return the protocol's form of bytes in a body."""

    @abstractmethod
    def read_bytes(self, value: Any) -> tuple[bytes, str]:  # noqa: ANN401  as the encoding has it
        """Return bytes in a body and their form: the protocol's own, another marker, or none."""

    def cancel(self, call_id: str) -> None:
        """Cancel a call; NotSupported if the protocol has no message for it."""
        raise NotSupported(f"{self.protocol} has no message to cancel a call")

    def stream_call(self, name: str, elements: Sequence[object]) -> str:
        """Send a call with these elements as its argument, streamed if possible."""
        return self.call(name, list(elements))

    def stream_answer(self, call: ReceivedMessage, elements: Sequence[object]) -> None:
        """Send these elements as a result, streamed if possible."""
        self.answer(call, list(elements))

    async def publish_and_wait(self, topic: str, data: object, *, retain: bool = False) -> None:
        """Publish and wait for the response."""
        received = await self.wait_for_answer(self.publish(topic, data, retain=retain))
        assert received.kind == "result", received
