"""Streamed results and streamed requests."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence

import pytest

from fiveways.app import request_elements
from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.app.responses import Fail, Reply
from fiveways.errors import Reason
from fiveways.model.messages import Attachment, Call, Cancel, Failure, HubMessage, Part, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Json, Payload, Value
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage, failure_of, make_call, value_of


def make_part(value: object, *, last: bool = False) -> Part:
    return Part("1", Value(value), last=last)


LAST = Part("1", None, last=True)


# Streamed answers.


def counting() -> App:
    app = App()

    @app.method
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    return app


def parts(values: Sequence[object], call_id: str = "1") -> list[HubMessage]:
    sent: list[HubMessage] = [Result(call_id, Value(value), stream=True, last=False) for value in values]
    return [*sent, Result(call_id, None, stream=True)]


@pytest.mark.parametrize("to", [0, 1, 100])
@async_test
async def test_async_generator_sends_parts(to: int) -> None:
    stage = Stage(counting())
    assert await stage.call_all("count", str(to)) == parts(range(to))
    assert await stage.call_all("count", str(to), id="2", stream=True) == parts(range(to), "2")
    assert [offer.kind for offer in stage.dispatcher.registrations()] == ["server"]


@async_test
async def test_parts_are_collected_for_a_caller_without_streams() -> None:
    stage = Stage(counting(), always_stream=False, limits=Limits(max_stream=3))
    assert await stage.call("count", "3") == Result("1", Json(b"[0,1,2]"))
    assert await stage.call("count", "0") == Result("1", Json(b"[]"))
    assert await stage.call_all("count", "1", stream=True) == parts([0])
    assert failure_of(await stage.call("count", "4")) == (
        Reason.RAISED,
        "the result has more than 3 elements; the caller does not support streams",
    )


@pytest.mark.parametrize("in_parts", [True, False])
@async_test
async def test_parts_have_attachments(*, in_parts: bool) -> None:
    app = App()

    @app.method
    async def photos() -> AsyncIterator[Reply]:
        yield Reply(1, [b"one"])
        yield Reply(2, [b"two"])

    stage = Stage(app, always_stream=in_parts)
    await stage.call_all("photos")
    await stage.dispatcher.close()
    results = [message for message in stage.sent if isinstance(message, Result)]
    assert results[0].body == (Value(1) if in_parts else Json(b"[1,2]"))
    names = [name for result in results for name in result.attachments]
    attached = [message for message in stage.sent if isinstance(message, Attachment)]
    assert attached == [Attachment(names[0], b"one"), Attachment(names[1], b"two")]


@async_test
async def test_exception_in_a_stream_ends_it_with_a_failure() -> None:
    app = App()

    @app.method
    async def some(how: str) -> AsyncIterator[object]:
        yield 1
        if how == "raise":
            raise Fail("no more")
        yield object()

    stage = Stage(app)
    first = Result("1", Value(1), stream=True, last=False)
    assert await stage.call_all("some", '"raise"') == [first, Failure("1", Reason.RAISED, "no more")]
    sent = await stage.call_all("some", '"else"')
    assert sent[0] == first
    assert failure_of(sent[1])[1].startswith("the method ran, but a object cannot be sent")
    assert failure_of(await stage.call("some", "[1,2]"))[0] is Reason.BAD_ARGUMENTS


@async_test
async def test_cancelled_stream_is_closed_without_further_parts() -> None:
    app, closed = App(), asyncio.Event()

    @app.method
    async def ticks() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    @app.method
    async def slow() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    stage = Stage(app)
    for method in ("ticks", "slow"):
        stage.receive(make_call(method))
        await stage.until(lambda: len(stage.sent) > 0)
        stage.receive(Cancel("1"))
        count = len(stage.sent)
        await closed.wait()
        await stage.idle()
        assert len(stage.sent) == count
        stage.sent.clear()
        closed.clear()
    stage.receive(make_call("ticks"), Cancel("1"))
    await stage.idle()
    assert stage.sent == []


@async_test
async def test_endless_stream_lets_other_tasks_run() -> None:
    app = counting()
    stage = Stage(app)
    stage.receive(make_call("count", "1000000000", id="long"))
    sent = await stage.call_all("count", "1")
    assert [message for message in sent if isinstance(message, Result) and message.id == "1"] == parts([0])
    await stage.dispatcher.close()


# Streamed requests.


def adding() -> App:
    app = App()

    @app.method
    async def total(numbers: AsyncIterator[int], scale: int = 1) -> int:
        return scale * sum([number async for number in numbers])

    @app.method
    async def doubled(numbers: AsyncIterable[int], *, context: Context) -> AsyncIterator[int]:
        assert context.session == ""
        async for number in numbers:
            yield 2 * number

    @app.method
    async def raw(things: AsyncIterator) -> list[object]:  # type: ignore[type-arg]  # elements of any type
        return [thing async for thing in things]

    @app.method
    async def listed(numbers: list[int]) -> int:
        return sum(numbers)

    @app.method
    def listed_plain(context: Context, numbers: list[int]) -> int:
        return sum(numbers) + len(context.attachments())

    return app


@pytest.mark.parametrize("method", ["total", "listed"])
@pytest.mark.parametrize(
    "rest", [[make_part(2), make_part(3, last=True)], [make_part(5), LAST], [make_part(2), make_part(3), LAST]]
)
@async_test
async def test_streamed_request_is_read_element_by_element_or_as_one_list(method: str, rest: list[HubMessage]) -> None:
    stage = Stage(adding())
    stage.receive(make_call(method, "1", more=True))
    for message in rest:
        await asyncio.sleep(0)
        stage.receive(message)
    await stage.responses(1)
    assert stage.sent == [Result("1", Value(6))]
    stage.receive(make_part(1), LAST)
    assert stage.dispatcher.open_calls() == 0
    assert stage.dispatcher._budget.used == 0


@pytest.mark.parametrize(
    ("body", "numbers"), [("[1,2]", [1, 2]), ("[]", []), ("3", [3]), (NULL, []), (Value((4,)), [4])]
)
@async_test
async def test_method_that_reads_a_stream_accepts_an_array(body: str | Payload, numbers: list[int]) -> None:
    stage = Stage(adding())
    assert value_of(await stage.call("total", body)) == sum(numbers)
    assert value_of(await stage.call("raw", body)) == numbers
    assert await stage.call_all("doubled", body) == parts([2 * number for number in numbers])


@async_test
async def test_request_and_response_stream_concurrently() -> None:
    stage = Stage(adding())
    stage.receive(make_call("doubled", "1", more=True, stream=True))
    await stage.until(lambda: len(stage.sent) == 1)
    stage.receive(make_part(2))
    await stage.until(lambda: len(stage.sent) == 2)
    stage.receive(LAST)
    assert await stage.responses(1) == parts([2, 4])


@async_test
async def test_invalid_element_fails_a_running_method() -> None:
    stage = Stage(adding())
    stage.receive(make_call("total", "1", more=True), make_part("x"))
    await stage.responses(1)
    assert failure_of(stage.sent[0]) == (Reason.RAISED, "element 2: expected int, got str")
    stage.receive(make_call("raw", "1", more=True), Part("1", Json(b'{"$base64":1}')))
    await stage.responses(2)
    sentence = "element 2: the body has no value: $base64 without a string"
    assert failure_of(stage.sent[1]) == (Reason.RAISED, sentence)


@async_test
async def test_invalid_element_refuses_a_call_that_has_not_started() -> None:
    stage = Stage(adding())
    stage.receive(make_call("listed", "1", more=True), make_part("x", last=True))
    assert failure_of(stage.sent[0]) == (Reason.BAD_ARGUMENTS, "argument 'numbers[1]': expected int, got str")
    stage.receive(make_call("listed", "1", more=True), Part("1", Json(b'{"$base64":1}')))
    assert failure_of(stage.sent[1])[0] is Reason.BAD_ARGUMENTS
    assert stage.dispatcher.open_calls() == stage.dispatcher._budget.used == 0


@async_test
async def test_method_removed_during_a_streamed_request_still_runs() -> None:
    app = adding()
    stage = Stage(app)
    stage.receive(make_call("listed", "1", more=True))
    del app.methods["listed"]
    stage.receive(make_part(2, last=True))
    assert await stage.responses(1) == [Result("1", Value(3))]


@async_test
async def test_collected_request_keeps_its_attachments() -> None:
    stage = Stage(adding())
    stage.receive(
        make_call("listed_plain", "1", more=True, attachments=("a",)), Attachment("a", b"x"), make_part(2, last=True)
    )
    await stage.responses(1)
    assert stage.sent == [Result("1", Value(4))]
    await stage.dispatcher.close()


@async_test
async def test_streamed_request_cancelled_before_its_end_is_released() -> None:
    stage = Stage(adding())
    stage.receive(make_call("listed", "1", more=True), make_part(2), Cancel("1"), make_part(3, last=True))
    stage.receive(make_call("total", "1", more=True), make_part(2))
    await asyncio.sleep(0)
    stage.receive(make_part(2), Cancel("1"), make_part(3, last=True))
    await stage.idle()
    assert stage.sent == []
    assert stage.dispatcher.open_calls() == stage.dispatcher._budget.used == 0


@async_test
async def test_unfinished_streamed_request_ends_with_the_application() -> None:
    stage = Stage(adding())
    stage.receive(make_call("listed", "1", more=True), make_call("total", "1", id="2", more=True))
    await stage.dispatcher.close()
    assert [failure_of(message)[0] for message in stage.sent] == [Reason.LOST, Reason.LOST]
    assert stage.dispatcher._budget.used == 0


@async_test
async def test_unread_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_elements, "MAX_BUFFERED", 10_000)
    app, go = adding(), asyncio.Event()

    @app.method
    async def lazy(numbers: AsyncIterator[str]) -> int:
        await go.wait()
        return len([number async for number in numbers])

    stage = Stage(app)
    large = "x" * 6000
    stage.receive(make_call("lazy", Value(large), more=True))
    await asyncio.sleep(0)
    stage.receive(make_part(large))
    assert stage.sent == [Failure("1", Reason.RAISED, "the method reads the stream too slowly")]
    stage.receive(make_call("listed", Value(large), id="2", more=True), Part("2", Value(large)))
    assert failure_of(stage.sent[1]) == (Reason.TOO_LARGE, "the streamed request is too long for one array")
    await stage.idle()
    assert stage.dispatcher._budget.used == 0


@async_test
async def test_collected_request_has_a_bounded_number_of_elements() -> None:
    stage = Stage(adding(), limits=Limits(max_stream=2))
    stage.receive(make_call("listed", "1", more=True), make_part(1, last=True))
    await stage.responses(1)
    stage.receive(make_call("listed", "1", more=True), make_part(1), make_part(1, last=True))
    assert stage.sent[0] == Result("1", Value(2))
    assert failure_of(stage.sent[1])[0] is Reason.TOO_LARGE


@async_test
async def test_streamed_requests_share_one_budget() -> None:
    stage = Stage(adding())
    stage.dispatcher._budget.limit = 1500
    calls = [Call(str(number), "listed", Value("x" * 500), more=True) for number in range(3)]
    stage.receive(*calls)
    assert [message.id for message in stage.sent if isinstance(message, Failure)] == ["2"]
    stage.receive(Cancel("0"), Cancel("1"))
    assert stage.dispatcher._budget.used == 0


@async_test
async def test_parts_without_a_streamed_request_are_ignored() -> None:
    app, go = App(), asyncio.Event()

    @app.method
    async def slow() -> int:
        await go.wait()
        return 1

    stage = Stage(app)
    stage.receive(make_call("slow"), make_part(1), LAST)
    go.set()
    assert await stage.responses(1) == [Result("1", Value(1))]


@pytest.mark.parametrize("large", ["x" * 300_000, Reply(1, [b"x" * 300_000])])
@async_test
async def test_large_parts_let_other_tasks_run(large: object) -> None:
    app, turns = App(), 0

    @app.method
    async def flow() -> AsyncIterator[object]:
        for _ in range(5):
            yield large
        turn_counts.append(turns)

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn) if turns < 100 else None

    turn_counts: list[int] = []
    stage = Stage(app)
    asyncio.get_running_loop().call_soon(turn)
    await stage.call_all("flow")
    assert turn_counts[0] >= 5
