"""Runs methods in tasks and threads, and sends one response for each call."""

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
from fiveways.app.memory_budget import memory_cost
from fiveways.app.responses import Fail, Reply, ResponseBuilder, log_failure
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.errors import LocalProtocolError, Reason
from fiveways.model.messages import Attachment, Failure, HubMessage, Result
from fiveways.wire.limits import Limits

QueuedCall: TypeAlias = tuple[ActiveCall, Method, Sequence[object], Mapping[str, object]]
_THREAD: Final = ExecutionMode.THREAD
_ASYNC: Final = ExecutionMode.ASYNC
"""Enum members as module globals, because access through the class is slower."""
_PARTS_PER_TURN: Final = 32
"""Parts of a streamed response after which other tasks get a turn."""
_BYTES_PER_TURN: Final = 256 << 10
"""Approximate bytes of a streamed response after which other tasks get a turn."""

_log = logging.getLogger("fiveways.app")


class CallExecutor:
    """Calls with a running function, whether or not a response is still needed."""

    def __init__(
        self,
        app: App,
        send: Callable[[HubMessage], None],
        on_ended: Callable[[ActiveCall], None],
        threads: ThreadRunner,
        limits: Limits,
        late: LateAttachments,
        *,
        always_stream: bool,
    ) -> None:
        self._app = app
        self._send = send
        self._on_ended = on_ended
        self._threads = threads
        self._limits = limits
        self._always_stream = always_stream
        self._loop = asyncio.get_running_loop()
        self._responses = ResponseBuilder()
        self.late = late
        self.active_calls: dict[ActiveCall, asyncio.Task[None] | None] = {}
        self._queue: deque[QueuedCall] = deque()
        """Calls of async functions that wait for a worker."""
        # A task without a reference may be garbage collected while it waits.
        self._workers: set[asyncio.Task[None]] = set()
        self._is_worker_starting = False
        """Whether a worker was created that has not started."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return all tasks."""
        return list(
            {task for task in self.active_calls.values() if task is not None} | self._workers | {*self.late.tasks()}
        )

    def start(self, active_call: ActiveCall, method: Method, bound: BoundArguments) -> None:
        """Run a method; RuntimeError if it needs a thread and the pool is shut down."""
        args, keywords = bound
        if method.mode is _THREAD:
            work = partial(self._run_in_thread, active_call, method, args, keywords)
            self._threads.start(work, partial(self._on_thread_done, active_call))
            self.active_calls[active_call] = None
            return
        self.active_calls[active_call] = None
        self._queue.append((active_call, method, args, keywords))
        if not self._is_worker_starting:
            self._spawn_worker()

    def send_response(self, active_call: ActiveCall, response: Sequence[HubMessage]) -> None:
        """Send messages of a response; never raises. A message that cannot be encoded becomes a failure."""
        if len(response) > 1:
            response = self.late.start(active_call.call.id, response)
        for message in response:
            try:
                self._send(message)
            except LocalProtocolError as exc:
                if isinstance(message, Attachment) and message.error is None:
                    self.send_response(active_call, [Attachment(message.name, error=str(exc))])
                    continue
                active_call.is_over = True
                if isinstance(message, Result):
                    text = f"the method ran, but its result cannot be encoded: {exc}"
                    self.send_response(active_call, [Failure(message.id, Reason.RAISED, text)])
                return
            except Exception:  # noqa: BLE001  # only this response is lost
                active_call.is_over = True
                _log.exception("the response of a method was lost method=%s", active_call.call.method)
                return

    # Async functions. Most never wait, and a task per call would cost more than they do.

    def _spawn_worker(self) -> None:
        self._is_worker_starting = True
        task = self._loop.create_task(self._run_worker())
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)

    async def _run_worker(self) -> None:
        """Run queued calls one after the other, until a function changed the context of this task."""
        self._is_worker_starting = False
        task, clean_context = cast(asyncio.Task[None], asyncio.current_task(self._loop)), copy_context()
        stop, cancelling = task.cancel, task.cancelling
        try:
            while self._queue and not cancelling() and copy_context() == clean_context:
                active_call, method, args, keywords = self._queue.popleft()
                if self._queue and not self._is_worker_starting:
                    self._spawn_worker()  # it continues with the queue if this call has to wait
                if active_call.is_over:
                    self._finish(active_call)
                    continue
                self.active_calls[active_call] = task
                # Set only here: a task that is cancelled before it starts would not finish its calls.
                active_call.stop = stop
                if method.mode is not _ASYNC:
                    await self._run_stream(active_call, method, args, keywords)
                    continue
                active_trace = tracing.enter(active_call.call.traceparent)
                try:
                    value = await method.function(*args, **keywords)
                    self._complete(active_call, value)
                except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
                    self._fail(active_call, exc)
                finally:
                    tracing.leave(active_trace)
                    self._finish(active_call)
        finally:
            if self._queue and not self._is_worker_starting:
                self._spawn_worker()

    def _complete(self, active_call: ActiveCall, value: object) -> None:
        if not active_call.is_over:
            response = self._responses.result(active_call.call.id, value)
            active_call.is_over = True
            self.send_response(active_call, response)

    async def _run_stream(
        self, active_call: ActiveCall, method: Method, args: Sequence[object], keywords: Mapping[str, object]
    ) -> None:
        active_trace = tracing.enter(active_call.call.traceparent)
        try:
            async with aclosing(method.function(*args, **keywords)) as parts:
                if self._always_stream or active_call.call.stream:
                    await self._send_parts(active_call, parts)
                else:
                    await self._send_collected(active_call, parts)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
            self._fail(active_call, exc)
        finally:
            tracing.leave(active_trace)
            self._finish(active_call)

    async def _send_parts(self, active_call: ActiveCall, parts: AsyncIterator[object]) -> None:
        part_count = size = 0
        async for value in parts:
            if active_call.is_over:
                return
            response = self._responses.part(active_call.call.id, value)
            self.send_response(active_call, response)
            part_count += 1
            size += sum(map(_part_size, response))
            if part_count >= _PARTS_PER_TURN or size >= _BYTES_PER_TURN:
                part_count = size = 0
                await asyncio.sleep(0)
        if not active_call.is_over:
            active_call.is_over = True
            self.send_response(active_call, [Result(active_call.call.id, None, stream=True, last=True)])

    async def _send_collected(self, active_call: ActiveCall, parts: AsyncIterator[object]) -> None:
        values: list[object] = []
        attachments: list[bytes] = []
        async for item in parts:
            if len(values) >= self._limits.max_stream:
                raise Fail(
                    f"the result has more than {self._limits.max_stream} elements; the caller does not support streams"
                )
            if isinstance(item, Reply):
                attachments += item.attachments
            values.append(item.value if isinstance(item, Reply) else item)
        self._complete(active_call, Reply(values, attachments))

    # Functions in threads.

    def _run_in_thread(
        self, active_call: ActiveCall, method: Method, args: Sequence[object], keywords: Mapping[str, object]
    ) -> Sequence[HubMessage] | BaseException:
        # The call may have ended while it waited for a thread.
        if active_call.is_over:
            return ()
        tracing.enter(active_call.call.traceparent)  # this context is used only once
        try:
            return self._responses.result(active_call.call.id, _check_not_coroutine(method.function(*args, **keywords)))
        except BaseException as exc:  # noqa: BLE001  # the caller gets it
            return exc

    def _on_thread_done(self, active_call: ActiveCall, outcome: Sequence[HubMessage] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._fail(active_call, outcome)
        elif not active_call.is_over:
            active_call.is_over = True
            self.send_response(active_call, outcome)
        self._finish(active_call)

    # End of a call.

    def _fail(self, active_call: ActiveCall, error: BaseException) -> None:
        if active_call.is_over:
            return
        active_call.is_over = True
        call = active_call.call
        self.send_response(active_call, [log_failure(call.id, call.method, error, show_errors=self._app.show_errors)])

    def _finish(self, active_call: ActiveCall) -> None:
        active_call.stop = None  # the task may run another call by now
        del self.active_calls[active_call]
        self._on_ended(active_call)


def _part_size(message: HubMessage) -> int:
    """Return the approximate size of a message in bytes, as far as it is known without encoding it."""
    if isinstance(message, Attachment):
        return len(message.data)
    return memory_cost(message.body) if isinstance(message, Result) and message.body is not None else 0


def _check_not_coroutine(value: object) -> object:
    if asyncio.iscoroutine(value):
        value.close()
        raise TypeError("a function that is not async returned a coroutine; a decorator may hide that it is async")
    return value
