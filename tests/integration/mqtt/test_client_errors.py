"""Invalid messages of others on a topic that a client serves or calls, and errors of its own functions."""

import asyncio
import logging
from typing import Any

import pytest

from fiveways.errors import CallError, CallFailed, CallTimeout, Cancelled, NotExecuted
from fiveways.protocols.mqtt_rpc.messages import ErrorResponse, Request, Response, encode
from tests.support.broker_processes import RunningBroker
from tests.support.compiled_schema import greeter
from tests.support.rpc_service import HANG, Greeter, at, bare, message, new_topic, pair, quick
from tests.support.running import async_test
from tests.support.waiting import until

HELLO = b"\x0a\x03Bob"


@pytest.mark.parametrize(
    ("kind", "value", "code", "tag"),
    [
        ("SayHello", HELLO[:-1], 400, "hub.bad_arguments"),  # truncated
        ("SayHello", b"\x08\x01\x0a", 400, "hub.bad_arguments"),  # of another schema, and truncated
        ("SayHello", b"\x0a\x02\xff\xff", 400, "hub.bad_arguments"),  # an invalid string
        ("SayGoodbye", HELLO, 404, "hub.no_such_method"),
        ("", None, 404, "hub.no_such_method"),  # a body without a type
    ],
)
@async_test
async def test_invalid_request_is_answered_and_runs_nothing(
    broker: RunningBroker, kind: str, value: bytes | None, code: int, tag: str
) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        link.say(Request(it.topic, 7, kind, value, True))
        answer = await link.answer()
        assert isinstance(answer, ErrorResponse)
        assert (answer.correlation_id, answer.code, answer.tag) == (7, code, tag)
        assert it.service.runs == 0
        assert (await it.stub().SayHello(message("HelloRequest", name="bob"))).text == "hello bob"


@async_test
async def test_message_without_protobuf_is_answered_if_its_id_is_readable(broker: RunningBroker) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        whole = encode(Request(it.topic, 7, "SayHello", HELLO, True, 500, 4)).payload
        link.say(b"hello", b"", whole[:9], b"\x08\x09\x18\x01\x12\x7f")
        answer = await link.answer_for(9)
        assert isinstance(answer, ErrorResponse)
        assert answer.code == 400
        await until(lambda: it.callee.malformed)
        assert it.service.runs == 0


@async_test
async def test_request_type_may_be_a_path_or_folded(broker: RunningBroker) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        link.say(Request(it.topic, 1, "type.example/SayHello", HELLO, True), Request(it.topic, 2, "say_hello", HELLO))
        answers = [await link.answer(), await link.answer()]
        assert [each.correlation_id for each in answers if isinstance(each, Response)] == [1, 2]


@async_test
async def test_repeated_request_is_answered_once(broker: RunningBroker) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        request = Request(it.topic, 7, "SayHello", HELLO, True)
        link.say(request, request)
        assert isinstance(await link.answer(), Response)
        link.say(request, Request(it.topic, 8, "SayHello", HELLO, True))
        assert (await link.answer()).correlation_id == 8
        assert it.service.runs == 2


@async_test
async def test_retained_request_is_ignored(broker: RunningBroker) -> None:
    topic, service = new_topic(), Greeter()
    async with bare(broker, topic) as link, at(broker) as callee:
        link.say(Request(topic, 7, "SayHello", HELLO, True), retain=True)
        await link.request()
        async with callee.serve(greeter().module, service, topic=topic):
            link.say(Request(topic, 8, "SayHello", HELLO, True))
            assert (await link.answer()).correlation_id == 8
        link.say(b"", retain=True)
    assert service.runs == 1


@async_test
async def test_request_stream_without_an_end_times_out(broker: RunningBroker) -> None:
    async with pair(broker, own_timeout=0.3) as it, bare(broker, it.topic) as link:
        link.say(Request(it.topic, 7, "Sum", b"\x08\x01"))
        answer = await link.answer()
        assert isinstance(answer, ErrorResponse)
        assert (answer.code, answer.tag) == (504, "timeout")


@async_test
async def test_unread_request_stream_is_bounded_in_memory(broker: RunningBroker) -> None:
    settings = quick(max_waiting=50_000)
    topic, service = new_topic(), Greeter()
    async with (
        at(broker, settings) as callee,
        callee.serve(greeter().module, service, topic=topic),
        bare(broker, topic) as link,
    ):
        hang = message("SumRequest", number=HANG).SerializeToString()
        link.say(Request(topic, 7, "Sum", hang), *[Request(topic, 7, "Sum", bytes(0)) for _ in range(1000)])
        answer = await link.answer()
        assert isinstance(answer, ErrorResponse)
        assert (answer.code, answer.user_message) == (500, "the method reads the stream too slowly")
        await until(lambda: service.ended)
        assert service.ended == ["cancelled"]
        assert callee._session._budget.used == 0


