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
from fiveways.app.answers import Answers, Fail, Reply, logged
from fiveways.app.app import App, Method
from fiveways.app.arguments import Given
from fiveways.app.context import Running
from fiveways.app.late import LateAttachments
from fiveways.app.signature import Style
from fiveways.app.threads import Threads
from fiveways.app.values import cost
from fiveways.errors import LocalProtocolError
from fiveways.model.failures import Reason
from fiveways.model.messages import Attachment, Failure, Result, Word
from fiveways.wire.limits import Limits

Work: TypeAlias = tuple[Running, Method, Sequence[object], Mapping[str, object]]
_IN_THREADS: Final = Style.PLAIN
_ASYNC: Final = Style.ASYNC
"""To reach a member of an Enum through its class takes a while."""
_BREATH: Final = 32
"""Parts of a streamed answer after which everybody else gets a turn."""
_BREATH_BYTES: Final = 256 << 10
"""Bytes of them after which everybody else gets one, too, as far as it is known how many they are."""

_log = logging.getLogger("fiveways.app")


class Runs:
    """The calls whose work is not over yet, whether or not anybody still wants their answers."""

    def __init__(
        self,
        app: App,
        say: Callable[[Word], None],
        ended: Callable[[Running], None],
        threads: Threads,
        limits: Limits,
        late: LateAttachments,
        *,
        in_parts: bool,
    ) -> None:
        self._app = app
        self._say = say
        self._ended = ended
        self._threads = threads
        self._limits = limits
        self._in_parts = in_parts
        self._loop = asyncio.get_running_loop()
        self._answers = Answers()
        self.late = late
        self.live: dict[Running, asyncio.Task[None] | None] = {}
        self._queue: deque[Work] = deque()
        """Calls of async functions that no worker has taken yet."""
        # A task that nobody holds may be swept away while it waits.
        self._workers: set[asyncio.Task[None]] = set()
        self._is_worker_due = False
        """A worker was called that has not begun."""

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that something runs in."""
        return list({task for task in self.live.values() if task is not None} | self._workers | {*self.late.tasks()})

    def start(self, running: Running, method: Method, given: Given) -> None:
        """Run a method; RuntimeError if that needs a thread and there are none any more."""
        args, named = given
        if method.style is _IN_THREADS:
            work = partial(self._in_thread, running, method, args, named)
            self._threads.start(work, partial(self._from_thread, running))
            self.live[running] = None
            return
        self.live[running] = None
        self._queue.append((running, method, args, named))
        if not self._is_worker_due:
            self._call_worker()

    def tell(self, running: Running, answer: Sequence[Word]) -> None:
        """Say the answer, or a part of it; never raises. What cannot be written fails instead."""
        if len(answer) > 1:
            answer = self.late.begin(running.call.id, answer)
        for word in answer:
            try:
                self._say(word)
            except LocalProtocolError as exc:
                if isinstance(word, Attachment) and word.error is None:
                    self.tell(running, [Attachment(word.name, error=str(exc))])
                    continue
                running.over = True
                if isinstance(word, Result):
                    text = f"the method ran, but its answer cannot be written: {exc}"
                    self.tell(running, [Failure(word.id, Reason.RAISED, text)])
                return
            except Exception:  # noqa: BLE001  # one answer is lost, and nothing else
                running.over = True
                _log.exception("%s: its answer was lost", running.call.method)
                return

    # Async functions. Most never wait, and a task of its own for each would cost more than they do.

    def _call_worker(self) -> None:
        self._is_worker_due = True
        task = self._loop.create_task(self._work())
        self._workers.add(task)
        task.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        """Take calls one after the other, until one has changed what the next would find in this task."""
        self._is_worker_due = False
        task, clean = cast(asyncio.Task[None], asyncio.current_task(self._loop)), copy_context()
        stop, cancelling = task.cancel, task.cancelling
        try:
            while self._queue and not cancelling() and copy_context() == clean:
                running, method, args, named = self._queue.popleft()
                if self._queue and not self._is_worker_due:
                    self._call_worker()  # it goes on with the others if this call has to wait
                if running.over:
                    self._end(running)
                    continue
                self.live[running] = task
                # Not before: a task that is cancelled before it begins would not even end in good order.
                running.stop = stop
                if method.style is not _ASYNC:
                    await self._as_stream(running, method, args, named)
                    continue
                trace = tracing.enter(running.call.traceparent)
                try:
                    value = await method.function(*args, **named)
                    self._answer(running, value)
                except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
                    self._fail(running, exc)
                finally:
                    tracing.leave(trace)
                    self._end(running)
        finally:
            if self._queue and not self._is_worker_due:
                self._call_worker()

    def _answer(self, running: Running, value: object) -> None:
        if not running.over:
            answer = self._answers.result(running.call.id, value)
            running.over = True
            self.tell(running, answer)

    async def _as_stream(
        self, running: Running, method: Method, args: Sequence[object], named: Mapping[str, object]
    ) -> None:
        trace = tracing.enter(running.call.traceparent)
        try:
            async with aclosing(method.function(*args, **named)) as parts:
                if self._in_parts or running.call.stream:
                    await self._say_parts(running, parts)
                else:
                    await self._say_gathered(running, parts)
        except (Exception, asyncio.CancelledError, SystemExit) as exc:  # noqa: BLE001  # the caller gets it
            self._fail(running, exc)
        finally:
            tracing.leave(trace)
            self._end(running)

    async def _say_parts(self, running: Running, parts: AsyncIterator[object]) -> None:
        number = size = 0
        async for value in parts:
            if running.over:
                return
            answer = self._answers.part(running.call.id, value)
            self.tell(running, answer)
            number += 1
            size += sum(map(_size, answer))
            if number >= _BREATH or size >= _BREATH_BYTES:
                number = size = 0
                await asyncio.sleep(0)
        if not running.over:
            running.over = True
            self.tell(running, [Result(running.call.id, None, stream=True, last=True)])

    async def _say_gathered(self, running: Running, parts: AsyncIterator[object]) -> None:
        values: list[object] = []
        attachments: list[bytes] = []
        async for value in parts:
            if len(values) >= self._limits.max_stream:
                raise Fail(f"the answer has more than {self._limits.max_stream} elements")
            if isinstance(value, Reply):
                attachments += value.attachments
            values.append(value.value if isinstance(value, Reply) else value)
        self._answer(running, Reply(values, attachments))

    # Plain functions.

    def _in_thread(
        self, running: Running, method: Method, args: Sequence[object], named: Mapping[str, object]
    ) -> Sequence[Word] | BaseException:
        # It may have waited for a thread until nobody wanted it any more.
        if running.over:
            return ()
        tracing.enter(running.call.traceparent)  # nobody else has this context
        try:
            return self._answers.result(running.call.id, _returned(method.function(*args, **named)))
        except BaseException as exc:  # noqa: BLE001  # the caller gets it
            return exc

    def _from_thread(self, running: Running, outcome: Sequence[Word] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._fail(running, outcome)
        elif not running.over:
            running.over = True
            self.tell(running, outcome)
        self._end(running)

    # The end.

    def _fail(self, running: Running, error: BaseException) -> None:
        if running.over:
            return
        running.over = True
        call = running.call
        self.tell(running, [logged(call.id, call.method, error, show_errors=self._app.show_errors)])

    def _end(self, running: Running) -> None:
        running.stop = None  # its task may be at another call by now
        del self.live[running]
        self._ended(running)


def _size(word: Word) -> int:
    """Return about how many bytes a part of an answer has, as far as that is known without writing it."""
    if isinstance(word, Attachment):
        return len(word.data)
    return cost(word.body) if isinstance(word, Result) and word.body is not None else 0


def _returned(value: object) -> object:
    if asyncio.iscoroutine(value):
        value.close()
        raise TypeError("a plain function returned a coroutine; a decorator may have hidden that it is async")
    return value
