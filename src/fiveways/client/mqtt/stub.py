"""Typed stubs of services."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import Message

from fiveways.client.mqtt.method_handlers import parse_message, serialize_message
from fiveways.client.mqtt.retry import Retry
from fiveways.client.mqtt.session import MqttCallTarget, MqttSession
from fiveways.client.mqtt.streaming import stream, upload
from fiveways.client.settings import BAD_TIMEOUT
from fiveways.errors import CallError, CallFailed, CallTimeout, Malformed, NotExecuted, Reason, Unrepresentable
from fiveways.model import names
from fiveways.model.names import BadName
from fiveways.schemas import Method, Service
from fiveways.wire.payload import Binary, Payload

# ruff: noqa: ASYNC109  the timeout is sent to the service and shared by all attempts

NO_RETRY: Final = Retry(attempts=1)


class CallDefaults:
    """Default options of the calls of a stub."""

    __slots__ = ("retry", "session", "timeout")

    def __init__(self, session: MqttSession, timeout: float | None, retry: Retry | None) -> None:
        if timeout is not None and timeout <= 0:
            raise ValueError(BAD_TIMEOUT)
        self.session = session
        self.timeout = timeout
        self.retry = retry or NO_RETRY


class _StubMethod:
    """A callable method of a service."""

    def __init__(self, defaults: CallDefaults, method: Method, topic: str) -> None:
        self._defaults = defaults
        self._session = defaults.session
        self._method = method
        self._request, self._response = method.request, method.response
        self._target = make_target(topic, method.name)
        self.__doc__ = method.doc or None
        self.__name__ = method.name

    def __repr__(self) -> str:
        return f"<{self._method.kind} method {self._method.name} on {self._target.topic}>"

    def _serialize(self, value: object) -> Binary:
        """Serialize a request; TypeError if it is not of the schema's type, NotExecuted if it is incomplete."""
        try:
            return serialize_message(self._request, value)
        except Unrepresentable as exc:
            if isinstance(value, Message) and value.DESCRIPTOR.full_name == self._request.DESCRIPTOR.full_name:
                raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
            raise TypeError(f"{self._method.name}: {exc}") from exc

    def _parse(self, data: bytes) -> Any:  # noqa: ANN401  the message class is known at run time only
        try:
            return parse_message(self._response, data)
        except Malformed as exc:
            raise CallFailed(f"the response of {self._target.spelling} cannot be decoded: {exc}") from exc


class Unary(_StubMethod):
    """A method with one request and one response: `await stub.SayHello(HelloRequest(name="Bob"))`."""

    async def __call__(self, request: Message, *, timeout: float | None = None, retry: Retry | None = None) -> Any:  # noqa: ANN401  see above
        """Call the method and return its response.

        Raises:
            CallError: the call failed; see `MqttPeer`.
            ConnectionLost: the connection to the broker is closed for good.
            TypeError: the request is not a message of the schema's type.
            ValueError: the timeout is not positive.
        """
        defaults = self._defaults
        body = self._serialize(request)
        if timeout is None:
            timeout = defaults.timeout
        policy = retry or defaults.retry
        if policy.attempts > 1:
            return await self._call_with_retries(body, timeout, policy)
        response = await self._session.call(self._target, body, timeout)
        return self._parse(body_bytes(response.body))

    async def _call_with_retries(self, body: Payload, timeout: float | None, policy: Retry) -> Any:  # noqa: ANN401  see above
        attempts = RetryAttempts(self._session, self._target.spelling, timeout, policy)
        while True:
            try:
                response = await self._session.call(self._target, body, attempts.timeout)
                return self._parse(body_bytes(response.body))
            except CallError as exc:
                await attempts.wait_after(exc)


class ServerStream(_StubMethod):
    """A method with a streamed response: `async for reply in stub.Count(CountRequest(up_to=3)):`."""

    async def __call__(
        self, request: Message, *, timeout: float | None = None, retry: Retry | None = None
    ) -> AsyncGenerator[Any, None]:
        """Call the method and yield the parts of its response. A retry happens only before the first part."""
        defaults = self._defaults
        body = self._serialize(request)
        if timeout is None:
            timeout = defaults.timeout
        attempts = RetryAttempts(self._session, self._target.spelling, timeout, retry or defaults.retry)
        has_begun = False
        while True:
            try:
                async with aclosing(stream(self._session, self._target, body, attempts.timeout)) as parts:
                    async for data in parts:
                        has_begun = True
                        yield self._parse(data)
            except CallError as exc:
                if has_begun:
                    raise
                await attempts.wait_after(exc)
            else:
                return


