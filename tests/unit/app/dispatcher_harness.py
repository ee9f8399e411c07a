"""A test harness: an application with a dispatcher that records its messages."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import ParamSpec

from fiveways.app.app import App
from fiveways.app.context import CallerInfo, HubApi
from fiveways.app.dispatcher import Dispatcher
from fiveways.errors import Reason
from fiveways.model.messages import Call, Failure, HubMessage, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Json, Payload

P = ParamSpec("P")


class Stage:
    """An application with its dispatcher, in a running event loop."""

    def __init__(
        self,
        app: App,
        *,
        find_caller: Callable[[str], CallerInfo | None] | None = None,
        hub: HubApi | None = None,
        executor: Executor | None = None,
        limits: Limits = Limits(),
        always_stream: bool = True,
        show_errors: bool = True,
    ) -> None:
        app.show_errors = show_errors
        self.sent: list[HubMessage] = []
        self._changed = asyncio.Event()
        self.dispatcher = Dispatcher(
            app,
            self._send,
            find_caller=find_caller,
            hub=hub,
            executor=executor,
            limits=limits,
            always_stream=always_stream,
        )

    def _send(self, message: HubMessage) -> None:
        self.sent.append(message)
        self._changed.set()

    def receive(self, *messages: HubMessage) -> None:
        for message in messages:
            self.dispatcher.handle(message)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which is checked after each message."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def idle(self) -> None:
        """Wait until no method runs; cancelled ones send no message."""
        while self.dispatcher._active_calls:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0)

    async def responses(self, count: int) -> list[HubMessage]:
        """Wait until so many calls have their final response, and return all messages."""
        await self.until(lambda: sum(_is_last(message) for message in self.sent) >= count)
        return self.sent

    async def call(self, method: str, body: str | Payload = NULL, **options: object) -> HubMessage:
        """Call a method with a JSON body, and return its only message."""
        sent = await self.call_all(method, body, **options)
        assert len(sent) == 1, sent
        return sent[0]

    async def call_all(self, method: str, body: str | Payload = NULL, **options: object) -> Sequence[HubMessage]:
        """Call a method, and return all messages of its response."""
        before = len(self.sent)
        self.receive(make_call(method, body, **options))
        await self.until(lambda: any(_is_last(message) for message in self.sent[before:]))
        return self.sent[before:]


def make_call(method: str, body: str | Payload = NULL, **options: object) -> Call:
    payload = Json(body.encode()) if isinstance(body, str) else body
    return Call(**{"id": "1", "method": method, "body": payload, **options})  # type: ignore[arg-type]  # options of any type


def value_of(message: HubMessage) -> object:
    assert isinstance(message, Result), message
    assert message.body is not None
    return message.body.value()


def failure_of(message: HubMessage) -> tuple[Reason, str]:
    assert isinstance(message, Failure), message
    return message.reason, message.text


def _is_last(message: HubMessage) -> bool:
    return isinstance(message, Failure) or (isinstance(message, Result) and message.last)
