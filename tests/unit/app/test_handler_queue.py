"""Queues of event handlers: order, limits and errors."""

import asyncio
import logging
import threading

import pytest

from fiveways.app import handler_queue
from fiveways.app.app import App
from fiveways.app.attachments import AttachmentError
from fiveways.app.events import Event
from fiveways.errors import Reason
from fiveways.model import messages
from fiveways.model.topics import UMQ, parse_pattern
from fiveways.wire.payload import Json, Text, Value
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage


def make_event(value: object, subscription: str = "1", **options: object) -> messages.Event:
    fields = {"topic": ("a", "b.c"), "body": Value(value), **options}
    return messages.Event(subscription, **fields)  # type: ignore[arg-type]  # options of any type


class Seen:
    """Events that a handler got."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def add(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, count: int) -> list[Event]:
        while len(self.events) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.events


@async_test
async def test_handlers_are_subscribed_and_get_events() -> None:
    app, first, second = App(), Seen(), Seen()

    @app.on("a.*")
    async def follow(event: Event) -> None:
        first.add(event)

    loop = asyncio.get_running_loop()

    @app.on("x")
    def follow_plain(event: Event) -> None:
        assert threading.current_thread() is not threading.main_thread()
        loop.call_soon_threadsafe(second.add, event)

    stage = Stage(app)
    assert stage.dispatcher.subscriptions() == [
        messages.Subscribe("subscribe a.*", parse_pattern("a.*", UMQ), "1"),
        messages.Subscribe("subscribe x", parse_pattern("x", UMQ), "2"),
    ]
    stage.receive(make_event(1), make_event("text", "2", topic=("x",), missed=3), make_event(0, "unknown"))
    assert await first.until(1) == [Event("a.b%2Ec", 1)]
    assert await second.until(1) == [Event("x", "text", 3)]
    stage.receive(messages.Event("1", ("a",), Text("[1]")))
    assert (await first.until(2))[1].data == [1]
    await stage.dispatcher.close()
    assert stage.sent == []


@async_test
async def test_events_are_handled_in_order_one_at_a_time() -> None:
    app, seen, active = App(), Seen(), []

    @app.on("a")
    async def follow(event: Event) -> None:
        active.append(1)
        assert len(active) == 1
        await asyncio.sleep(0)
        active.pop()
        seen.add(event)

    stage = Stage(app)
    stage.receive(*map(make_event, range(20)))
    assert [event.data for event in await seen.until(20)] == list(range(20))


@async_test
async def test_slow_handler_misses_events_and_gets_their_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handler_queue, "MAX_EVENTS", 2)
    app, seen, go = App(), Seen(), asyncio.Event()

    @app.on("a")
    async def follow(event: Event) -> None:
        seen.add(event)
        await go.wait()

    stage = Stage(app)
    stage.receive(make_event(0))
    await seen.until(1)
    stage.receive(make_event(1), make_event(2), make_event(3), make_event(4, missed=5))
    go.set()
    await seen.until(3)
    stage.receive(make_event(5, missed=1), make_event(6))
    await seen.until(5)
    assert [(event.data, event.missed) for event in seen.events] == [(0, 0), (1, 0), (2, 0), (5, 8), (6, 0)]
    assert len(caplog.records) == 1
    assert "dropped events: the handler is too slow handler=on a" in caplog.text


@async_test
async def test_queued_events_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_queue, "MAX_BYTES", 2000)
    app, seen = App(), Seen()

    @app.on("a")
    async def follow(event: Event) -> None:
        seen.add(event)

    stage = Stage(app)
    stage.receive(make_event("x" * 1500), make_event("y" * 1500))
    await seen.until(1)
    stage.receive(make_event("z" * 1500))
    assert [(str(event.data)[0], event.missed) for event in await seen.until(2)] == [("x", 0), ("z", 1)]


@async_test
async def test_failing_handler_gets_the_next_event(caplog: pytest.LogCaptureFixture) -> None:
    app, seen = App(), Seen()
    errors = [ValueError("bad"), SystemExit(1), asyncio.CancelledError()]

    @app.on("a")
    async def follow(event: Event) -> None:
        seen.add(event)
        if errors:
            raise errors.pop(0)

    stage = Stage(app)
    bad = messages.Event("1", ("a",), Json(b'{"$base64":1}'))
    stage.receive(make_event(1), make_event(2), make_event(3), bad, make_event(4))
    assert [event.data for event in await seen.until(4)] == [1, 2, 3, 4]
    assert [record.getMessage() for record in caplog.records] == [
        "a handler failed topic=a",
        "a handler failed topic=a",
        "a handler cancelled itself topic=a",
        "a handler failed topic=a",
    ]


@async_test
async def test_event_has_attachments() -> None:
    app, seen = App(), Seen()
    got: list[object] = []

    @app.on("a")
    async def follow(event: Event) -> None:
        try:
            got.append(await event.attachments())
        except AttachmentError as exc:
            got.append(str(exc))
        seen.add(event)

    stage = Stage(app)
    stage.receive(make_event(1, attachments=("x",)), make_event(2, attachments=("y",)))
    stage.receive(messages.Attachment("y", error="lost"), messages.Attachment("x", b"1"))
    await seen.until(2)
    assert got == [[b"1"], "lost"]
    await stage.dispatcher.close()
    assert stage.dispatcher._budget.used == 0
    assert await Event("a").attachments() == []


@async_test
async def test_close_drops_queued_events() -> None:
    app, seen = App(), Seen()

    @app.on("a")
    async def follow(event: Event) -> None:
        seen.add(event)
        await asyncio.Event().wait()

    stage = Stage(app)
    stage.receive(make_event(1), make_event(2, attachments=("x",)), messages.Attachment("x", b"1"))
    await seen.until(1)
    await stage.dispatcher.close()
    stage.receive(make_event(3))
    await asyncio.sleep(0)
    assert [event.data for event in seen.events] == [1]
    assert stage.dispatcher._budget.used == 0


@async_test
async def test_closed_topic_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    app.on("a.b")(print)
    stage = Stage(app)
    with caplog.at_level(logging.INFO):
        stage.receive(messages.TopicClosed("1"), messages.TopicClosed("unknown"))
    assert [record.getMessage() for record in caplog.records] == ["the topic of an event handler was closed topic=a.b"]
    stage.receive(messages.Failure("subscribe a.b", Reason.DENIED))