class ClientStream(_StubMethod):
    """A method with a streamed request: `await stub.Sum(SumRequest(number=n) for n in range(3))`."""

    async def __call__(
        self, requests: AsyncIterable[Message] | Iterable[Message], *, timeout: float | None = None
    ) -> Any:  # noqa: ANN401  see above
        """Call the method with the messages of an iterable, which is not read further once the response has arrived."""
        timeout = self._defaults.timeout if timeout is None else timeout
        async with aclosing(request_bodies(self, requests)) as bodies:
            return self._parse(await upload(self._session, self._target, bodies, timeout))


class BidirectionalStream(_StubMethod):
    """A method that streams in both directions: `async for line in stub.Chat(lines):`."""

    async def __call__(
        self, requests: AsyncIterable[Message] | Iterable[Message], *, timeout: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Call the method with the messages of an iterable, and yield the parts of the response."""
        timeout = self._defaults.timeout if timeout is None else timeout
        async with (
            aclosing(request_bodies(self, requests)) as bodies,
            aclosing(stream(self._session, self._target, bodies, timeout)) as parts,
        ):
            async for data in parts:
                yield self._parse(data)


_METHOD_TYPES: Final[dict[str, type[_StubMethod]]] = {
    "unary": Unary,
    "server": ServerStream,
    "client": ClientStream,
    "both": BidirectionalStream,
}


class Stub:
    """A service with its methods as attributes, under their names in the schema and folded: `SayHello`, `say_hello`."""

    def __init__(self, defaults: CallDefaults, service: Service, topic: str) -> None:
        self._service = service
        self._topic = topic
        for method in service.methods.values():
            call = _METHOD_TYPES[method.kind](defaults, method, topic)
            for name in (method.name, names.fold(method.name, names.MQTT)):
                self.__dict__.setdefault(name, call)

    def __repr__(self) -> str:
        return f"<Stub {self._service.full_name} on {self._topic}>"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the methods are known at run time only
        known = ", ".join(self._service.methods)
        raise AttributeError(f"{self._service.full_name} has no method {name}; it has {known}")


class RetryAttempts:
    """Attempts of one call, within one timeout."""

    def __init__(self, session: MqttSession, method: str, timeout: float | None, policy: Retry) -> None:
        self._loop = asyncio.get_running_loop()
        self._method = method
        self._policy = policy
        self._count = 1
        self.timeout = timeout
        """Timeout of the next attempt."""
        self._has_timeout = timeout is not None
        self._total = session.settings.timeout if timeout is None else timeout
        self._deadline = self._loop.time() + self._total

    async def wait_after(self, error: CallError) -> None:
        """Wait before the next attempt; raise the error if there is none, or no time for one."""
        wait = self._policy.delay(error, self._count)
        remaining = self._deadline - self._loop.time()
        if wait is None or wait >= remaining:
            if remaining <= 0 and self._count > 1 and isinstance(error, CallTimeout):
                # The error names the timeout of the last attempt, which may be a few milliseconds.
                text = f"{self._method} did not answer within {self._total:g} s, in {self._count} attempts"
                raise CallTimeout(text) from error
            raise error
        self._count += 1
        await asyncio.sleep(wait)
        if self._has_timeout:
            self.timeout = max(self._deadline - self._loop.time(), 0.001)


async def request_bodies(
    call: _StubMethod, requests: AsyncIterable[Message] | Iterable[Message]
) -> AsyncGenerator[tuple[Payload, bool], None]:
    """Yield the bodies of a streamed request, each with whether it is known to be the last."""
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield call._serialize(request), False  # noqa: SLF001  same module
        return
    previous: Payload | None = None
    for request in requests:
        if previous is not None:
            yield previous, False
        previous = call._serialize(request)  # noqa: SLF001  see above
    if previous is not None:
        yield previous, True


def make_target(topic: str, kind: str) -> MqttCallTarget:
    """Return the target of a call on a topic.

    Raises:
        ValueError: the topic or method name is invalid.
    """
    spelling = f"{topic}/{kind}"
    try:
        return MqttCallTarget(topic, kind, names.fold(spelling, names.MQTT), spelling)
    except BadName as exc:
        raise ValueError(f"{topic!r} is not a valid service topic: {exc}") from exc


def body_bytes(body: Payload | None) -> bytes:
    """Return the bytes of a response body; None is an empty message."""
    if type(body) is Binary:  # the common case
        return body.data
    return b"" if body is None else body.binary()
