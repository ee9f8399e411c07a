"""The `Context` of a method: caller, hub, progress, attachments and waits."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest

from fiveways.app.app import App
from fiveways.app.attachments import AttachmentError
from fiveways.app.context import CallerInfo, Context
from fiveways.app.jobs import JobPull
from fiveways.app.responses import Reply
from fiveways.errors import LocalProtocolError, Reason
from fiveways.model.messages import Attachment, Cancel, Failure, HubMessage, Progress, Result
from fiveways.wire.blob import Blob
from fiveways.wire.payload import Json, Value
from tests.support.running import async_test
from tests.unit.app.dispatcher_harness import Stage, failure_of, make_call, value_of


@dataclass
class Known:
    peer: str
    protocol: str = "umq"
    identity: str = "ann"
    variables: Mapping[str, object] = field(default_factory=lambda: {"lang": "de"})


class Hub:
    """A hub that returns the request in its response."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def call(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of HubApi
        attachments: Sequence[bytes] = (),
    ) -> object:
        await asyncio.sleep(0)
        return [method, body, timeout, len(attachments)]

    async def publish(
        self, topic: str, data: object = None, *, retain: bool = False, attachments: Sequence[bytes] = ()
    ) -> None:
        self.seen.append((topic, data, retain, attachments))

    async def call_reply(
        self,
        method: str,
        body: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of HubApi
        attachments: Sequence[bytes] = (),
    ) -> Reply:
        return Reply(await self.call(method, body, timeout=timeout, attachments=attachments))

    async def callback(self, function: Callable[..., object]) -> str:
        self.seen.append(function)
        return "token"

    def pull(self, queue: str, *, timeout: float | None = None) -> JobPull:
        raise NotImplementedError


@async_test
async def test_context_has_the_caller() -> None:
    app = App()

    @app.method
    async def who(context: Context) -> list[object]:
        peer = context.peer
        return [context.session, peer.protocol, context.identity, context.variables["lang"], context.timeout]

    @app.method
    async def nobody(context: Context) -> list[object]:
        return [context.session, context.peer.protocol, context.identity, dict(context.variables)]

    callers: dict[str, CallerInfo] = {"1": Known("session-7")}
    stage = Stage(app, find_caller=callers.get)
    assert value_of(await stage.call("who", timeout=2.5)) == ["session-7", "umq", "ann", "de", 2.5]
    assert value_of(await stage.call("nobody", id="2")) == ["", "", "", {}]
    assert value_of(await Stage(app).call("nobody")) == ["", "", "", {}]


@async_test
async def test_context_calls_and_publishes_at_the_hub() -> None:
    app, hub = App(), Hub()

    @app.method
    async def ask(context: Context) -> object:
        await context.publish("a.b", 1, retain=True)
        return await context.call("other", {"x": 1}, timeout=3, attachments=[b""])

    @app.method
    def ask_plain(context: Context) -> object:
        context.wait(context.publish("a.c"))
        return context.wait(context.call("other"))

    @app.startup
    async def begin(context: Context) -> None:
        await context.publish("begun")

    stage = Stage(app, hub=hub)
    await stage.dispatcher.start()
    assert value_of(await stage.call("ask")) == ["other", {"x": 1}, 3, 1]
    assert value_of(await stage.call("ask_plain")) == ["other", None, None, 0]
    assert hub.seen == [("begun", None, False, ()), ("a.b", 1, True, ()), ("a.c", None, False, ())]
    await stage.dispatcher.close()
    assert failure_of(await Stage(app).call("ask")) == (
        Reason.RAISED,
        "RuntimeError: this application is not served: there is no hub to reach",
    )


@async_test
async def test_wait_in_the_event_loop_raises_runtime_error() -> None:
    app = App()

    @app.method
    async def ask(context: Context) -> object:
        return context.wait(context.call("other"))

    failure = failure_of(await Stage(app, hub=Hub()).call("ask"))
    assert failure == (Reason.RAISED, "RuntimeError: wait() is for functions that run in a thread; use `await` here")


@async_test
async def test_cancelling_a_call_ends_the_wait_of_its_thread() -> None:
    app, begun, ended = App(), threading.Event(), threading.Event()

    @app.method
    def slow(context: Context) -> None:
        begun.set()
        try:
            context.wait(asyncio.Event().wait())
        except CancelledError:
            with pytest.raises(CancelledError):
                context.wait(asyncio.Event().wait())
            ended.set()

    stage = Stage(app)
    stage.receive(make_call("slow"))
    await asyncio.to_thread(begun.wait, 20)
    stage.receive(Cancel("1"))
    assert await asyncio.to_thread(ended.wait, 20)
    await stage.idle()
    await stage.dispatcher.close()
    assert stage.sent == []


# Progress.


def reporting() -> App:
    app = App()

    @app.method
    async def work(context: Context) -> int:
        context.progress(50, "half")
        context.progress({"percent": 99})
        await asyncio.sleep(0)
        return 1

    @app.method
    def work_plain(context: Context) -> int:
        context.progress(50, "half")
        context.progress({"percent": 99})
        return 1

    return app


@pytest.mark.parametrize("method", ["work", "work_plain"])
@async_test
async def test_progress_is_sent_before_the_result_if_requested(method: str) -> None:
    stage = Stage(reporting())
    assert await stage.call(method) == Result("1", Value(1))
    assert await stage.call_all(method, progress=True) == [
        Progress("1", Value(50), text="half"),
        Progress("1", Json(b'{"percent":99}')),
        Result("1", Value(1)),
    ]
    await stage.dispatcher.close()


class Narrow(Stage):
    """A stage for a protocol without progress."""

    def _send(self, message: HubMessage) -> None:
        if isinstance(message, Progress):
            raise LocalProtocolError("no progress here")
        super()._send(message)


