"""Methods at work in tasks and threads: how they are cancelled, and how many there may be."""

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

from fiveways.app import dispatcher, thread_runner
from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.errors import Reason
from fiveways.model.messages import Cancel, Failure, Result
from fiveways.wire.payload import Value
from tests.unit.app.dispatcher_harness import Stage, a_call, failure_of, in_loop, value_of


@in_loop
async def test_a_cancelled_task_is_stopped_and_says_nothing() -> None:
    app, begun, ended = App(), asyncio.Event(), asyncio.Event()

    @app.method
    async def slow() -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 1

    @app.method
    async def quick() -> int:
        return 2

    stage = Stage(app)
    stage.received(a_call("slow"))
    await begun.wait()
    stage.received(Cancel("1"))
    assert stage.dispatcher.open_calls() == 0
    await ended.wait()
    # The id may be used again at once, and a second cancel of it is for the new call only.
    assert value_of(await stage.call("quick")) == 2
    stage.received(Cancel("1"), Cancel("unknown"))
    await stage.dispatcher.close()
    assert len(stage.said) == 1


@in_loop
async def test_a_call_that_is_cancelled_before_it_begins_is_not_run() -> None:
    app, runs = App(), []

    @app.method
    async def note() -> None:
        runs.append(1)

    stage = Stage(app)
    stage.received(a_call("note"), Cancel("1"))
    await stage.call("note", id="2")
    assert runs == [1]
    assert [word.id for word in stage.said if isinstance(word, Result)] == ["2"]
    assert not stage.dispatcher._active_calls


@in_loop
async def test_a_method_that_will_not_be_cancelled_still_says_nothing() -> None:
    app, begun = App(), asyncio.Event()

    @app.method
    async def stubborn(*, again: bool = False) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if again:
                raise ValueError("too late") from None
        return 1

    stage = Stage(app)
    for number, body in enumerate(['{"again":false}', '{"again":true}']):
        begun.clear()
        stage.received(a_call("stubborn", body, id=str(number)))
        await begun.wait()
        stage.received(Cancel(str(number)))
    await stage.dispatcher.close()
    assert stage.said == []


@in_loop
async def test_a_cancelled_thread_runs_on_and_its_answer_is_dropped() -> None:
    app, begun, go = App(), threading.Event(), threading.Event()
    seen: list[bool] = []

    @app.method
    def slow(context: Context) -> int:
        begun.set()
        go.wait(20)
        seen.append(context.cancelled)
        return 1

    stage = Stage(app)
    stage.received(a_call("slow"))
    await asyncio.to_thread(begun.wait, 20)
    stage.received(Cancel("1"))
    assert stage.dispatcher.open_calls() == 0
    assert len(stage.dispatcher._active_calls) == 1
    go.set()
    await stage.idle()
    await stage.dispatcher.close()
    assert seen == [True]
    assert stage.said == []


@in_loop
async def test_a_second_call_under_an_open_id_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    app, go = App(), asyncio.Event()

    @app.method
    async def slow(number: int) -> int:
        await go.wait()
        return number

    stage = Stage(app)
    stage.received(a_call("slow", "1"), a_call("slow", "2"))
    go.set()
    await stage.answers(1)
    await stage.dispatcher.close()
    assert stage.said == [Result("1", Value(1))]
    assert "under the id of another" in caplog.text


@in_loop
async def test_too_many_calls_are_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MAX_RUNNING", 3)
    app, go = App(), asyncio.Event()

    @app.method
    async def slow() -> None:
        await go.wait()

    stage = Stage(app)
    stage.received(*(a_call("slow", id=str(number)) for number in range(4)))
    assert stage.said == [Failure("3", Reason.OVERLOADED, "too many calls are running")]
    # One that was cancelled takes its place until it has ended.
    stage.received(Cancel("0"), a_call("slow", id="4"))
    assert len(stage.said) == 2
    go.set()
    await stage.answers(4)
    assert await stage.call("slow") == Result("1")
    await stage.dispatcher.close()


