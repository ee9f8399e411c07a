"""Worker functions at work: each slot pulls a job of its work queue, runs the function, and pulls the next one."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import Final

from fiveways.app.app import App, Worker
from fiveways.app.context import ActiveCall, Context, HubApi
from fiveways.app.jobs import Job
from fiveways.app.responses import log_failure, truncate
from fiveways.app.signature import ExecutionMode
from fiveways.app.thread_runner import ThreadRunner
from fiveways.errors import BadValue, ConnectionLost, NotExecuted, Reason

FIRST_BACKOFF: Final = 0.5
"""Seconds, at most, until a refused pull is repeated; the wait doubles with each refusal."""
MAX_BACKOFF: Final = 30.0
"""Seconds at which the wait stops growing."""
GRACE: Final = 5.0
"""Seconds that cancelled worker tasks get to end."""
_STOPPED_TEXT: Final = "the worker stopped before the job was done"

_log = logging.getLogger("fiveways.app")


class JobWorkers:
    """All worker functions of one application. `context` makes the Context of a job."""

    def __init__(self, app: App, threads: ThreadRunner, context: Callable[[ActiveCall], Context]) -> None:
        self._app = app
        self._threads = threads
        self._make_context = context
        self._pools: list[WorkerPool] = []

    def start(self, reach: HubApi) -> None:
        """Pull jobs from now on, until `stop`."""
        for worker in self._app.workers:
            pool = WorkerPool(self._app, worker, reach, self._threads, self._make_context)
            self._pools.append(pool)
            pool.start()

    async def stop(self, finish: float) -> None:
        """Withdraw all pulls. A job in progress gets `finish` seconds; then it is cancelled, and the hub gets it back.

        A plain function cannot be cancelled: its thread runs on, and its result is dropped.
        """
        pools, self._pools = self._pools, []
        if pools:
            # A worker function may close its own connection, and must not wait for itself.
            closer = asyncio.current_task()
            await asyncio.gather(*[pool.stop(finish, closer) for pool in pools])


class WorkerPool:
    """The concurrency slots of one worker function."""

    def __init__(
        self, app: App, worker: Worker, reach: HubApi, threads: ThreadRunner, context: Callable[[ActiveCall], Context]
    ) -> None:
        self._app = app
        self._worker = worker
        self._hub = reach
        self._threads = threads
        self._make_context = context
        self._label = f"worker {worker.queue}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[asyncio.Task[None] | None, ActiveCall] = {}
        """Tasks with a job in progress."""
        self._is_stopping = False
        self._last_error = ""
        """The last reason for a failed pull, which is logged once for all slots."""

    def start(self) -> None:
        """Start one task for each slot."""
        for _ in range(self._worker.concurrency):
            task = asyncio.create_task(self._run_slot(), name=self._label)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self, finish: float, closer: asyncio.Task[object] | None) -> None:
        """Stop all slots; the one whose task is `closer` ends by itself."""
        self._is_stopping = True
        tasks = {task for task in self._tasks if task is not closer}
        busy = {task for task in tasks if task in self._busy}
        for task in tasks - busy:
            task.cancel()
        if busy and finish > 0:
            await asyncio.wait(busy, timeout=finish)
        for task in busy:
            if task in self._busy:
                self._busy[task].cancel()
                task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=GRACE)
            if stubborn:
                _log.warning("%s: %d cancelled tasks still run", self._label, len(stubborn))

    async def _run_slot(self) -> None:
        chance, wait = SystemRandom(), FIRST_BACKOFF
        while not self._is_stopping:
            try:
                job = await self._hub.pull(self._worker.queue)
            except ConnectionLost as exc:
                _log.info("%s ends: %s", self._label, exc)
                return
            except Exception as exc:  # noqa: BLE001  # every failed pull is repeated
                self._log_pull_error(exc)
                await asyncio.sleep(chance.uniform(wait / 2, wait))
                wait = min(2 * wait, MAX_BACKOFF)
            else:
                wait, self._last_error = FIRST_BACKOFF, ""
                await self._handle(job)

    def _log_pull_error(self, error: Exception) -> None:
        text = str(error)
        if self._is_stopping or text == self._last_error:
            return
        self._last_error = text
        # The client logs a lost connection, and the hub its own shutdown.
        is_usual = isinstance(error, NotExecuted) and error.reason is Reason.UNAVAILABLE
        fields = {"fields": {"queue": self._worker.queue}}
        level = logging.INFO if is_usual else logging.WARNING
        _log.log(level, "%s cannot pull jobs, and retries with backoff: %s", self._label, text, extra=fields)

    async def _handle(self, job: Job) -> None:
        """Run the function for a job and answer the hub; an exception concerns this job alone."""
        task, running = asyncio.current_task(), ActiveCall(job.call)
        running.attachments = job.attachments()
        self._busy[task] = running
        try:
            await self._run(job, running)
        except asyncio.CancelledError as exc:
            if task is None or task.cancelling():
                await self._fail(job, _STOPPED_TEXT)
                raise
            await self._fail(job, self._log_failure(job, exc))
        except ConnectionLost as exc:
            if not job.is_lost:
                await self._fail(job, self._log_failure(job, exc))
            else:
                _log.warning("%s: the result of a job was not sent: %s", self._label, exc)
        except (Exception, SystemExit) as exc:  # noqa: BLE001  # as the docstring says
            await self._fail(job, self._log_failure(job, exc))
        finally:
            del self._busy[task]

    async def _run(self, job: Job, running: ActiveCall) -> None:
        worker = self._worker
        context = self._make_context(running) if worker.arguments.wants_context else None
        try:
            args, named = worker.arguments.read(job, context)
        except BadValue as exc:
            await job.fail(truncate(f"bad arguments: {exc}"))
            return
        call = partial(worker.function, *args, **named)
        await job.done(await (self._threads.run(call) if worker.mode is ExecutionMode.THREAD else call()))

    def _log_failure(self, job: Job, error: BaseException) -> str:
        return log_failure(job.call.id, self._label, error, show_errors=self._app.show_errors, kind="worker").text

    async def _fail(self, job: Job, text: str) -> None:
        with suppress(ConnectionLost):  # the hub redelivers the job of a lost connection by itself
            await job.fail(text)
