"""ZeroMQ programs that work for the hub and know nothing of its protocols: REP servers, or pools of workers."""

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq

from fiveways.errors import FivewaysError
from fiveways.transports.zmq_socket_watcher import Context, SocketWatcher, milliseconds

DoneCallback = Callable[[bytes | None, str], None]
"""Gets an answer; or None, and why there will be none."""

_NOBLOCK: Final = zmq.NOBLOCK
_MORE: Final = zmq.SNDMORE | zmq.NOBLOCK
_QUEUE: Final = 64
"""Messages that ZeroMQ holds for one processor: few, since those for one that died have to be sent again."""
_RECONNECT: Final = 0.1
_LONGEST_RECONNECT: Final = 2.0
_NUMBER: Final = 8
_PREFIX: Final = 8


class ProcessorsBusy(FivewaysError):
    """More waits for the processors than may."""


class _Submission:
    """Something that has no answer yet."""

    __slots__ = ("done", "payload", "timer", "wait")

    def __init__(self, payload: bytes, done: DoneCallback, wait: float) -> None:
        self.payload = payload
        self.done = done
        self.wait = wait
        self.timer: asyncio.TimerHandle | None = None


class ProcessorPool:
    """All processors of one target, which share its work: one DEALER, and [id, empty, payload] both ways.

    So a REP sees the payload alone; ROUTER and DEALER workers send back what stands before it. To whom we connect, and
    who connects to us, is all the same. What a processor does not answer in time is sent again, to whoever is next;
    it may then run twice, and the first answer counts.
    """

    def __init__(
        self,
        *,
        retry_after: float = 30.0,
        longest_wait: float = 0.0,
        max_pending: int = 4096,
        max_pending_bytes: int = 1 << 26,
        max_answer: int = 1 << 20,
        idle: int = 10,
        context: Context | None = None,
    ) -> None:
        """Make it, without any processor yet.

        Args:
            retry_after: Seconds without an answer after which something is sent again; each further time twice as many.
            longest_wait: But no more than these; 0 is four times the first wait.
            max_pending: How much may wait for an answer; `Busy` above.
            max_pending_bytes: The same, in bytes.
            max_answer: Bytes of an answer; a longer one is none.
            idle: Seconds of silence after which the system asks whether a connection is dead. ZeroMQ's own heartbeats
                may abort the process (see `zmq_link.bound`).
            context: Where the socket belongs; without one it is the process's own.
        """
        self.retried = 0
        """How often something was sent again."""
        self.stray_answers = 0
        """Answers to nothing that waits: second ones, and those to what was cancelled."""
        self._retry_after = retry_after
        self._longest_wait = max(longest_wait or 4 * retry_after, retry_after)
        self._max_pending = max_pending
        self._max_bytes = max_pending_bytes
        self._max_answer = max_answer
        self._loop = asyncio.get_running_loop()
        self._prefix = secrets.token_bytes(_PREFIX)
        self._numbers = itertools.count(1)
        self._pending: dict[int, _Submission] = {}
        self._bytes = 0
        self._unsent: deque[int] = deque()
        self._is_closed = False
        owner: Context = context or zmq.Context.instance()
        self._socket = socket = owner.socket(zmq.DEALER)
        for option, value in (
            (zmq.IMMEDIATE, 1),  # nothing is for one that is not there
            (zmq.LINGER, 0),
            (zmq.SNDHWM, _QUEUE),
            (zmq.RCVHWM, _QUEUE),
            (zmq.MAXMSGSIZE, 4 * max_answer + 1024),
            (zmq.RECONNECT_IVL, milliseconds(_RECONNECT)),
            (zmq.RECONNECT_IVL_MAX, milliseconds(_LONGEST_RECONNECT)),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, idle),
            (zmq.TCP_KEEPALIVE_INTVL, idle),
            (zmq.TCP_KEEPALIVE_CNT, 3),
        ):
            socket.setsockopt(option, value)
        self._watch = SocketWatcher(socket, self._read, self._write)

    def add(self, endpoint: str) -> None:
        """Connect to one more processor, there or not yet; ValueError if that is no endpoint."""
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as exc:
            raise ValueError(f"{endpoint} cannot be connected to: {exc.strerror}") from None
        self._watch.schedule()

    def remove(self, endpoint: str) -> None:
        """Use a processor no longer; what it has not answered goes to others, in time."""
        try:
            self._socket.disconnect(endpoint)
        except zmq.ZMQError as exc:
            raise ValueError(f"{endpoint} is not connected: {exc.strerror}") from None

    def listen(self, endpoint: str) -> str:
        """Let workers connect to us, as many as like, and return where; OSError if that cannot be."""
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as exc:
            raise OSError(exc.errno, f"cannot listen on {endpoint}: {exc.strerror}") from None
        self._watch.schedule()
        place = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        return place.decode() if isinstance(place, bytes) else str(place)

    def pending(self) -> int:
        """Return how much has no answer yet."""
        return len(self._pending)

    def submit(self, payload: bytes, done: DoneCallback) -> int:
        """Let a processor work on this; `done` is called once, in a later pass. Return what `cancel` takes."""
        if self._is_closed:
            raise ProcessorsBusy("the processors are closed")
        if len(self._pending) >= self._max_pending or self._bytes + len(payload) > self._max_bytes:
            raise ProcessorsBusy(f"{len(self._pending)} requests wait for the processors")
        number = next(self._numbers)
        self._pending[number] = _Submission(payload, done, self._retry_after)
        self._bytes += len(payload)
        self._unsent.append(number)
        if len(self._unsent) == 1 and self._write():
            self._watch.wait_to_write()
        self._watch.schedule()
        return number

    def cancel(self, handle: int) -> bool:
        """Want no answer any more, and say whether there was none yet; `done` is not called. It may still run."""
        return self._remove(handle) is not None

    def close(self) -> None:
        """End everything: what has no answer gets None."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watch.close()
        self._socket.close(0)
        self._unsent.clear()
        for number in list(self._pending):
            submission = self._remove(number)
            if submission is not None:
                self._loop.call_soon(submission.done, None, "closed")

    def _remove(self, number: int) -> _Submission | None:
        submission = self._pending.pop(number, None)
        if submission is not None:
            self._bytes -= len(submission.payload)
            if submission.timer is not None:
                submission.timer.cancel()
        return submission

    def _write(self) -> bool:
        """Send what waits; say whether some still does."""
        unsent, send = self._unsent, self._socket.send
        before = len(unsent)
        try:
            while unsent:
                number = unsent[0]
                submission = self._pending.get(number)
                if submission is not None:
                    send(self._prefix + number.to_bytes(_NUMBER, "big"), _MORE)
                    send(b"", _MORE)
                    send(submission.payload, _NOBLOCK)
                    submission.timer = self._loop.call_later(submission.wait, self._retry, number)
                unsent.popleft()
        except zmq.Again:
            if len(unsent) < before:
                self._watch.wait_to_write()
            return True
        return False

    def _retry(self, number: int) -> None:
        """Send something again: whoever had it is dead, or slow."""
        submission = self._pending[number]
        submission.wait = min(2 * submission.wait, self._longest_wait)
        submission.timer = None
        self.retried += 1
        self._unsent.append(number)
        if self._write():
            self._watch.wait_to_write()
        self._watch.schedule()

    def _read(self) -> None:
        parts = self._socket.recv_multipart(_NOBLOCK)
        mark = parts[0]
        known = mark.startswith(self._prefix) and len(mark) == _PREFIX + _NUMBER
        submission = self._remove(int.from_bytes(mark[_PREFIX:], "big")) if known else None
        if submission is None:
            self.stray_answers += 1
            return
        answer = parts[2:] if len(parts) > 1 and not parts[1] else parts[1:]
        if len(answer) != 1:
            submission.done(None, f"the answer has {len(answer)} parts")
        elif len(answer[0]) > self._max_answer:
            submission.done(None, f"the answer has {len(answer[0])} bytes")
        else:
            submission.done(answer[0], "")
