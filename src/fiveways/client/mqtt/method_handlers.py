"""The functions that serve the methods of a service."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, EncodeError, Message

from fiveways.app.responses import Fail, to_failure
from fiveways.app.signature import ExecutionMode, execution_mode
from fiveways.client.mqtt.part_buffer import PartBuffer
from fiveways.errors import Malformed, Unrepresentable
from fiveways.model import names
from fiveways.model.messages import Failure
from fiveways.schemas import Method, Service
from fiveways.wire.payload import Binary

BAD_PART: Final = "bad_part"
"""The tag of the error when an element of a streamed request is not what it should be."""
_BAD_REQUEST: Final = 400


class MqttContext:
    """One call, as its function sees it: the second parameter, if there is one."""

    __slots__ = ("_deadline", "_loop", "method", "timeout", "topic")

    def __init__(self, topic: str, method: str, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self.topic = topic
        self.method = method
        """As the schema names it."""
        self.timeout = timeout
        """How many seconds there were when the call came: the caller's word, else the service's own."""

    @property
    def remaining(self) -> float:
        """How many seconds are left; from any thread."""
        return max(0.0, self._deadline - self._loop.time())


class MethodHandler(msgspec.Struct, frozen=True):
    """One function."""

    method: Method
    function: Callable[..., Any]
    mode: ExecutionMode
    wants_context: bool
    takes_stream: bool
    request: type[Message]
    response: type[Message]

    def read(self, data: bytes) -> Message:
        """Return a request; Malformed if the bytes are none."""
        return parse_message(self.request, data)

    def write(self, value: object) -> Binary:
        """Return an answer as a body; Unrepresentable if it is not what the schema says."""
        return serialize_message(self.response, value)


class RequestStream:
    """A streamed request, for the function that serves it: `async for each in requests:`."""

    def __init__(self, handler: MethodHandler, inflow: PartBuffer) -> None:
        self._handler = handler
        self._parts = inflow
        self._element_number = 0

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> Message:
        data = await self._parts.wait_next()
        if data is None:
            raise StopAsyncIteration
        self._element_number += 1
        try:
            return self._handler.read(data)
        except Malformed as exc:
            # The function runs already, so these are not bad arguments any more.
            raise Fail(f"element {self._element_number}: {exc}", BAD_PART, code=_BAD_REQUEST) from exc


def find_handlers(service: Service, implementation: object) -> Mapping[str, MethodHandler]:
    """Find the functions of a service by name, as the schema has it or folded: `SayHello` or `say_hello`.

    Raises:
        TypeError: a function cannot serve its method, or there is none at all.
    """
    found: dict[str, MethodHandler] = {}
    for method in service.methods.values():
        function = _find_function(implementation, method.name)
        if function is not None:
            found[method.name] = _make_handler(service, method, function)
    if not found:
        raise TypeError(f"{implementation!r} has no function for any method of {service.full_name}")
    return found


def _find_function(implementation: object, name: str) -> Callable[..., Any] | None:
    for spelling in (name, names.fold(name, names.MQTT)):
        if isinstance(implementation, Mapping):
            function: object = implementation.get(spelling)
        else:
            function = getattr(implementation, spelling, None)
        if callable(function):
            return function
    return None


def _make_handler(service: Service, method: Method, function: Callable[..., Any]) -> MethodHandler:
    label = f"{service.full_name}.{method.name}"
    style = execution_mode(function, label)
    streams = method.kind in {"server", "both"}
    if streams != (style is ExecutionMode.STREAM):
        want = "an async generator, as its answer" if streams else "no generator, as its answer"
        raise TypeError(f"{label} must be {want} {'comes in parts' if streams else 'is one message'}")
    if method.kind == "client" and style is ExecutionMode.THREAD:
        raise TypeError(f"{label}: only an async function can read a stream")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as exc:
        raise TypeError(f"{label}: {exc}") from exc
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    given = 2 if len(positional) > 1 else 1
    try:
        inspect.signature(function).bind(*range(given))
    except TypeError as exc:
        raise TypeError(f"{label} must take the request, and may take a context: {exc}") from exc
    takes_stream = method.kind in {"client", "both"}
    return MethodHandler(method, function, style, given == 2, takes_stream, method.request, method.response)


def parse_message(kind: type[Message], data: bytes) -> Message:
    """Return a message; Malformed if the bytes are none."""
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError) as exc:
        raise Malformed(f"{len(data)} bytes that are no {kind.DESCRIPTOR.full_name}") from exc


def serialize_message(kind: type[Message], value: object) -> Binary:
    """Return a message as a body; Unrepresentable if it is not of that kind, or not complete."""
    if type(value) is not kind:
        # Of one schema there may be classes from a descriptor set and from generated code.
        wanted = kind.DESCRIPTOR.full_name
        if not isinstance(value, Message) or value.DESCRIPTOR.full_name != wanted:
            raise Unrepresentable(f"a {type(value).__name__}, where the schema has {wanted}")
    try:
        return Binary(value.SerializeToString())
    except EncodeError as exc:
        raise Unrepresentable(str(exc)) from exc


def handler_failure(call_id: str, error: Fail) -> Failure:
    """Return what a function said of its failure. Its data may be bytes or a message, and goes as it is then."""
    data = error.data
    if isinstance(data, Message):
        data = data.SerializePartialToString()
    if not isinstance(data, bytes):
        return to_failure(call_id, error)
    plain = Fail(error.text, error.name, retry_after=error.retry_after, code=error.code)
    return msgspec.structs.replace(to_failure(call_id, plain), data=Binary(data))
