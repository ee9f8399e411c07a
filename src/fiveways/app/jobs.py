"""Work from a queue, one piece at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fiveways.app.attached import Attachments
from fiveways.app.callbacks import Callbacks, Line
from fiveways.app.typed import decode
from fiveways.app.values import to_body
from fiveways.errors import CallFailed, CallLost, CallTimeout, ConnectionLost, Unrepresentable
from fiveways.model.failures import Reason
from fiveways.model.messages import Call, Failure, Result, Word

T = TypeVar("T")
_NOBODY: Final = "nobody waits any more"


class Job:
    """One piece of work. It is done when `done()` says so, or the `async with` block ends without an exception.

    Otherwise (a failure, a lost connection, no answer in time) the hub gives it to the next one who pulls.
    """

    def __init__(self, line: Line, call: Call) -> None:
        self._line = line
        self.call = call
        """The call by which the hub delivered it."""
        self._is_over = False
        self.data: Any = call.body.value()
        self._attachments = line.expect(call.attachments) if call.attachments else Attachments()

    @property
    def is_lost(self) -> bool:
        """Whether its connection is lost: the hub gives it to another worker."""
        return self._line.is_over

    def decode(self, kind: type[T]) -> T:
        """Return the data as a type of yours: `job.decode(Photo)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> Attachments:
        """Return what came with it: `await` it for a list of bytes, or read one by one with `async for`."""
        return self._attachments

    async def done(self, value: object = None) -> None:
        """It is done; ConnectionLost if the hub cannot be told, and so will give it to somebody else."""
        self._answer(Result(self.call.id, to_body(value)))

    async def fail(self, text: str = "") -> None:
        """It could not be done: somebody else may try."""
        self._answer(Failure(self.call.id, Reason.RAISED, text))

    def _answer(self, word: Word) -> None:
        if self._is_over:
            return
        if self._line.is_over:
            self._is_over = True
            raise ConnectionLost("the connection was lost since: the hub gives this work to somebody else")
        self._line.say(word)
        self._is_over = True  # not before: a value that cannot be encoded leaves room for `fail`

    def decline(self) -> None:
        """Return it to its queue as never started: the hub does not count this delivery as a try."""
        if not (self._is_over or self._line.is_over):
            self._answer(Failure(self.call.id, Reason.NO_CALLBACK, _NOBODY))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            await self.done()
        elif not self._line.is_over:
            await self.fail(f"{kind.__name__}: {error}")


class Pulled:
    """A pull that the hub has not answered yet. Fulfils `callbacks.Waiting`."""

    def __init__(self) -> None:
        self.given: asyncio.Future[Job] = asyncio.get_running_loop().create_future()

    def called(self, line: Line, call: Call) -> None:
        """Take the work, unless nobody waits any more."""
        if self.given.done():
            line.say(Failure(call.id, Reason.NO_CALLBACK, _NOBODY))
            return
        try:
            self.given.set_result(Job(line, call))
        except Unrepresentable as exc:
            line.say(Failure(call.id, Reason.BAD_ARGUMENTS, str(exc)))
            self.given.set_exception(CallFailed(f"the work cannot be read: {exc}"))

    def decline(self) -> None:
        """Return a job that arrived in the event loop iteration in which its receiver was cancelled."""
        if self.given.done() and not self.given.cancelled() and self.given.exception() is None:
            self.given.result().decline()

    def lost(self) -> str:
        """Let it be asked for again; so nothing is lost for the user."""
        if not self.given.done():
            self.given.set_exception(CallLost("the connection was lost before a job came"))
            self.given.exception()  # nobody may be waiting for it yet
        return ""


class Pulling:
    """`job = await peer.pull("thumbnails")`, or `async with peer.pull("thumbnails") as job:`."""

    def __init__(self, pull: Callable[[], Awaitable[Job]]) -> None:
        self._pull = pull
        self._job: Job | None = None

    def __await__(self) -> Generator[object, None, Job]:
        return self._pull().__await__()

    async def __aenter__(self) -> Job:
        self._job = await self._pull()
        return self._job

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._job is not None:
            await self._job.__aexit__(kind, error, trace)


async def pull_job(
    ask: Callable[[str, object], Awaitable[object]],
    callbacks: Callbacks,
    queue: str,
    timeout: float | None,  # noqa: ASYNC109  the user's own
    *,
    again: bool = False,
    withdraw: Callable[[str], None] | None = None,
) -> Job:
    """Ask the hub for a job and wait for it; with `again` on the next connection too, if one is lost.

    `withdraw` tells the hub that nobody waits for this callback any more, where it can be told.

    Raises:
        CallTimeout: none came in time.
        CallLost: the connection was lost, and there is no next one.
    """
    try:
        async with asyncio.timeout(timeout):
            while True:
                pulled = Pulled()
                name = callbacks.add(pulled)
                try:
                    await ask("hub.pull", {"queue": queue, "callback": name})
                    return await pulled.given
                except CallLost:
                    if not again:
                        raise  # else the callback is lost as well: on a new connection there is a new one
                except BaseException:
                    pulled.decline()
                    raise
                finally:
                    callbacks.remove(name)
                    if withdraw is not None:
                        withdraw(name)
    except TimeoutError:
        raise CallTimeout(f"no work came to {queue!r} within {timeout:g} seconds") from None
