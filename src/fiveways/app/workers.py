"""Workers: each slot of a worker function pulls a job, runs the function, and pulls the next job."""

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
"""Maximum seconds before the first retry of a failed pull; it doubles with each failure."""
MAX_BACKOFF: Final = 30.0
"""Seconds at which the backoff stops growing."""
GRACE: Final = 5.0
"""Seconds that cancelled worker tasks get to end."""
_STOPPED_TEXT: Final = "the worker stopped before the job was done"

_log = logging.getLogger("fiveways.app")


class JobWorkers:
    """All worker functions of one application. `make_context` creates the Context of a job."""

    def __init__(self, app: App, threads: ThreadRunner, make_context: Callable[[ActiveCall], Context]) -> None:
        self._app = app
        self._threads = threads
        self._make_context = make_context
        self._pools: list[WorkerPool] = []

    def start(self, hub: HubApi) -> None:
        """Pull jobs until `stop`."""
        for worker in self._app.workers:
            pool = WorkerPool(self._app, worker, hub, self._threads, self._make_context)
            self._pools.append(pool)
            pool.start()

    async def stop(self, drain_timeout: float) -> None:
        """Withdraw all pulls. Jobs in progress get `drain_timeout` seconds; then they are cancelled and redelivered.

        A function in a thread cannot be cancelled: it runs on, and its result is dropped.
        """
        pools, self._pools = self._pools, []
        if pools:
            # A worker function may close its own connection; then it must not wait for itself.
            closer = asyncio.current_task()
            await asyncio.gather(*[pool.stop(drain_timeout, closer) for pool in pools])


class WorkerPool:
    """The concurrent slots of one worker function."""

    def __init__(
        self,
        app: App,
        worker: Worker,
        hub: HubApi,
        threads: ThreadRunner,
        make_context: Callable[[ActiveCall], Context],
    ) -> None:
        self._app = app
        self._worker = worker
        self._hub = hub
        self._threads = threads
        self._make_context = make_context
        self._label = f"worker {worker.queue}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[asyncio.Task[None] | None, ActiveCall] = {}
        """Tasks with a job in progress."""
        self._is_stopping = False
        self._last_error = ""
        """Last error of a pull, which is logged once for all slots."""

    def start(self) -> None:
        """Start one task per slot."""
        for _ in range(self._worker.concurrency):
            task = asyncio.create_task(self._run_slot(), name=self._label)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self, drain_timeout: float, closer: asyncio.Task[object] | None) -> None:
        """Stop all slots; that of the task `closer` ends by itself."""
        self._is_stopping = True
        tasks = {task for task in self._tasks if task is not closer}
        busy = {task for task in tasks if task in self._busy}
        for task in tasks - busy:
            task.cancel()
        if busy and drain_timeout > 0:
            await asyncio.wait(busy, timeout=drain_timeout)
        for task in busy:
            if task in self._busy:
                self._busy[task].cancel()
                task.cancel()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=GRACE)
            if unfinished:
                _log.warning("cancelled worker tasks still run worker=%s tasks=%d", self._label, len(unfinished))

    async def _run_slot(self) -> None:
        random, wait = SystemRandom(), FIRST_BACKOFF
        while not self._is_stopping:
            try:
                job = await self._hub.pull(self._worker.queue)
            except ConnectionLost as exc:
                _log.info("worker slot ends worker=%s reason=%s", self._label, exc)
                return
            except Exception as exc:  # noqa: BLE001  # every failed pull is retried
                self._log_pull_error(exc)
                await asyncio.sleep(random.uniform(wait / 2, wait))
                wait = min(2 * wait, MAX_BACKOFF)
            else:
                wait, self._last_error = FIRST_BACKOFF, ""
                await self._handle(job)

    def _log_pull_error(self, error: Exception) -> None:
        text = str(error)
        if self._is_stopping or text == self._last_error:
            return
        self._last_error = text
        # The client logs a lost connection itself, and the hub its shutdown.
        is_expected = isinstance(error, NotExecuted) and error.reason is Reason.UNAVAILABLE
        fields = {"fields": {"queue": self._worker.queue}}
        level = logging.INFO if is_expected else logging.WARNING
        _log.log(
            level, "pull of a job failed; retrying with backoff worker=%s error=%s", self._label, text, extra=fields
        )

    async def _handle(self, job: Job) -> None:
        """Run the function for a job and respond to the hub; an exception concerns only this job."""
        task, active_call = asyncio.current_task(), ActiveCall(job.call)
        active_call.attachments = job.attachments()
        self._busy[task] = active_call
        try:
            await self._run(job, active_call)
        except asyncio.CancelledError as exc:
            if task is None or task.cancelling():
                await self._fail(job, _STOPPED_TEXT)
                raise
            await self._fail(job, self._log_failure(job, exc))
        except ConnectionLost as exc:
            if not job.is_lost:
                await self._fail(job, self._log_failure(job, exc))
            else:
                _log.warning(
                    "result of a job was not sent; the hub redelivers the job worker=%s error=%s", self._label, exc
                )
        except (Exception, SystemExit) as exc:  # noqa: BLE001  # only this job fails
            await self._fail(job, self._log_failure(job, exc))
        finally:
            del self._busy[task]

    async def _run(self, job: Job, active_call: ActiveCall) -> None:
        worker = self._worker
        context = self._make_context(active_call) if worker.arguments.wants_context else None
        try:
            args, keywords = worker.arguments.read(job, context)
        except BadValue as exc:
            await job.fail(truncate(f"bad arguments: {exc}"))
            return
        call = partial(worker.function, *args, **keywords)
        await job.done(await (self._threads.run(call) if worker.mode is ExecutionMode.THREAD else call()))

    def _log_failure(self, job: Job, error: BaseException) -> str:
        return log_failure(job.call.id, self._label, error, show_errors=self._app.show_errors, kind="worker").text

    async def _fail(self, job: Job, text: str) -> None:
        with suppress(ConnectionLost):  # the hub redelivers jobs of a lost connection
            await job.fail(text)
