"""Startup and shutdown of an application."""

import asyncio
import threading

import pytest

from fiveways.app import dispatcher
from fiveways.app.app import App
from fiveways.app.context import Context
from fiveways.errors import Reason
from fiveways.model.messages import Failure, HubMessage, Result
from fiveways.wire.payload import Value
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage, failure_of, make_call


@async_test
async def test_close_fails_and_cancels_open_calls() -> None:
    app, begun, ended = App(), asyncio.Event(), []

    @app.method
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    @app.shutdown
    def end() -> None:
        ended.append("hook")

    @app.shutdown
    async def end_badly() -> None:
        raise ValueError

    @app.shutdown
    async def end_last(context: Context) -> None:
        ended.append(context.session)

    stage = Stage(app)
    await stage.dispatcher.start()
    stage.receive(make_call("slow"))
    await begun.wait()
    await stage.dispatcher.close()
    await stage.dispatcher.close()
    assert stage.sent == [Failure("1", Reason.LOST, "the application was closed before the method ended")]
    assert ended == ["task", "hook", ""]
    stage.receive(make_call("slow"))
    assert failure_of(stage.sent[-1]) == (Reason.UNAVAILABLE, "the application is closing")


@async_test
async def test_close_waits_only_for_the_grace_period(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher, "GRACE", 0.01)
    app, begun, go = App(), asyncio.Event(), asyncio.Event()

    @app.method
    async def stubborn() -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    stage = Stage(app)
    stage.receive(make_call("stubborn"))
    await begun.wait()
    await stage.dispatcher.close()
    assert "cancelled tasks still run tasks=1" in caplog.text
    go.set()
    await stage.idle()


@async_test
async def test_method_may_close_its_own_application() -> None:
    app = App()
    stage = Stage(app)

    @app.method
    async def stop() -> None:
        await stage.dispatcher.close()

    stage.receive(make_call("stop"))
    await stage.responses(1)
    assert failure_of(stage.sent[0])[0] is Reason.LOST


@async_test
async def test_hooks_run_in_order_and_startup_errors_are_raised() -> None:
    app = App()
    order: list[str] = []

    @app.startup
    def first() -> None:
        order.append(f"first {threading.current_thread() is threading.main_thread()}")

    @app.startup
    async def second() -> None:
        order.append("second")

    @app.startup
    async def third() -> None:
        raise ValueError("no database")

    stage = Stage(app)
    with pytest.raises(ValueError, match="no database"):
        await stage.dispatcher.start()
    assert order == ["first False", "second"]
    await stage.dispatcher.close()


def test_declaration_needs_no_event_loop() -> None:
    app = App()

    @app.method
    async def one() -> int:
        return 1

    async def serve() -> list[HubMessage]:
        stage = Stage(app)
        await stage.call("one")
        await stage.dispatcher.close()
        return stage.sent

    # One application may be served in successive event loops.
    assert asyncio.run(serve()) == asyncio.run(serve()) == [Result("1", Value(1))]
