"""Answers in parts, and requests in parts."""

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
from tests.unit.app.dispatcher_harness import Stage, a_call, failure_of, in_loop, value_of


def a_part(value: object, *, last: bool = False) -> Part:
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
    said: list[HubMessage] = [Result(call_id, Value(value), stream=True, last=False) for value in values]
    return [*said, Result(call_id, None, stream=True)]


@pytest.mark.parametrize("to", [0, 1, 100])
@in_loop
async def test_an_async_generator_answers_in_parts(to: int) -> None:
    stage = Stage(counting())
    assert await stage.call_all("count", str(to)) == parts(range(to))
    assert await stage.call_all("count", str(to), id="2", stream=True) == parts(range(to), "2")
    assert [offer.kind for offer in stage.dispatcher.registrations()] == ["server"]


@in_loop
async def test_parts_are_gathered_where_nobody_else_does_it() -> None:
    stage = Stage(counting(), in_parts=False, limits=Limits(max_stream=3))
    assert await stage.call("count", "3") == Result("1", Json(b"[0,1,2]"))
    assert await stage.call("count", "0") == Result("1", Json(b"[]"))
    assert await stage.call_all("count", "1", stream=True) == parts([0])
    assert failure_of(await stage.call("count", "4")) == (Reason.RAISED, "the answer has more than 3 elements")


@pytest.mark.parametrize("in_parts", [True, False])
@in_loop
async def test_parts_may_carry_attachments(*, in_parts: bool) -> None:
    app = App()

    @app.method
    async def photos() -> AsyncIterator[Reply]:
        yield Reply(1, [b"one"])
        yield Reply(2, [b"two"])

    stage = Stage(app, in_parts=in_parts)
    await stage.call_all("photos")
    await stage.dispatcher.close()
    results = [word for word in stage.said if isinstance(word, Result)]
    assert results[0].body == (Value(1) if in_parts else Json(b"[1,2]"))
    named = [name for result in results for name in result.attachments]
    attached = [word for word in stage.said if isinstance(word, Attachment)]
    assert attached == [Attachment(named[0], b"one"), Attachment(named[1], b"two")]


@in_loop
async def test_a_stream_that_raises_ends_in_a_failure() -> None:
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
    said = await stage.call_all("some", '"else"')
    assert said[0] == first
    assert failure_of(said[1])[1].startswith("the method ran, but a object cannot be sent")
    assert failure_of(await stage.call("some", "[1,2]"))[0] is Reason.BAD_ARGUMENTS


@in_loop
async def test_a_cancelled_stream_is_closed_and_says_nothing_more() -> None:
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
        stage.received(a_call(method))
        await stage.until(lambda: len(stage.said) > 0)
        stage.received(Cancel("1"))
        count = len(stage.said)
        await closed.wait()
        await stage.idle()
        assert len(stage.said) == count
        stage.said.clear()
        closed.clear()
    stage.received(a_call("ticks"), Cancel("1"))
    await stage.idle()
    assert stage.said == []


@in_loop
async def test_an_endless_stream_leaves_room_for_others() -> None:
    app = counting()
    stage = Stage(app)
    stage.received(a_call("count", "1000000000", id="long"))
    said = await stage.call_all("count", "1")
    assert [word for word in said if isinstance(word, Result) and word.id == "1"] == parts([0])
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
@pytest.mark.parametrize("rest", [[a_part(2), a_part(3, last=True)], [a_part(5), LAST], [a_part(2), a_part(3), LAST]])
@in_loop
async def test_a_streamed_request_is_read_as_it_comes_or_as_one_array(method: str, rest: list[HubMessage]) -> None:
    stage = Stage(adding())
    stage.received(a_call(method, "1", more=True))
    for word in rest:
        await asyncio.sleep(0)
        stage.received(word)
    await stage.answers(1)
    assert stage.said == [Result("1", Value(6))]
    stage.received(a_part(1), LAST)
    assert stage.dispatcher.open_calls() == 0
    assert stage.dispatcher._budget.used == 0


@pytest.mark.parametrize(
    ("body", "numbers"), [("[1,2]", [1, 2]), ("[]", []), ("3", [3]), (NULL, []), (Value((4,)), [4])]
)
@in_loop
async def test_a_method_that_reads_a_stream_takes_an_array_too(body: str | Payload, numbers: list[int]) -> None:
    stage = Stage(adding())
    assert value_of(await stage.call("total", body)) == sum(numbers)
    assert value_of(await stage.call("raw", body)) == numbers
    assert await stage.call_all("doubled", body) == parts([2 * number for number in numbers])


@in_loop
async def test_both_sides_may_stream_at_once() -> None:
    stage = Stage(adding())
    stage.received(a_call("doubled", "1", more=True, stream=True))
    await stage.until(lambda: len(stage.said) == 1)
    stage.received(a_part(2))
    await stage.until(lambda: len(stage.said) == 2)
    stage.received(LAST)
    assert await stage.answers(1) == parts([2, 4])


@in_loop
async def test_a_wrong_element_fails_a_method_that_runs() -> None:
    stage = Stage(adding())
    stage.received(a_call("total", "1", more=True), a_part("x"))
    await stage.answers(1)
    assert failure_of(stage.said[0]) == (Reason.RAISED, "element 2: expected int, got str")
    stage.received(a_call("raw", "1", more=True), Part("1", Json(b'{"$base64":1}')))
    await stage.answers(2)
    sentence = "element 2: the body has no value: $base64 without a string"
    assert failure_of(stage.said[1]) == (Reason.RAISED, sentence)


