"""Typed calls: an object with the methods of a service."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import Message

from fiveways.client.mqtt.flows import stream, upload
from fiveways.client.mqtt.implementation import parsed, written
from fiveways.client.mqtt.retry import Retry
from fiveways.client.mqtt.session import MqttSession, Target
from fiveways.client.settings import NO_TIME
from fiveways.errors import CallError, CallFailed, CallTimeout, Malformed, NotExecuted, Unrepresentable
from fiveways.model import names
from fiveways.model.failures import Reason
from fiveways.model.names import BadName
from fiveways.schemas import Method, Service
from fiveways.wire.payload import Binary, Payload

# ruff: noqa: ASYNC109  a timeout is told to the service, and divided between attempts

NEVER: Final = Retry(attempts=1)


class Usual:
    """What holds for all calls of a stub that say nothing else."""

    __slots__ = ("retry", "session", "timeout")

    def __init__(self, session: MqttSession, timeout: float | None, retry: Retry | None) -> None:
        if timeout is not None and timeout <= 0:
            raise ValueError(NO_TIME)
        self.session = session
        self.timeout = timeout
        self.retry = retry or NEVER


class _Callable:
    """One method of a service, to be called."""

    def __init__(self, usual: Usual, method: Method, topic: str) -> None:
        self._usual = usual
        self._session = usual.session
        self._method = method
        self._request, self._response = method.request, method.response
        self._target = target_of(topic, method.name)
        self.__doc__ = method.doc or None
        self.__name__ = method.name

    def __repr__(self) -> str:
        return f"<{self._method.kind} method {self._method.name} on {self._target.topic}>"

    def _written(self, value: object) -> Binary:
        """Return what is sent; TypeError if it is no message of the schema, NotExecuted if it is not complete."""
        try:
            return written(self._request, value)
        except Unrepresentable as exc:
            if isinstance(value, Message) and value.DESCRIPTOR.full_name == self._request.DESCRIPTOR.full_name:
                raise NotExecuted(Reason.BAD_ARGUMENTS, str(exc)) from exc
            raise TypeError(f"{self._method.name}: {exc}") from exc

    def _read(self, data: bytes) -> Any:  # noqa: ANN401  the class of a message is not known here
        try:
            return parsed(self._response, data)
        except Malformed as exc:
            raise CallFailed(f"the answer of {self._target.spelling} cannot be read: {exc}") from exc


class Unary(_Callable):
    """A method whose request and answer are one message each: `await stub.SayHello(HelloRequest(name="Bob"))`."""

    async def __call__(self, request: Message, *, timeout: float | None = None, retry: Retry | None = None) -> Any:  # noqa: ANN401  see above
        """Call it; a `CallError` if it fails, `ConnectionLost` if there will be no link to the broker any more."""
        usual = self._usual
        body = self._written(request)
        if timeout is None:
            timeout = usual.timeout
        policy = retry or usual.retry
        if policy.attempts > 1:
            return await self._again(body, timeout, policy)
        answer = await self._session.call(self._target, body, timeout)
        return self._read(bytes_of(answer.body))

    async def _again(self, body: Payload, timeout: float | None, policy: Retry) -> Any:  # noqa: ANN401  see above
        attempts = Attempts(self._session, self._target.spelling, timeout, policy)
        while True:
            try:
                answer = await self._session.call(self._target, body, attempts.timeout)
                return self._read(bytes_of(answer.body))
            except CallError as exc:
                await attempts.wait_after(exc)


class ServerStream(_Callable):
    """A method that answers in parts: `async for reply in stub.Count(CountRequest(up_to=3)):`."""

    async def __call__(
        self, request: Message, *, timeout: float | None = None, retry: Retry | None = None
    ) -> AsyncGenerator[Any, None]:
        """Call it and give the parts as they come. It is tried again only before the first of them."""
        usual = self._usual
        body = self._written(request)
        if timeout is None:
            timeout = usual.timeout
        attempts = Attempts(self._session, self._target.spelling, timeout, retry or usual.retry)
        has_begun = False
        while True:
            try:
                async with aclosing(stream(self._session, self._target, body, attempts.timeout)) as parts:
                    async for data in parts:
                        has_begun = True
                        yield self._read(data)
            except CallError as exc:
                if has_begun:
                    raise
                await attempts.wait_after(exc)
            else:
                return


class ClientStream(_Callable):
    """A method that takes many messages: `await stub.Sum(SumRequest(number=n) for n in range(3))`."""

    async def __call__(
        self, requests: AsyncIterable[Message] | Iterable[Message], *, timeout: float | None = None
    ) -> Any:  # noqa: ANN401  see above
        """Call it with all that the iterable gives; it is asked for no more when the answer is there."""
        timeout = self._usual.timeout if timeout is None else timeout
        async with aclosing(elements(self, requests)) as bodies:
            return self._read(await upload(self._session, self._target, bodies, timeout))


class BothWays(_Callable):
    """A method where both sides stream: `async for line in stub.Chat(lines):`."""

    async def __call__(
        self, requests: AsyncIterable[Message] | Iterable[Message], *, timeout: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Call it with all that the iterable gives, and give the parts of the answer as they come."""
        timeout = self._usual.timeout if timeout is None else timeout
        async with (
            aclosing(elements(self, requests)) as bodies,
            aclosing(stream(self._session, self._target, bodies, timeout)) as parts,
        ):
            async for data in parts:
                yield self._read(data)


