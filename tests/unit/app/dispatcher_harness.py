"""A dispatcher with nobody behind it but a list of what it said."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import wraps
from typing import ParamSpec

from fiveways.app.app import App
from fiveways.app.context import CallerInfo, HubApi
from fiveways.app.dispatcher import Dispatcher
from fiveways.errors import Reason
from fiveways.model.messages import Call, Failure, HubMessage, Result
from fiveways.wire.limits import Limits
from fiveways.wire.payload import NULL, Json, Payload

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run an async test; one that hangs is stopped."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(120):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


class Stage:
    """An application on its own, within a running loop."""

    def __init__(
        self,
        app: App,
        *,
        who: Callable[[str], CallerInfo | None] | None = None,
        reach: HubApi | None = None,
        workers: Executor | None = None,
        limits: Limits = Limits(),
        in_parts: bool = True,
        show_errors: bool = True,
    ) -> None:
        app.show_errors = show_errors
        self.said: list[HubMessage] = []
        self._changed = asyncio.Event()
        self.dispatcher = Dispatcher(
            app, self._say, who=who, reach=reach, workers=workers, limits=limits, in_parts=in_parts
        )

    def _say(self, word: HubMessage) -> None:
        self.said.append(word)
        self._changed.set()

    def received(self, *words: HubMessage) -> None:
        for word in words:
            self.dispatcher.handle(word)

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until something was said that makes it true."""
        while not is_there():
            self._changed.clear()
            await self._changed.wait()

    async def idle(self) -> None:
        """Wait until no method is at work, of which those that were cancelled say nothing."""
        while self.dispatcher._active_calls:  # noqa: ASYNC110  # so there is nothing else to wait for
            await asyncio.sleep(0)

    async def answers(self, count: int) -> list[HubMessage]:
        """Wait until so many calls have their last word, and return all that was said."""
        await self.until(lambda: sum(_is_last(word) for word in self.said) >= count)
        return self.said

    async def call(self, method: str, body: str | Payload = NULL, **options: object) -> HubMessage:
        """Call a method with a body of JSON, and return the one word that it says."""
        said = await self.call_all(method, body, **options)
        assert len(said) == 1, said
        return said[0]

    async def call_all(self, method: str, body: str | Payload = NULL, **options: object) -> Sequence[HubMessage]:
        """Call a method, and return all that it says."""
        before = len(self.said)
        self.received(a_call(method, body, **options))
        await self.until(lambda: any(_is_last(word) for word in self.said[before:]))
        return self.said[before:]


def a_call(method: str, body: str | Payload = NULL, **options: object) -> Call:
    payload = Json(body.encode()) if isinstance(body, str) else body
    return Call(**{"id": "1", "method": method, "body": payload, **options})  # type: ignore[arg-type]  # as they are


def value_of(word: HubMessage) -> object:
    assert isinstance(word, Result), word
    assert word.body is not None
    return word.body.value()


def failure_of(word: HubMessage) -> tuple[Reason, str]:
    assert isinstance(word, Failure), word
    return word.reason, word.text


def _is_last(word: HubMessage) -> bool:
    return isinstance(word, Failure) or (isinstance(word, Result) and word.last)
