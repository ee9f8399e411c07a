"""Pools of ZeroMQ programs that process requests for the hub without knowledge of its protocols."""

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
"""Callback with the response, or with None and a reason."""

_NOBLOCK: Final = zmq.NOBLOCK
_MORE: Final = zmq.SNDMORE | zmq.NOBLOCK
_QUEUE: Final = 64
"""Messages that ZeroMQ queues for one processor: few, since those for a dead one must be sent again."""
_RECONNECT: Final = 0.1
_MAX_RECONNECT: Final = 2.0
_NUMBER: Final = 8
_PREFIX: Final = 8


class ProcessorsBusy(FivewaysError):
    """The limit of pending requests is reached, or the pool is closed."""


class _Submission:
    """Request without a response so far."""

    __slots__ = ("done", "payload", "retry_delay", "timer")

    def __init__(self, payload: bytes, done: DoneCallback, retry_delay: float) -> None:
        self.payload = payload
        self.done = done
        self.retry_delay = retry_delay
        self.timer: asyncio.TimerHandle | None = None


class ProcessorPool:
    """Processors of one target: one DEALER socket, and messages [id, empty, payload] in both directions.

    REP servers see the payload alone; ROUTER and DEALER workers must send back the parts before it. Processors may
    connect to the hub, or the hub to them. A request without a response in time is sent again to the next processor. It
    may then run twice (at-least-once); the first response counts.
    """

    def __init__(
        self,
        *,
        retry_after: float = 30.0,
        max_retry_after: float = 0.0,
        max_pending: int = 4096,
        max_pending_bytes: int = 1 << 26,
        max_answer: int = 1 << 20,
        idle: int = 10,
        context: Context | None = None,
    ) -> None:
        """Initialize a pool without processors.

        Args:
            retry_after: Seconds without a response until a request is sent again; doubled for each further attempt.
            max_retry_after: Maximum of these waits in seconds; 0 is four times `retry_after`.
            max_pending: Maximum number of pending requests; ProcessorsBusy above.
            max_pending_bytes: Maximum size of pending requests; ProcessorsBusy above.
            max_answer: Maximum bytes of a response; a longer one fails the request.
            idle: Seconds of silence until TCP keepalive starts. ZeroMQ's own heartbeats may abort the process (see
                `zmq_link.apply_limits`).
            context: ZeroMQ context of the socket. Default: the context of the process.
        """
        self.retried = 0
        """Requests that were sent again."""
        self.stray_answers = 0
        """Responses without a pending request: duplicates, and those to cancelled requests."""
        self._retry_after = retry_after
        self._max_retry_after = max(max_retry_after or 4 * retry_after, retry_after)
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
            (zmq.IMMEDIATE, 1),  # queues no messages for a processor without a connection
            (zmq.LINGER, 0),
            (zmq.SNDHWM, _QUEUE),
            (zmq.RCVHWM, _QUEUE),
            (zmq.MAXMSGSIZE, 4 * max_answer + 1024),
            (zmq.RECONNECT_IVL, milliseconds(_RECONNECT)),
            (zmq.RECONNECT_IVL_MAX, milliseconds(_MAX_RECONNECT)),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, idle),
            (zmq.TCP_KEEPALIVE_INTVL, idle),
            (zmq.TCP_KEEPALIVE_CNT, 3),
        ):
            socket.setsockopt(option, value)
        self._watch = SocketWatcher(socket, self._read, self._write)

    def add(self, endpoint: str) -> None:
        """Connect to a processor, which may start later; ValueError if the endpoint is invalid."""
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as exc:
            raise ValueError(f"cannot connect to {endpoint}: {exc.strerror}") from None
        self._watch.schedule()

    def remove(self, endpoint: str) -> None:
        """Disconnect a processor; its pending requests are retried at others."""
        try:
            self._socket.disconnect(endpoint)
        except zmq.ZMQError as exc:
            raise ValueError(f"{endpoint} is not connected: {exc.strerror}") from None

    def listen(self, endpoint: str) -> str:
        """Accept connections of workers; return the endpoint. OSError if that fails."""
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as exc:
            raise OSError(exc.errno, f"cannot listen on {endpoint}: {exc.strerror}") from None
        self._watch.schedule()
        bound_endpoint = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        return bound_endpoint.decode() if isinstance(bound_endpoint, bytes) else str(bound_endpoint)

    def pending(self) -> int:
        """Return the number of pending requests."""
        return len(self._pending)

    def submit(self, payload: bytes, done: DoneCallback) -> int:
        """Send a request to a processor; return a handle for `cancel`. `done` is called once, after this returns."""
        if self._is_closed:
            raise ProcessorsBusy("the processors are closed")
        if len(self._pending) >= self._max_pending or self._bytes + len(payload) > self._max_bytes:
            raise ProcessorsBusy(f"too many pending requests: {len(self._pending)}")
        number = next(self._numbers)
        self._pending[number] = _Submission(payload, done, self._retry_after)
        self._bytes += len(payload)
        self._unsent.append(number)
        if len(self._unsent) == 1 and self._write():
            self._watch.wait_to_write()
        self._watch.schedule()
        return number

    def cancel(self, handle: int) -> bool:
        """Forget a request without calling `done`; return whether it was pending. It may still run."""
        return self._remove(handle) is not None

    def close(self) -> None:
        """Close the sockets; pending requests get None."""
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
        """Send queued requests; return whether some are left."""
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
                    submission.timer = self._loop.call_later(submission.retry_delay, self._retry, number)
                unsent.popleft()
        except zmq.Again:
            if len(unsent) < before:
                self._watch.wait_to_write()
            return True
        return False

    def _retry(self, number: int) -> None:
        """Send a request again: its processor is dead or slow."""
        submission = self._pending[number]
        submission.retry_delay = min(2 * submission.retry_delay, self._max_retry_after)
        submission.timer = None
        self.retried += 1
        self._unsent.append(number)
        if self._write():
            self._watch.wait_to_write()
        self._watch.schedule()

    def _read(self) -> None:
        parts = self._socket.recv_multipart(_NOBLOCK)
        request_id = parts[0]
        is_own = request_id.startswith(self._prefix) and len(request_id) == _PREFIX + _NUMBER
        submission = self._remove(int.from_bytes(request_id[_PREFIX:], "big")) if is_own else None
        if submission is None:
            self.stray_answers += 1
            return
        response = parts[2:] if len(parts) > 1 and not parts[1] else parts[1:]
        if len(response) != 1:
            submission.done(None, f"the response has {len(response)} parts")
        elif len(response[0]) > self._max_answer:
            submission.done(None, f"the response has {len(response[0])} bytes")
        else:
            submission.done(response[0], "")
