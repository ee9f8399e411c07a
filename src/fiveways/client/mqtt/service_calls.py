"""Calls of others at work: most async functions never wait, and share tasks."""

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
    """One call that is not answered yet."""

    id: str
    service: "ServedService"
    handler: MethodHandler
    request_parts: PartBuffer | None = None
    """Where the elements of a streamed request go."""
    is_over: bool = False
    """Nothing more is to be said about it."""
    parts_sent: int = 0
    """How many of a streamed answer were said."""
    task: "asyncio.Task[None] | None" = None
    """Where its function is at work, as long as it is."""
    deadline: float = 0.0
    """When the service's own timeout ends it, where the caller named none."""

    @property
    def breaks_with_link(self) -> bool:
        """Whether a link that is lost takes a part of its stream along."""
        return self.parts_sent > 0 or (self.request_parts is not None and not self.request_parts.is_over)


QueuedCall: TypeAlias = tuple[ServiceCall, tuple[Any, ...]]


class CallWorkers:
    """Tasks that take calls of async functions one after the other, as those of `app.runs` do.

    A task for each call would cost more than most functions do. While one call waits another task goes on with the
    rest; and a task in which a function has left something behind, or that was cancelled, takes no further call.
    """

    def __init__(
        self, answer: Callable[[ServiceCall, object], None], fail: Callable[[ServiceCall, BaseException], None]
    ) -> None:
        """Make it; `answer` is told what a function returned, `fail` what it or `answer` raised."""
        self._on_result = answer
        self._on_error = fail
        self._loop = asyncio.get_running_loop()
        self._queue: deque[QueuedCall] = deque()
        """Calls that no worker has taken yet."""
        # A task that nobody holds may be swept away while it waits.
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_worker_starting = False
        """A worker was called that has not begun."""

    def start(self, run: ServiceCall, arguments: tuple[Any, ...]) -> None:
        """Have a function called in the loop's next pass, unless its call is over by then."""
        self._queue.append((run, arguments))
        if not self._is_worker_starting:
            self._spawn_worker()

    def _spawn_worker(self) -> None:
        self._is_worker_starting = True
        task = self._loop.create_task(self._run_worker())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_worker(self) -> None:
        self._is_worker_starting = False
        task, clean = cast("asyncio.Task[None]", asyncio.current_task(self._loop)), copy_context()
        queue, answer, cancelling = self._queue, self._on_result, task.cancelling
        try:
            while queue and not cancelling() and copy_context() == clean:
                run, arguments = queue.popleft()
                if queue and not self._is_worker_starting:
                    self._spawn_worker()  # it goes on with the others if this call has to wait
                if run.is_over:
                    continue
                # Not before: a task that is cancelled before it begins would take nobody else's call either.
                run.task = task
                try:
                    answer(run, await run.handler.function(*arguments))
                except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  the caller gets it
                    self._on_error(run, exc)
                finally:
                    run.task = None  # it may be at another call by now
        finally:
            if queue and not self._is_worker_starting:
                clean.run(self._spawn_worker)