_CALLABLES: Final[dict[str, type[_Callable]]] = {
    "unary": Unary,
    "server": ServerStream,
    "client": ClientStream,
    "both": BothWays,
}


class Stub:
    """A service to be called: it has each method under its name in the schema, and folded: `SayHello`, `say_hello`."""

    def __init__(self, usual: Usual, service: Service, topic: str) -> None:
        self._service = service
        self._topic = topic
        for method in service.methods.values():
            call = _CALLABLES[method.kind](usual, method, topic)
            for name in (method.name, names.fold(method.name, names.MQTT)):
                self.__dict__.setdefault(name, call)

    def __repr__(self) -> str:
        return f"<Stub {self._service.full_name} on {self._topic}>"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a stub's methods are known to its schema alone
        there = ", ".join(self._service.methods)
        raise AttributeError(f"{self._service.full_name} has no method {name}; it has {there}")


class Attempts:
    """The calls that are made until one succeeds, within one timeout."""

    def __init__(self, session: MqttSession, method: str, timeout: float | None, policy: Retry) -> None:
        self._loop = asyncio.get_running_loop()
        self._method = method
        self._policy = policy
        self._made = 1
        self.timeout = timeout
        """What the next call is told."""
        self._is_told = timeout is not None
        self._total = session.settings.timeout if timeout is None else timeout
        self._deadline = self._loop.time() + self._total

    async def wait_after(self, error: CallError) -> None:
        """Wait until it may be tried again; raise the error if it may not, or if there is no time for that."""
        wait = self._policy.wait(error, self._made)
        left = self._deadline - self._loop.time()
        if wait is None or wait >= left:
            if left <= 0 and self._made > 1 and isinstance(error, CallTimeout):
                # The error tells what was left for the last attempt, which may be a few milliseconds.
                text = f"{self._method} did not answer within {self._total:g} s, in {self._made} attempts"
                raise CallTimeout(text) from error
            raise error
        self._made += 1
        await asyncio.sleep(wait)
        if self._is_told:
            self.timeout = max(self._deadline - self._loop.time(), 0.001)


async def elements(
    call: _Callable, requests: AsyncIterable[Message] | Iterable[Message]
) -> AsyncGenerator[tuple[Payload, bool], None]:
    """Give the bodies of a streamed request, each with whether it is known to be the last."""
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield call._written(request), False  # noqa: SLF001  it is of this module
        return
    ahead: Payload | None = None
    for request in requests:
        if ahead is not None:
            yield ahead, False
        ahead = call._written(request)  # noqa: SLF001  see above
    if ahead is not None:
        yield ahead, True


def target_of(topic: str, kind: str) -> Target:
    """Return how a method on a topic is called.

    Raises:
        ValueError: nothing can be called there.
    """
    spelling = f"{topic}/{kind}"
    try:
        return Target(topic, kind, names.fold(spelling, names.MQTT), spelling)
    except BadName as exc:
        raise ValueError(f"{topic!r} is no topic of a service: {exc}") from exc


def bytes_of(body: Payload | None) -> bytes:
    """Return the bytes of an answer; an empty message is no bytes."""
    if type(body) is Binary:  # as most are
        return body.data
    return b"" if body is None else body.binary()
