"""Functions and stubs of a client's services, and their errors."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import fiveways
from fiveways.client.mqtt import MqttContext
from fiveways.errors import CallFailed, CallTimeout, NotExecuted, Reason
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.rpc_service import BAD, HANG, Greeter, at, message, new_topic, pair, quick
from tests.support.running import async_test


class Odd:
    """Functions with unusual and wrong behaviour."""

    def __init__(self) -> None:
        self.thread = ""
        self.left = 0.0

    def SayHello(self, request: Any, context: MqttContext) -> Any:  # noqa: ANN401, N802
        self.thread = threading.current_thread().name
        if request.name == "secret":
            raise RuntimeError("the password is 1234")
        if request.name == "odd":
            return "no message"
        if request.name == "large":
            return message("HelloReply", text="x" * (2 << 20))
        if request.name == "data":
            raise fiveways.Fail("with a message", "odd", message("CountReply", number=5), code=499)
        self.left = context.remaining
        return message("HelloReply", text=f"{context.topic} {context.method} {context.timeout:.0f}")

    async def sum(self, requests: AsyncIterator[Any], context: MqttContext) -> Any:  # noqa: ANN401
        assert await anext(requests)
        return message("SumReply", total=round(context.timeout))


@pytest.mark.parametrize(
    ("name", "match", "code"),
    [
        ("secret", r"^the method failed \(reference [0-9a-f]{12}\)$", 500),
        ("odd", "a str instead of a demo.HelloReply", 500),
        ("large", "the method ran, but its response cannot be encoded", 500),
        ("data", "with a message", 499),
    ],
)
@async_test
async def test_exception_of_a_function_is_reported_without_its_text(
    broker: RunningBroker, name: str, match: str, code: int
) -> None:
    async with pair(broker, service=Odd()) as it:
        with pytest.raises(CallFailed, match=match) as caught:
            await it.stub().SayHello(message("HelloRequest", name=name))
        assert caught.value.code == code
        assert caught.value.data == (message("CountReply", number=5).SerializeToString() if name == "data" else None)


@async_test
async def test_sync_functions_run_in_threads_with_their_context(broker: RunningBroker) -> None:
    async with pair(broker, service=Odd(), own_timeout=17.0) as it:
        reply = await it.stub().SayHello(message("HelloRequest", name="bob"), timeout=9.0)
        assert reply.text == f"{it.topic} SayHello 9"
        assert it.service.thread.startswith("fiveways-app")
        assert 0 < it.service.left <= 9
        # Without a caller's timeout the service's own applies; a callee may ignore the rest of a stream.
        async with at(broker, quick(timeout=30.0)) as other:
            stub = other.stub(greeter().module, topic=it.topic)
            assert (await stub.Sum(message("SumRequest", number=n) for n in range(100))).total == 17
        with pytest.raises(NotExecuted, match=r"demo\.Greeter has no method Count") as caught:
            await anext(it.stub().Count(message("CountRequest")))
        assert caught.value.reason is Reason.NO_SUCH_METHOD


@async_test
async def test_timeout_of_the_service_cancels_the_function(broker: RunningBroker) -> None:
    async with pair(broker, quick(timeout=30.0), own_timeout=0.3) as it:
        with pytest.raises(CallTimeout, match=r"not done within 0\.3 s"):
            await it.stub().SayHello(message("HelloRequest", name="hang"))
        assert it.service.ended == ["cancelled"]
        with pytest.raises(CallTimeout):
            async for _ in it.stub().Count(message("CountRequest", up_to=HANG)):
                pass
        assert it.service.ended == ["cancelled"] * 2


@async_test
async def test_stopped_service_answers_no_requests(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with at(broker) as caller, at(broker) as callee:
        served = await callee.serve(greeter().module, service, topic=topic)
        stub = caller.stub(greeter().module, topic=topic)
        call = asyncio.ensure_future(stub.SayHello(message("HelloRequest", name="hang")))
        await service.hangs.wait()
        await served.stop(grace=0.05)
        with pytest.raises(fiveways.CallLost, match="stopped"):
            await call
        with pytest.raises(CallTimeout):
            await stub.SayHello(message("HelloRequest", name="bob"), timeout=0.3)
        async with callee.serve(greeter().module, service, topic=topic):
            assert (await stub.SayHello(message("HelloRequest", name="bob"))).text == "hello bob"


@async_test
async def test_running_functions_of_a_stopped_service_may_end(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with at(broker) as caller, at(broker) as callee:
        served = await callee.serve(greeter().module, service, topic=topic)
        stub = caller.stub(greeter().module, topic=topic)
        call = asyncio.ensure_future(stub.SayHello(message("HelloRequest", name="hang")))
        await service.hangs.wait()
        stopping = asyncio.ensure_future(served.stop(grace=30.0))
        await asyncio.sleep(0)
        service.go_on.set()
        await stopping
        assert (await call).text == "hello hang"
        with pytest.raises(CallTimeout):
            await stub.SayHello(message("HelloRequest", name="bob"), timeout=0.3)


class NotAStream:
    async def count(self, _request: object) -> None: ...


class NotAsync:
    def sum(self, _requests: object) -> None: ...


class TakesNothing:
    async def SayHello(self) -> None: ...  # noqa: N802


@pytest.mark.parametrize(
    ("implementation", "match"),
    [
        (NotAStream(), "Count must be an async generator"),
        (NotAsync(), "only an async function can read a stream"),
        (TakesNothing(), "must take the request"),
        (object(), "no function for any method of demo.Greeter"),
    ],
)
@async_test
async def test_unsuitable_functions_are_refused_at_once(
    broker: RunningBroker, implementation: object, match: str
) -> None:
    async with at(broker) as peer:
        with pytest.raises(TypeError, match=match):
            peer.serve(greeter().module, implementation)


@async_test
async def test_stub_refuses_unsendable_arguments(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        stub = it.stub()
        with pytest.raises(TypeError, match=r"SayHello: a CountRequest instead of a demo\.HelloRequest"):
            await stub.SayHello(message("CountRequest"))
        with pytest.raises(AttributeError, match=r"demo\.Greeter has no method SayGoodbye; it has SayHello, Count"):
            _ = stub.SayGoodbye
        with pytest.raises(NotExecuted, match="too large"):
            await stub.SayHello(message("HelloRequest", name="x" * (2 << 20)))
        with pytest.raises(NotExecuted, match="at least one element"):
            await stub.Sum([])
        with pytest.raises(ValueError, match="positive"):
            await stub.SayHello(message("HelloRequest"), timeout=0)
        with pytest.raises(ValueError, match="not a valid service topic"):
            it.caller.stub(greeter().module, topic="/a/#")
        assert it.service.runs == 0


@async_test
async def test_error_within_a_streamed_request_ends_the_call(broker: RunningBroker) -> None:
    async def numbers(last: object) -> AsyncIterator[Any]:
        yield message("SumRequest", number=1)
        yield message("SumRequest", number=2)
        if isinstance(last, Exception):
            raise last
        yield last
        await asyncio.Event().wait()

    async with pair(broker) as it:
        with pytest.raises(ZeroDivisionError):
            await it.stub().Sum(numbers(ZeroDivisionError()))
        with pytest.raises(TypeError, match=r"instead of a demo\.SumRequest"):
            await it.stub().Sum(numbers(message("CountRequest")))
        # The response arrives before the end of the request: nothing waits for the rest of it.
        with pytest.raises(CallFailed, match="no such number"):
            await it.stub().Sum(numbers(message("SumRequest", number=BAD)))
