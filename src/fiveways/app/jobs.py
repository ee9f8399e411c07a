"""Work from a queue, one piece at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fiveways.app.attachments import Attachments
from fiveways.app.callbacks import CallbackChannel, Callbacks
from fiveways.app.conversion import decode
from fiveways.app.values import to_body
from fiveways.errors import CallFailed, CallLost, CallTimeout, ConnectionLost, Reason, Unrepresentable
from fiveways.model.messages import Call, Failure, HubMessage, Result

T = TypeVar("T")
_NO_RECEIVER: Final = "nobody waits any more"


class Job:
    """One piece of work. It is done when `done()` says so, or the `async with` block ends without an exception.

    Otherwise (a failure, a lost connection, no answer in time) the hub gives it to the next one who pulls.
    """

    def __init__(self, line: CallbackChannel, call: Call) -> None:
        self._channel = line
        self.call = call
        """The call by which the hub delivered it."""
        self._is_over = False
        self.data: Any = call.body.value()
        self._attachments = line.expect(call.attachments) if call.attachments else Attachments()

    @property
    def is_lost(self) -> bool:
        """Whether its connection is lost: the hub gives it to another worker."""
        return self._channel.is_over

    def decode(self, kind: type[T]) -> T:
        """Return the data as a type of yours: `job.decode(Photo)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> Attachments:
        """Return what came with it: `await` it for a list of bytes, or read one by one with `async for`."""
        return self._attachments

    async def done(self, value: object = None) -> None:
        """It is done; ConnectionLost if the hub cannot be told, and so will give it to somebody else."""
        self._respond(Result(self.call.id, to_body(value)))

    async def fail(self, text: str = "") -> None:
        """It could not be done: somebody else may try."""
        self._respond(Failure(self.call.id, Reason.RAISED, text))

    def _respond(self, word: HubMessage) -> None:
        if self._is_over:
            return
        if self._channel.is_over:
            self._is_over = True
            raise ConnectionLost("the connection was lost since: the hub gives this work to somebody else")
        self._channel.send(word)
        self._is_over = True  # not before: a value that cannot be encoded leaves room for `fail`

    def decline(self) -> None:
        """Return it to its queue as never started: the hub does not count this delivery as a try."""
        if not (self._is_over or self._channel.is_over):
            self._respond(Failure(self.call.id, Reason.NO_SUCH_CALLBACK, _NO_RECEIVER))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            await self.done()
        elif not self._channel.is_over:
            await self.fail(f"{kind.__name__}: {error}")


class PendingPull:
    """A pull that the hub has not answered yet. Fulfils `callbacks.Waiting`."""

    def __init__(self) -> None:
        self.job: asyncio.Future[Job] = asyncio.get_running_loop().create_future()

    def handle_call(self, line: CallbackChannel, call: Call) -> None:
        """Take the work, unless nobody waits any more."""
        if self.job.done():
            line.send(Failure(call.id, Reason.NO_SUCH_CALLBACK, _NO_RECEIVER))
            return
        try:
            self.job.set_result(Job(line, call))
        except Unrepresentable as exc:
            line.send(Failure(call.id, Reason.BAD_ARGUMENTS, str(exc)))
            self.job.set_exception(CallFailed(f"the work cannot be read: {exc}"))

    def decline(self) -> None:
        """Return a job that arrived in the event loop iteration in which its receiver was cancelled."""
        if self.job.done() and not self.job.cancelled() and self.job.exception() is None:
            self.job.result().decline()

    def connection_lost(self) -> str:
        """Let it be asked for again; so nothing is lost for the user."""
        if not self.job.done():
            self.job.set_exception(CallLost("the connection was lost before a job came"))
            self.job.exception()  # nobody may be waiting for it yet
        return ""


class JobPull:
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
                pulled = PendingPull()
                name = callbacks.add(pulled)
                try:
                    await ask("hub.pull", {"queue": queue, "callback": name})
                    return await pulled.job
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