@async_test
async def test_progress_that_cannot_be_encoded_is_dropped() -> None:
    assert await Narrow(reporting()).call_all("work", progress=True) == [Result("1", Value(1))]


@async_test
async def test_progress_after_the_response_is_dropped() -> None:
    app = App()
    kept: list[Context] = []

    @app.method
    async def keep(context: Context) -> None:
        kept.append(context)

    stage = Stage(app)
    await stage.call("keep", progress=True)
    kept[0].progress(1)
    await asyncio.to_thread(kept[0].progress, 2)
    stage.receive(make_call("keep", progress=True), Cancel("1"))
    await stage.idle()
    assert stage.sent == [Result("1")]


# Attachments.


class Memory(Blob):
    """A blob with its content elsewhere on disk."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]


def reading() -> App:
    app = App()

    @app.method
    async def lengths(context: Context) -> list[int]:
        assert len(context.attachments()) == len(await context.attachments())
        return [len(data) for data in await context.attachments()]

    @app.method
    async def one_by_one(context: Context) -> list[int]:
        return [len(data) async for data in context.attachments()]

    @app.method
    def lengths_plain(context: Context) -> list[int]:
        return [len(data) for data in context.wait(context.attachments())]

    @app.method
    async def deaf() -> int:
        return 1

    return app


@pytest.mark.parametrize("method", ["lengths", "one_by_one", "lengths_plain"])
@async_test
async def test_method_waits_for_attachments(method: str) -> None:
    stage = Stage(reading())
    stage.receive(make_call(method, attachments=("a", "b", "c")), Attachment("b", b"22"), Attachment("other", b""))
    await asyncio.sleep(0)
    stage.receive(Attachment("c", Memory(b"333")))
    await asyncio.sleep(0)
    assert stage.sent == []
    stage.receive(Attachment("a", b"1"))
    assert value_of((await stage.responses(1))[0]) == [1, 2, 3]
    assert value_of(await stage.call(method, id="2")) == []
    await stage.dispatcher.close()
    assert stage.dispatcher._budget.used == 0
    assert not stage.dispatcher._pending_attachments._slots


@pytest.mark.parametrize("method", ["lengths", "one_by_one", "lengths_plain"])
@async_test
async def test_failed_attachment_raises_attachment_error(method: str) -> None:
    stage = Stage(reading())
    stage.receive(
        make_call(method, attachments=("a", "b")), Attachment("a", b"1"), Attachment("b", error="the sender is gone")
    )
    failure = failure_of((await stage.responses(1))[0])
    assert failure == (Reason.RAISED, "AttachmentError: the sender is gone")
    await stage.dispatcher.close()


@async_test
async def test_attachments_without_a_context_are_dropped() -> None:
    stage = Stage(reading())
    stage.receive(make_call("deaf", attachments=("a",)), Attachment("a", b"1"))
    stage.receive(make_call("lengths", "[1]", id="2", attachments=("b",)), Attachment("b", b"1"))
    await stage.responses(2)
    stage.receive(make_call("lengths", id="3", attachments=("c",)), Cancel("3"), Attachment("c", b"1"))
    await stage.idle()
    assert stage.dispatcher._budget.used == 0
    assert not stage.dispatcher._pending_attachments._slots


@async_test
async def test_attachments_in_memory_are_bounded_by_the_budget() -> None:
    stage = Stage(reading())
    stage.dispatcher._budget.limit = 10
    stage.receive(make_call("lengths", attachments=("a", "b", "c")))
    stage.receive(Attachment("a", Memory(b"x" * 100)), Attachment("b", b"x" * 10), Attachment("c", b"x"))
    failure = failure_of((await stage.responses(1))[0])
    assert failure == (Reason.RAISED, "AttachmentError: too many bytes of attachments wait to be read")
    assert stage.dispatcher._budget.used == 0
    # Attachments that were read one by one no longer use the budget.
    stage.sent.clear()
    stage.receive(make_call("one_by_one", attachments=("a", "b")), Attachment("a", b"x" * 10))
    while stage.dispatcher._budget.used:  # noqa: ASYNC110  # no message follows the read
        await asyncio.sleep(0)
    stage.receive(Attachment("b", b"x" * 10))
    assert value_of((await stage.responses(1))[0]) == [10, 10]
    assert stage.dispatcher._budget.used == 0


@async_test
async def test_attachment_read_before_or_after_the_call_raises_attachment_error() -> None:
    app = App()
    kept: list[Context] = []

    @app.method
    async def twice(context: Context) -> list[bytes]:
        assert [data async for data in context.attachments()] == [b"1"]
        return await context.attachments()

    @app.method
    async def keep(context: Context) -> None:
        kept.append(context)

    stage = Stage(app)
    stage.receive(make_call("twice", attachments=("a",)), Attachment("a", b"1"))
    await stage.responses(1)
    assert failure_of(stage.sent[0])[1] == "AttachmentError: the attachment was read already"
    await stage.call("keep", id="2", attachments=("b",))
    with pytest.raises(AttachmentError, match="is over"):
        await kept[0].attachments()


@async_test
async def test_call_that_waits_for_attachments_can_be_cancelled() -> None:
    stage = Stage(reading())
    stage.receive(make_call("lengths", attachments=("a",)), make_call("lengths", id="2", attachments=("b",)))
    await asyncio.sleep(0)
    stage.receive(Cancel("1"), Attachment("a", b"1"), Attachment("b", b"22"))
    await stage.responses(1)
    await stage.idle()
    assert [message for message in stage.sent if not isinstance(message, Failure)] == [Result("2", Json(b"[2]"))]