@async_test
async def test_invalid_element_within_a_stream_fails_the_call(broker: RunningBroker) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        link.say(Request(it.topic, 7, "Sum", b"\x08\x01"), Request(it.topic, 7, "Sum", b"\x08"))
        answer = await link.answer()
        assert isinstance(answer, ErrorResponse)
        # It runs already, so the error must not be `NotExecuted`.
        assert (answer.code, answer.tag) == (400, "bad_part")
        assert "element 2" in answer.user_message


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (Response("", 0, "", b"\x0a\x05no", True), CallFailed, "bytes that are not a demo.HelloReply"),
        (ErrorResponse("", 0, code=503, tag="hub.unavailable", retry_after=70), NotExecuted, "no callee is available"),
        (ErrorResponse("", 0, code=503, tag="own", user_message="later", retry_after=70), CallFailed, "later"),
        (ErrorResponse("", 0, code=504, tag="timeout"), CallTimeout, "/greeter"),
        (ErrorResponse("", 0), CallFailed, "failed"),
    ],
)
@async_test
async def test_responses_are_interpreted_by_status_and_body(
    broker: RunningBroker,
    answer: Response | ErrorResponse,
    error: type[CallError],
    match: str,
) -> None:
    topic = new_topic()
    async with at(broker) as caller, bare(broker, topic) as link:
        stub = caller.stub(greeter().module, topic=topic)
        call = asyncio.ensure_future(stub.say_hello(message("HelloRequest", name="bob")))
        request = await link.request()
        assert (request.type_url, request.value, request.eos) == ("SayHello", b"\x0a\x03bob", True)
        fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
        said: Any = type(answer)
        link.say(said(**fields | {"topic": topic, "correlation_id": request.correlation_id}))
        with pytest.raises(error, match=match) as caught:
            await call
        if getattr(answer, "retry_after", 0):
            assert caught.value.retry_after == 0.07
        assert caller.strays == 0


@async_test
async def test_response_stream_without_an_end_times_out(broker: RunningBroker) -> None:
    topic = new_topic()
    async with at(broker) as caller, bare(broker, topic) as link:
        stub = caller.stub(greeter().module, topic=topic, timeout=2.0)
        parts = stub.Count(message("CountRequest", up_to=9))
        first = asyncio.ensure_future(anext(parts))
        number = (await link.request()).correlation_id
        link.say(Response(topic, number, "", b"\x08\x01"))
        assert (await first).number == 1
        with pytest.raises(CallTimeout):
            await anext(parts)
        # Later parts are unused, and counted.
        link.say(Response(topic, number, "", b"\x08\x02"))
        await until(lambda: caller.strays)


@async_test
async def test_unread_response_stream_is_dropped(broker: RunningBroker) -> None:
    async with pair(broker, quick(max_waiting=100_000)) as it:
        parts = it.stub().Count(message("CountRequest", up_to=5000))
        assert (await anext(parts)).number == 1
        await until(lambda: it.caller.dropped)
        with pytest.raises(Cancelled, match="too many parts"):
            async for _ in parts:
                pass
        assert it.caller._session._budget.used == 0


@async_test
async def test_two_services_on_one_topic_are_logged(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(broker) as it, at(broker) as other:
        async with other.serve(greeter().module, Greeter(), topic=it.topic):
            with caplog.at_level(logging.WARNING):
                for _ in range(5):
                    await it.stub().SayHello(message("HelloRequest", name="bob"))
                await until(lambda: it.caller.strays == it.callee.strays == 5)
        mine = [record for record in caplog.records if "without a request" in record.message]
        assert 1 <= len(mine) <= 3, "each of the three peers says it once, and not again so soon"


@async_test
async def test_own_messages_on_a_shared_topic_are_ignored(broker: RunningBroker) -> None:
    async with pair(broker) as it, bare(broker, it.topic) as link:
        calls = [it.stub().SayHello(message("HelloRequest", name=str(number))) for number in range(50)]
        assert [reply.text for reply in await asyncio.gather(*calls)] == [f"hello {number}" for number in range(50)]
        # All 100 messages returned to both clients before this one.
        link.say(Request(it.topic, 7, "SayHello", HELLO, True))
        assert (await link.answer_for(7)).correlation_id == 7
        assert (it.callee.strays, it.caller.malformed, it.callee.malformed) == (0, 0, 0)
        assert it.service.runs == 51


@async_test
async def test_client_that_serves_a_topic_cannot_call_it(broker: RunningBroker) -> None:
    async with pair(broker) as it:
        stub = it.callee.stub(greeter().module, topic=it.topic)
        with pytest.raises(NotExecuted, match="served by this client itself"):
            await stub.SayHello(message("HelloRequest", name="bob"))