@in_loop
async def test_too_many_plain_functions_are_refused_and_async_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_runner, "MAX_THREAD_CALLS", 2)
    app, go = App(), threading.Event()

    @app.method
    def slow() -> None:
        go.wait(20)

    @app.method
    async def quick() -> int:
        return 1

    with ThreadPoolExecutor(1) as pool:
        stage = Stage(app, workers=pool)
        stage.received(*(a_call("slow", id=str(number)) for number in range(3)))
        assert stage.said == [Failure("2", Reason.OVERLOADED, "too many calls wait for a thread")]
        # One that nobody wants any more still waits for its thread.
        stage.received(Cancel("1"), a_call("slow", id="3"))
        assert len(stage.said) == 2
        await stage.call("quick", id="4")
        go.set()
        await stage.answers(4)
        await stage.idle()
        assert await stage.call("slow", id="5") == Result("5")
        await stage.dispatcher.close()
        assert pool.submit(int).result() == 0


@in_loop
async def test_threads_that_are_gone_make_a_method_unavailable() -> None:
    app = App()

    @app.method
    def plain() -> None: ...

    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    stage = Stage(app, workers=pool)
    reason, _ = failure_of(await stage.call("plain"))
    assert reason is Reason.UNAVAILABLE
    assert not stage.dispatcher._active_calls


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


@in_loop
async def test_plain_functions_see_the_context_variables_and_do_not_share_them() -> None:
    app = App()

    @app.method
    def swap(new: str) -> str:
        old = request_id.get()
        request_id.set(new)
        return old

    stage = Stage(app)
    request_id.set("outer")
    assert value_of(await stage.call("swap", '"inner"')) == "outer"
    assert value_of(await stage.call("swap", '"inner"')) == "outer"
    await stage.dispatcher.close()


@in_loop
async def test_many_plain_calls_all_answer() -> None:
    app = App()

    @app.method
    def double(number: int) -> int:
        return 2 * number

    stage = Stage(app)
    stage.received(*(a_call("double", str(number), id=str(number)) for number in range(400)))
    said = await stage.answers(400)
    assert sorted(value_of(word) for word in said) == list(range(0, 800, 2))  # type: ignore[type-var]
    await stage.dispatcher.close()


def begun_at_once(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, None, object], **_: object
) -> asyncio.Future[object]:
    """As newer Pythons can do it, for what never waits."""
    future = loop.create_future()
    try:
        coroutine.send(None)
    except StopIteration as end:
        future.set_result(end.value)
    return future


@in_loop
async def test_a_task_may_be_over_before_it_is_known() -> None:
    app = App()

    @app.method
    async def one() -> int:
        return 1

    stage = Stage(app)
    asyncio.get_running_loop().set_task_factory(begun_at_once)  # type: ignore[arg-type]  # it is almost one
    stage.received(a_call("one"))
    asyncio.get_running_loop().set_task_factory(None)
    assert stage.said == [Result("1", Value(1))]
    assert not stage.dispatcher._active_calls


@in_loop
async def test_a_decorator_that_hides_what_is_async_is_found_out() -> None:
    app = App()

    async def hidden() -> int:
        return 1

    def decorated() -> object:
        return hidden()

    app.method("hidden")(decorated)
    stage = Stage(app)
    reason, text = failure_of(await stage.call("hidden"))
    assert reason is Reason.RAISED
    assert text.startswith("TypeError: a plain function returned a coroutine")
    await stage.dispatcher.close()


def test_a_thread_may_end_after_its_loop() -> None:
    go = threading.Event()
    told: list[bool] = []

    async def begin(pool: ThreadPoolExecutor) -> None:
        thread_runner.ThreadRunner(pool).start(lambda: go.wait(20), told.append)

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(begin(pool))
        go.set()
    assert told == []
