"""Methods at work: in tasks or threads, with one answer for each call."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Final, TypeAlias, cast

from fiveways.app import tracing
from fiveways.app.app import App, Method
from fiveways.app.arguments import BoundArguments
from fiveways.app.context import ActiveCall
from fiveways.app.late_attachments import LateAttachments
from fiveways.app.responses import Fail, Reply, ResponseBuilder, log_failure
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.app.values import memory_cost
from fiveways.errors import LocalProtocolError, Reason
from fiveways.model.messages import Attachment, Failure, HubMessage, Result
from fiveways.wire.limits import Limits

QueuedCall: TypeAlias = tuple[ActiveCall, Method, Sequence[object], Mapping[str, object]]
_THREAD: Final = ExecutionMode.THREAD
_ASYNC: Final = ExecutionMode.ASYNC
"""To reach a member of an Enum through its class takes a while."""
_PARTS_PER_TURN: Final = 32
"""Parts of a streamed answer after which everybody else gets a turn."""
_BYTES_PER_TURN: Final = 256 << 10
"""Bytes of them after which everybody else gets one, too, as far as it is known how many they are."""

_log = logging.getLogger("fiveways.app")


class CallExecutor:
    """The calls whose work is not over yet, whether or not anybody still wants their answers."""

    def __init__(
        self,
        app: App,
        say: Callable[[HubMessage], None],
        ended: Callable[[ActiveCall], None],
        threads: ThreadRunner,
        limits: Limits,
        late: LateAttachments,
        *,
        in_parts: bool,
    ) -> None:
        self._app = app
        self._send = say
        self._on_ended = ended
        self._threads = threads
        self._limits = limits
        self._in_parts = in_parts
        self._loop = asyncio.get_running_loop()
        self._responses = ResponseBuilder()
        self.late = late
        self.active_calls: dict[ActiveCall, asyncio.Task[None] | None] = {}
        self._queue: deque[QueuedCall] = deque()
        """Calls of async functions that no worker has taken yet."""
        # A task that nobody holds may be swept away while it waits.
        self._workers: set[asyncio.Task[None]] = set()
        self._is_worker_starting = False
        """A worker was called that has not begun."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that something runs in."""
        return list(
            {task for task in self.active_calls.values() if task is not None} | self._workers | {*self.late.tasks()}
        )

    def start(self, running: ActiveCall, method: Method, given: BoundArguments) -> None:
        """Run a method; RuntimeError if that needs a thread and there are none any more."""
        args, named = given
        if method.mode is _THREAD:
            work = partial(self._run_in_thread, running, method, args, named)
            self._threads.start(work, partial(self._on_thread_done, running))
            self.active_calls[running] = None
            return
        self.active_calls[running] = None
        self._queue.append((running, method, args, named))
        if not self._is_worker_starting:
            self._spawn_worker()

    def send_response(self, running: ActiveCall, answer: Sequence[HubMessage]) -> None:
        """Say the answer, or a part of it; never raises. What cannot be written fails instead."""
        if len(answer) > 1:
            answer = self.late.start(running.call.id, answer)
        for word in answer:
            try:
                self._send(word)
            except LocalProtocolError as exc:
                if isinstance(word, Attachment) and word.error is None:
                    self.send_response(running, [Attachment(word.name, error=str(exc))])
                    continue
                running.is_over = True
                if isinstance(word, Result):
                    text = f"the method ran, but its answer cannot be written: {exc}"
                    self.send_response(running, [Failure(word.id, Reason.RAISED, text)])
                return
            except Exception:  # noqa: BLE001  # one answer is lost, and nothing else
                running.is_over = True
                _log.exception("%s: its answer was lost", running.call.method)
                return

    # Async functions. Most never wait, and a task of its own for each would cost more than they do.

    def _spawn_worker(self) -> None:
        self._is_worker_starting = True
        task = self._loop.create_task(self._run_worker())
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)

    async def _run_worker(self) -> None:
        """Take calls one after the other, until one has changed what the next would find in this task."""
        self._is_worker_starting = False
        task, clean = cast(asyncio.Task[None], asyncio.current_task(self._loop)), copy_context()
        stop, cancelling = task.cancel, task.cancelling
        try:
            while self._queue and not cancelling() and copy_context() == clean:
                running, method, args, named = self._queue.popleft()
                if self._queue and not self._is_worker_starting:
                    self._spawn_worker()  # it goes on with the others if this call has to wait
                if running.is_over:
                    self._finish(running)
                    continue
                self.active_calls[running] = task
                # Not before: a task that is cancelled before it begins would not even end in good order.
                running.stop = stop
                if method.mode is not _ASYNC:
                    await self._run_stream(running, method, args, named)
                    continue
                trace = tracing.enter(running.call.traceparent)
                try:
                    value = await method.function(*args, **named)
                    self._complete(running, value)
                except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
                    self._fail(running, exc)
                finally:
                    tracing.leave(trace)
                    self._finish(running)
        finally:
            if self._queue and not self._is_worker_starting:
                self._spawn_worker()

    def _complete(self, running: ActiveCall, value: object) -> None:
        if not running.is_over:
            answer = self._responses.result(running.call.id, value)
            running.is_over = True
            self.send_response(running, answer)

    async def _run_stream(
        self, running: ActiveCall, method: Method, args: Sequence[object], named: Mapping[str, object]
    ) -> None:
        trace = tracing.enter(running.call.traceparent)
        try:
            async with aclosing(method.function(*args, **named)) as parts:
                if self._in_parts or running.call.stream:
                    await self._send_parts(running, parts)
                else:
                    await self._send_collected(running, parts)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
            self._fail(running, exc)
        finally:
            tracing.leave(trace)
            self._finish(running)

    async def _send_parts(self, running: ActiveCall, parts: AsyncIterator[object]) -> None:
        number = size = 0
        async for value in parts:
            if running.is_over:
                return
            answer = self._responses.part(running.call.id, value)
            self.send_response(running, answer)
            number += 1
            size += sum(map(_part_size, answer))
            if number >= _PARTS_PER_TURN or size >= _BYTES_PER_TURN:
                number = size = 0
                await asyncio.sleep(0)
        if not running.is_over:
            running.is_over = True
            self.send_response(running, [Result(running.call.id, None, stream=True, last=True)])

    async def _send_collected(self, running: ActiveCall, parts: AsyncIterator[object]) -> None:
        values: list[object] = []
        attachments: list[bytes] = []
        async for value in parts:
            if len(values) >= self._limits.max_stream:
                raise Fail(f"the answer has more than {self._limits.max_stream} elements")
            if isinstance(value, Reply):
                attachments += value.attachments
            values.append(value.value if isinstance(value, Reply) else value)
        self._complete(running, Reply(values, attachments))

    # Plain functions.

    def _run_in_thread(
        self, running: ActiveCall, method: Method, args: Sequence[object], named: Mapping[str, object]
    ) -> Sequence[HubMessage] | BaseException:
        # It may have waited for a thread until nobody wanted it any more.
        if running.is_over:
            return ()
        tracing.enter(running.call.traceparent)  # nobody else has this context
        try:
            return self._responses.result(running.call.id, _check_not_coroutine(method.function(*args, **named)))
        except BaseException as exc:  # noqa: BLE001  # the caller gets it
            return exc

    def _on_thread_done(self, running: ActiveCall, outcome: Sequence[HubMessage] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._fail(running, outcome)
        elif not running.is_over:
            running.is_over = True
            self.send_response(running, outcome)
        self._finish(running)

    # The end.

    def _fail(self, running: ActiveCall, error: BaseException) -> None:
        if running.is_over:
            return
        running.is_over = True
        call = running.call
        self.send_response(running, [log_failure(call.id, call.method, error, show_errors=self._app.show_errors)])

    def _finish(self, running: ActiveCall) -> None:
        running.stop = None  # its task may be at another call by now
        del self.active_calls[running]
        self._on_ended(running)


def _part_size(word: HubMessage) -> int:
    """Return about how many bytes a part of an answer has, as far as that is known without writing it."""
    if isinstance(word, Attachment):
        return len(word.data)
    return memory_cost(word.body) if isinstance(word, Result) and word.body is not None else 0


def _check_not_coroutine(value: object) -> object:
    if asyncio.iscoroutine(value):
        value.close()
        raise TypeError("a plain function returned a coroutine; a decorator may have hidden that it is async")
    return value