@in_loop
async def test_a_wrong_element_refuses_a_method_that_has_not_begun() -> None:
    stage = Stage(adding())
    stage.received(a_call("listed", "1", more=True), a_part("x", last=True))
    assert failure_of(stage.said[0]) == (Reason.BAD_ARGUMENTS, "argument 'numbers[1]': expected int, got str")
    stage.received(a_call("listed", "1", more=True), Part("1", Json(b'{"$base64":1}')))
    assert failure_of(stage.said[1])[0] is Reason.BAD_ARGUMENTS
    assert stage.dispatcher.open_calls() == stage.dispatcher._budget.used == 0


@in_loop
async def test_a_method_that_is_gone_meanwhile_still_gets_its_request() -> None:
    app = adding()
    stage = Stage(app)
    stage.received(a_call("listed", "1", more=True))
    del app.methods["listed"]
    stage.received(a_part(2, last=True))
    assert await stage.answers(1) == [Result("1", Value(3))]


@in_loop
async def test_a_gathered_request_keeps_its_attachments() -> None:
    stage = Stage(adding())
    stage.received(
        a_call("listed_plain", "1", more=True, attachments=("a",)), Attachment("a", b"x"), a_part(2, last=True)
    )
    await stage.answers(1)
    assert stage.said == [Result("1", Value(4))]
    await stage.dispatcher.close()


@in_loop
async def test_a_request_that_is_cancelled_while_it_comes_is_forgotten() -> None:
    stage = Stage(adding())
    stage.received(a_call("listed", "1", more=True), a_part(2), Cancel("1"), a_part(3, last=True))
    stage.received(a_call("total", "1", more=True), a_part(2))
    await asyncio.sleep(0)
    stage.received(a_part(2), Cancel("1"), a_part(3, last=True))
    await stage.idle()
    assert stage.said == []
    assert stage.dispatcher.open_calls() == stage.dispatcher._budget.used == 0


@in_loop
async def test_a_request_that_is_never_finished_ends_with_the_application() -> None:
    stage = Stage(adding())
    stage.received(a_call("listed", "1", more=True), a_call("total", "1", id="2", more=True))
    await stage.dispatcher.close()
    assert [failure_of(word)[0] for word in stage.said] == [Reason.LOST, Reason.LOST]
    assert stage.dispatcher._budget.used == 0


@in_loop
async def test_what_waits_to_be_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_elements, "MAX_BUFFERED", 10_000)
    app, go = adding(), asyncio.Event()

    @app.method
    async def lazy(numbers: AsyncIterator[str]) -> int:
        await go.wait()
        return len([number async for number in numbers])

    stage = Stage(app)
    large = "x" * 6000
    stage.received(a_call("lazy", Value(large), more=True))
    await asyncio.sleep(0)
    stage.received(a_part(large))
    assert stage.said == [Failure("1", Reason.RAISED, "the method reads the stream too slowly")]
    stage.received(a_call("listed", Value(large), id="2", more=True), Part("2", Value(large)))
    assert failure_of(stage.said[1]) == (Reason.TOO_LARGE, "the stream is too long to be taken as one array")
    await stage.idle()
    assert stage.dispatcher._budget.used == 0


@in_loop
async def test_a_gathered_request_has_a_bounded_number_of_elements() -> None:
    stage = Stage(adding(), limits=Limits(max_stream=2))
    stage.received(a_call("listed", "1", more=True), a_part(1, last=True))
    await stage.answers(1)
    stage.received(a_call("listed", "1", more=True), a_part(1), a_part(1, last=True))
    assert stage.said[0] == Result("1", Value(2))
    assert failure_of(stage.said[1])[0] is Reason.TOO_LARGE


@in_loop
async def test_all_calls_share_one_budget() -> None:
    stage = Stage(adding())
    stage.dispatcher._budget.limit = 1500
    calls = [Call(str(number), "listed", Value("x" * 500), more=True) for number in range(3)]
    stage.received(*calls)
    assert [word.id for word in stage.said if isinstance(word, Failure)] == ["2"]
    stage.received(Cancel("0"), Cancel("1"))
    assert stage.dispatcher._budget.used == 0


@in_loop
async def test_parts_of_what_is_no_stream_are_ignored() -> None:
    app, go = App(), asyncio.Event()

    @app.method
    async def slow() -> int:
        await go.wait()
        return 1

    stage = Stage(app)
    stage.received(a_call("slow"), a_part(1), LAST)
    go.set()
    assert await stage.answers(1) == [Result("1", Value(1))]


@pytest.mark.parametrize("large", ["x" * 300_000, Reply(1, [b"x" * 300_000])])
@in_loop
async def test_large_parts_give_everybody_else_a_turn(large: object) -> None:
    app, turns = App(), 0

    @app.method
    async def flow() -> AsyncIterator[object]:
        for _ in range(5):
            yield large
        told.append(turns)

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn) if turns < 100 else None

    told: list[int] = []
    stage = Stage(app)
    asyncio.get_running_loop().call_soon(turn)
    await stage.call_all("flow")
    assert told[0] >= 5
