"""Methods that run in tasks and threads: cancellation, limits and context variables."""

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
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage, failure_of, make_call, value_of


@async_test
async def test_cancelled_async_method_stops_without_a_response() -> None:
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
    stage.receive(make_call("slow"))
    await begun.wait()
    stage.receive(Cancel("1"))
    assert stage.dispatcher.open_calls() == 0
    await ended.wait()
    # The id may be reused immediately; a second cancel applies only to the new call.
    assert value_of(await stage.call("quick")) == 2
    stage.receive(Cancel("1"), Cancel("unknown"))
    await stage.dispatcher.close()
    assert len(stage.sent) == 1


@async_test
async def test_call_cancelled_before_its_start_does_not_run() -> None:
    app, runs = App(), []

    @app.method
    async def note() -> None:
        runs.append(1)

    stage = Stage(app)
    stage.receive(make_call("note"), Cancel("1"))
    await stage.call("note", id="2")
    assert runs == [1]
    assert [message.id for message in stage.sent if isinstance(message, Result)] == ["2"]
    assert not stage.dispatcher._active_calls


@async_test
async def test_method_that_suppresses_cancellation_sends_no_response() -> None:
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
        stage.receive(make_call("stubborn", body, id=str(number)))
        await begun.wait()
        stage.receive(Cancel(str(number)))
    await stage.dispatcher.close()
    assert stage.sent == []


@async_test
async def test_cancelled_call_in_a_thread_runs_on_without_a_response() -> None:
    app, begun, go = App(), threading.Event(), threading.Event()
    seen: list[bool] = []

    @app.method
    def slow(context: Context) -> int:
        begun.set()
        go.wait(20)
        seen.append(context.cancelled)
        return 1

    stage = Stage(app)
    stage.receive(make_call("slow"))
    await asyncio.to_thread(begun.wait, 20)
    stage.receive(Cancel("1"))
    assert stage.dispatcher.open_calls() == 0
    assert len(stage.dispatcher._active_calls) == 1
    go.set()
    await stage.idle()
    await stage.dispatcher.close()
    assert seen == [True]
    assert stage.sent == []


@async_test
async def test_second_call_with_an_open_id_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    app, go = App(), asyncio.Event()

    @app.method
    async def slow(number: int) -> int:
        await go.wait()
        return number

    stage = Stage(app)
    stage.receive(make_call("slow", "1"), make_call("slow", "2"))
    go.set()
    await stage.responses(1)
    await stage.dispatcher.close()
    assert stage.sent == [Result("1", Value(1))]
    assert "with the id of another" in caplog.text


@async_test
async def test_calls_above_the_limit_are_refused_as_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MAX_RUNNING", 3)
    app, go = App(), asyncio.Event()

    @app.method
    async def slow() -> None:
        await go.wait()

    stage = Stage(app)
    stage.receive(*(make_call("slow", id=str(number)) for number in range(4)))
    assert stage.sent == [Failure("3", Reason.OVERLOADED, "too many calls are running")]
    # A cancelled call counts until its method has ended.
    stage.receive(Cancel("0"), make_call("slow", id="4"))
    assert len(stage.sent) == 2
    go.set()
    await stage.responses(4)
    assert await stage.call("slow") == Result("1")
    await stage.dispatcher.close()


@async_test
async def test_thread_limit_refuses_only_functions_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_runner, "MAX_THREAD_CALLS", 2)
    app, go = App(), threading.Event()

    @app.method
    def slow() -> None:
        go.wait(20)

    @app.method
    async def quick() -> int:
        return 1

    with ThreadPoolExecutor(1) as pool:
        stage = Stage(app, executor=pool)
        stage.receive(*(make_call("slow", id=str(number)) for number in range(3)))
        assert stage.sent == [Failure("2", Reason.OVERLOADED, "too many calls wait for a thread")]
        # A cancelled call still waits for its thread.
        stage.receive(Cancel("1"), make_call("slow", id="3"))
        assert len(stage.sent) == 2
        await stage.call("quick", id="4")
        go.set()
        await stage.responses(4)
        await stage.idle()
        assert await stage.call("slow", id="5") == Result("5")
        await stage.dispatcher.close()
        assert pool.submit(int).result() == 0


@async_test
async def test_method_is_unavailable_after_executor_shutdown() -> None:
    app = App()

    @app.method
    def plain() -> None: ...

    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    stage = Stage(app, executor=pool)
    reason, _ = failure_of(await stage.call("plain"))
    assert reason is Reason.UNAVAILABLE
    assert not stage.dispatcher._active_calls


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


@async_test
async def test_functions_in_threads_get_a_copy_of_the_context_variables() -> None:
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


@async_test
async def test_many_calls_in_threads_all_get_a_response() -> None:
    app = App()

    @app.method
    def double(number: int) -> int:
        return 2 * number

    stage = Stage(app)
    stage.receive(*(make_call("double", str(number), id=str(number)) for number in range(400)))
    responses = await stage.responses(400)
    assert sorted(value_of(message) for message in responses) == list(range(0, 800, 2))  # type: ignore[type-var]
    await stage.dispatcher.close()


def start_eagerly(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, None, object], **_: object
) -> asyncio.Future[object]:
    """Run a coroutine that never waits, as eager tasks of newer Python versions do."""
    future = loop.create_future()
    try:
        coroutine.send(None)
    except StopIteration as end:
        future.set_result(end.value)
    return future


@async_test
async def test_task_may_end_during_its_creation() -> None:
    app = App()

    @app.method
    async def one() -> int:
        return 1

    stage = Stage(app)
    asyncio.get_running_loop().set_task_factory(start_eagerly)  # type: ignore[arg-type]  # close enough to the signature
    stage.receive(make_call("one"))
    asyncio.get_running_loop().set_task_factory(None)
    assert stage.sent == [Result("1", Value(1))]
    assert not stage.dispatcher._active_calls


@async_test
async def test_coroutine_returned_by_a_function_in_a_thread_fails_the_call() -> None:
    app = App()

    async def hidden() -> int:
        return 1

    def decorated() -> object:
        return hidden()

    app.method("hidden")(decorated)
    stage = Stage(app)
    reason, text = failure_of(await stage.call("hidden"))
    assert reason is Reason.RAISED
    assert text.startswith("TypeError: a function that is not async returned a coroutine")
    await stage.dispatcher.close()


def test_thread_may_end_after_the_event_loop_was_closed() -> None:
    go = threading.Event()
    outcomes: list[bool] = []

    async def begin(pool: ThreadPoolExecutor) -> None:
        thread_runner.ThreadRunner(pool).start(lambda: go.wait(20), outcomes.append)

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(begin(pool))
        go.set()
    assert outcomes == []
