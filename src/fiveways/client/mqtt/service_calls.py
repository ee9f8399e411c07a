"""Calls of served methods in progress. Most async functions never wait, and share worker tasks."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from fiveways.client.mqtt.method_handlers import MethodHandler
from fiveways.client.mqtt.part_buffer import PartBuffer

if TYPE_CHECKING:
    from fiveways.client.mqtt.services import ServedService


class ServiceCall(msgspec.Struct, eq=False):
    """One call without a response."""

    id: str
    service: "ServedService"
    handler: MethodHandler
    request_parts: PartBuffer | None = None
    """Buffer for the elements of a streamed request."""
    is_over: bool = False
    """Whether the response was sent, or is no longer needed."""
    parts_sent: int = 0
    """Number of parts of a streamed response that were sent."""
    task: "asyncio.Task[None] | None" = None
    """Task that runs the function, while it runs."""
    deadline: float = 0.0
    """Deadline by the service's own timeout, for calls without a timeout."""

    @property
    def breaks_with_link(self) -> bool:
        """Whether a lost link loses a part of its stream."""
        return self.parts_sent > 0 or (self.request_parts is not None and not self.request_parts.is_over)


QueuedCall: TypeAlias = tuple[ServiceCall, tuple[Any, ...]]


class CallWorkers:
    """Tasks that run calls of async functions one after the other, as those of `app.call_executor` do.

    A task per call would cost more than most functions. While one call waits, another task continues with the queue. A
    task whose context a function changed, or that was cancelled, takes no further call.
    """

    def __init__(
        self,
        on_result: Callable[[ServiceCall, object], None],
        on_error: Callable[[ServiceCall, BaseException], None],
    ) -> None:
        """Create it; `on_result` gets the return value of a function, `on_error` any exception, also of `on_result`."""
        self._on_result = on_result
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._queue: deque[QueuedCall] = deque()
        """Calls that wait for a worker."""
        # A task without a reference may be garbage collected while it waits.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_worker_starting = False
        """Whether a worker was created that has not started."""

    def start(self, call: ServiceCall, arguments: tuple[Any, ...]) -> None:
        """Run a function in the next event loop iteration, unless its call is over by then."""
        self._queue.append((call, arguments))
        if not self._is_worker_starting:
            self._spawn_worker()

    def _spawn_worker(self) -> None:
        self._is_worker_starting = True
        task = self._loop.create_task(self._run_worker())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_worker(self) -> None:
        self._is_worker_starting = False
        task, clean_context = cast("asyncio.Task[None]", asyncio.current_task(self._loop)), copy_context()
        queue, on_result, cancelling = self._queue, self._on_result, task.cancelling
        try:
            while queue and not cancelling() and copy_context() == clean_context:
                call, arguments = queue.popleft()
                if queue and not self._is_worker_starting:
                    self._spawn_worker()  # it continues with the queue if this call has to wait
                if call.is_over:
                    continue
                # Set only here: a task that is cancelled before it starts could not run the other calls.
                call.task = task
                try:
                    on_result(call, await call.handler.function(*arguments))
                except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  the caller gets it
                    self._on_error(call, exc)
                finally:
                    call.task = None  # the task may run another call by now
        finally:
            if queue and not self._is_worker_starting:
                clean_context.run(self._spawn_worker)
