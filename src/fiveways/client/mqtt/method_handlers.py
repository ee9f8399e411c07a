"""Functions that serve the methods of a service."""

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
"""Error tag for an invalid element of a streamed request."""
_BAD_REQUEST: Final = 400


class MqttContext:
    """Context of a call, for the second parameter of its function."""

    __slots__ = ("_deadline", "_loop", "method", "timeout", "topic")

    def __init__(self, topic: str, method: str, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self.topic = topic
        self.method = method
        """Name of the method in the schema."""
        self.timeout = timeout
        """Seconds for the call when it arrived: the caller's timeout, otherwise that of the service."""

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; may be read from any thread."""
        return max(0.0, self._deadline - self._loop.time())


class MethodHandler(msgspec.Struct, frozen=True):
    """The function of one method."""

    method: Method
    function: Callable[..., Any]
    mode: ExecutionMode
    wants_context: bool
    takes_stream: bool
    request: type[Message]
    response: type[Message]

    def read(self, data: bytes) -> Message:
        """Parse a request; Malformed if the bytes are invalid."""
        return parse_message(self.request, data)

    def write(self, value: object) -> Binary:
        """Serialize a response; Unrepresentable if it does not match the schema."""
        return serialize_message(self.response, value)


class RequestStream:
    """A streamed request, as an async iterator for the function that serves it."""

    def __init__(self, handler: MethodHandler, buffer: PartBuffer) -> None:
        self._handler = handler
        self._parts = buffer
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
            # The function is running: the failure must not be reported as bad arguments.
            raise Fail(f"element {self._element_number}: {exc}", BAD_PART, code=_BAD_REQUEST) from exc


def find_handlers(service: Service, implementation: object) -> Mapping[str, MethodHandler]:
    """Find the functions of a service by name, as in the schema or folded: `SayHello` or `say_hello`.

    Raises:
        TypeError: a function cannot serve its method, or no method has a function.
    """
    handlers: dict[str, MethodHandler] = {}
    for method in service.methods.values():
        function = _find_function(implementation, method.name)
        if function is not None:
            handlers[method.name] = _make_handler(service, method, function)
    if not handlers:
        raise TypeError(f"{implementation!r} has no function for any method of {service.full_name}")
    return handlers


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
    mode = execution_mode(function, label)
    streams = method.kind in {"server", "both"}
    if streams != (mode is ExecutionMode.STREAM):
        expected = "must be an async generator" if streams else "must not be an async generator"
        raise TypeError(f"{label} {expected}: its response is {'a stream' if streams else 'one message'}")
    if method.kind == "client" and mode is ExecutionMode.THREAD:
        raise TypeError(f"{label}: only an async function can read a streamed request")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as exc:
        raise TypeError(f"{label}: {exc}") from exc
    positional = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    argument_count = 2 if len(positional) > 1 else 1
    try:
        inspect.signature(function).bind(*range(argument_count))
    except TypeError as exc:
        raise TypeError(f"{label} must take the request, and may take a context: {exc}") from exc
    takes_stream = method.kind in {"client", "both"}
    return MethodHandler(method, function, mode, argument_count == 2, takes_stream, method.request, method.response)


def parse_message(kind: type[Message], data: bytes) -> Message:
    """Parse a message; Malformed if the bytes are invalid."""
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError) as exc:
        raise Malformed(f"{len(data)} bytes that are not a {kind.DESCRIPTOR.full_name}") from exc


def serialize_message(kind: type[Message], value: object) -> Binary:
    """Serialize a message; Unrepresentable if it is of another type, or incomplete."""
    if type(value) is not kind:
        # One schema may have classes from a descriptor set and from generated code.
        expected_name = kind.DESCRIPTOR.full_name
        if not isinstance(value, Message) or value.DESCRIPTOR.full_name != expected_name:
            raise Unrepresentable(f"a {type(value).__name__} instead of a {expected_name}")
    try:
        return Binary(value.SerializeToString())
    except EncodeError as exc:
        raise Unrepresentable(str(exc)) from exc


def handler_failure(call_id: str, error: Fail) -> Failure:
    """Return the failure that a function raised. Bytes or a message as its data are sent unchanged."""
    data = error.data
    if isinstance(data, Message):
        data = data.SerializePartialToString()
    if not isinstance(data, bytes):
        return to_failure(call_id, error)
    plain_error = Fail(error.text, error.name, retry_after=error.retry_after, code=error.code)
    return msgspec.structs.replace(to_failure(call_id, plain_error), data=Binary(data))
