"""Jobs of work queues."""

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
_NO_RECEIVER: Final = "the worker no longer waits for a job"


class Job:
    """A job of a work queue. It is done after `done()`, or when the `async with` block ends without an exception.

    Otherwise, after a failure, a lost connection or the hub's timeout, the hub redelivers it.
    """

    def __init__(self, channel: CallbackChannel, call: Call) -> None:
        self._channel = channel
        self.call = call
        """Call with which the hub delivered the job."""
        self._is_over = False
        self.data: Any = call.body.value()
        self._attachments = channel.expect(call.attachments) if call.attachments else Attachments()

    @property
    def is_lost(self) -> bool:
        """Whether the connection was lost, and the hub redelivers the job."""
        return self._channel.is_over

    def decode(self, kind: type[T]) -> T:
        """Return the data converted to a type: `job.decode(Photo)`; BadValue if it does not fit."""
        return decode(self.data, kind)

    def attachments(self) -> Attachments:
        """Return the attachments of the job: `await` them for a list of bytes, or read them with `async for`."""
        return self._attachments

    async def done(self, value: object = None) -> None:
        """Tell the hub that the job is done.

        Raises:
            ConnectionLost: the connection was lost; the hub redelivers the job.
            Unsendable: `value` is of a type that cannot be encoded.
            LocalProtocolError: `value` does not fit the protocol or its limits.
        """
        self._respond(Result(self.call.id, to_body(value)))

    async def fail(self, text: str = "") -> None:
        """Tell the hub that the job failed: it is redelivered after a delay.

        Raises:
            ConnectionLost: the connection was lost; the hub redelivers the job.
        """
        self._respond(Failure(self.call.id, Reason.RAISED, text))

    def _respond(self, response: HubMessage) -> None:
        if self._is_over:
            return
        if self._channel.is_over:
            self._is_over = True
            raise ConnectionLost("the connection was lost: the hub redelivers the job")
        self._channel.send(response)
        self._is_over = True  # only now: if the value cannot be encoded, `fail` must still work

    def decline(self) -> None:
        """Return the job to its queue as not started: the hub does not count this delivery as a try."""
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
    """A pull without a job. Implements `callbacks.CallbackReceiver`."""

    def __init__(self) -> None:
        self.job: asyncio.Future[Job] = asyncio.get_running_loop().create_future()

    def handle_call(self, channel: CallbackChannel, call: Call) -> None:
        """Take the job, or decline it if the pull was cancelled."""
        if self.job.done():
            channel.send(Failure(call.id, Reason.NO_SUCH_CALLBACK, _NO_RECEIVER))
            return
        try:
            self.job.set_result(Job(channel, call))
        except Unrepresentable as exc:
            channel.send(Failure(call.id, Reason.BAD_ARGUMENTS, str(exc)))
            self.job.set_exception(CallFailed(f"the data of the job cannot be decoded: {exc}"))

    def decline(self) -> None:
        """Decline a job that arrived in the event loop iteration in which the pull was cancelled."""
        if self.job.done() and not self.job.cancelled() and self.job.exception() is None:
            self.job.result().decline()

    def connection_lost(self) -> str:
        """Fail the pull, which is then repeated. Nothing is lost for the user."""
        if not self.job.done():
            self.job.set_exception(CallLost("the connection was lost before a job came"))
            self.job.exception()  # marks the exception as retrieved
        return ""


class JobPull:
    """A pull: `job = await peer.pull("thumbnails")`, or `async with peer.pull("thumbnails") as job:`."""

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
    call: Callable[[str, object], Awaitable[object]],
    callbacks: Callbacks,
    queue: str,
    timeout: float | None,  # noqa: ASYNC109  the user's timeout
    *,
    again: bool = False,
    withdraw: Callable[[str], None] | None = None,
) -> Job:
    """Pull a job.

    Args:
        call: calls a method of the hub.
        callbacks: receivers of callbacks.
        queue: name of the work queue.
        timeout: seconds to wait; None for no limit.
        again: whether to pull again on the next connection if one is lost.
        withdraw: tells the hub that a callback is no longer needed, where possible.

    Raises:
        CallTimeout: no job arrived within the timeout.
        CallLost: the connection was lost, and `again` is false.
    """
    try:
        async with asyncio.timeout(timeout):
            while True:
                pull = PendingPull()
                name = callbacks.add(pull)
                try:
                    await call("hub.pull", {"queue": queue, "callback": name})
                    return await pull.job
                except CallLost:
                    if not again:
                        raise  # otherwise the next pull has a new callback on the new connection
                except BaseException:
                    pull.decline()
                    raise
                finally:
                    callbacks.remove(name)
                    if withdraw is not None:
                        withdraw(name)
    except TimeoutError:
        raise CallTimeout(f"no job arrived in {queue!r} within {timeout:g} seconds") from None
