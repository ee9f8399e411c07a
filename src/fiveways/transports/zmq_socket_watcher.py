"""Integration of ZeroMQ sockets into the event loop, without threads or futures, which cost more than the messages."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Final

import zmq

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]

_READS_PER_ITERATION: Final = 128
"""Messages read from one socket per event loop iteration; other sockets then get their turn."""
_MIN_WAIT: Final = 0.001
_MAX_WAIT: Final = 0.128
"""Minimum and maximum seconds between two attempts to write.

Shorter waits would let slow consumers take CPU time from others. Longer waits are not safe, because another call may
have consumed the notification that the socket is writable.
"""
_CLOSED_ERRORS: Final = (errno.ENOTSOCK, zmq.ETERM)

_log = logging.getLogger("fiveways.zmq")


class SocketWatcher:
    """Calls back when a socket is readable or may be writable.

    ZeroMQ signals this on a file descriptor, but edge-triggered: it stays silent until all messages are read. Any call
    on the socket, also a send, may consume the signal. After a send, `schedule` must therefore be called.
    """

    def __init__(self, socket: Socket, read: Callable[[], None], write: Callable[[], bool] | None = None) -> None:
        """Start watching.

        Args:
            socket: Socket to watch. Its owner closes it after `close`.
            read: Reads one message without blocking; zmq.Again if there is none.
            write: Tries to write pending messages and returns whether some are left; called after `wait_to_write`.
        """
        self._loop = asyncio.get_running_loop()
        self._read = read
        self._write = write
        self._get = socket.getsockopt
        self._fd = int(self._get(zmq.FD))
        self._is_scheduled = False
        self._is_running = False
        self._is_paused = False
        self._is_closed = False
        self._wants_to_write = False
        self._wait = _MIN_WAIT
        self._may_write_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop.remove_reader(self._fd)  # removes a stale reader, see stale_file_descriptors.py
        self._loop.add_reader(self._fd, self._on_readable)
        self.schedule()

    def schedule(self) -> None:
        """Check for messages in the next event loop iteration."""
        if not (self._is_scheduled or self._is_running or self._is_closed):
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def wait_to_write(self) -> None:
        """Call `write` soon, and again until it returns False. After partial progress, `write` must call this."""
        self._wants_to_write = True
        if self._timer is None or self._wait > _MIN_WAIT:
            self._start(_MIN_WAIT)

    def pause(self) -> None:
        """Stop reading; ZeroMQ then applies backpressure to the other end."""
        if not (self._is_paused or self._is_closed):
            self._is_paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Continue to read."""
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._loop.add_reader(self._fd, self._on_readable)
            self.schedule()

    def close(self) -> None:
        """Stop watching."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_paused:
            self._loop.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_readable(self) -> None:
        if not self._is_scheduled:
            self._run(is_signalled=True)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._run(is_signalled=False)

    def _run(self, *, is_signalled: bool) -> None:
        """Read, then write. Without a signal, asking for events is cheaper than an attempt to read."""
        self._is_running = True
        has_more = False
        try:
            if is_signalled or self._is_readable():
                has_more = self._read_some()
            if self._wants_to_write and not self._is_closed:
                self._write_if_due(is_signalled=is_signalled)
                has_more = has_more or self._is_readable()
        except zmq.ZMQError as exc:
            if exc.errno not in _CLOSED_ERRORS:
                raise
            self.close()
        finally:
            self._is_running = False
        if has_more:
            self.schedule()

    def _read_some(self) -> bool:
        """Read a batch; return whether more messages may be left. One message, the usual case, needs no exception."""
        try:
            self._read_one()
            if not self._is_readable():
                return False
            for _ in range(_READS_PER_ITERATION):
                if self._is_paused or self._is_closed:
                    return False
                self._read_one()
        except zmq.Again:
            return False
        return True

    def _read_one(self) -> None:
        try:
            self._read()
        except zmq.ZMQError:
            raise
        except Exception:  # noqa: BLE001  the messages of other peers arrive on this socket, too
            _log.exception("cannot handle a ZeroMQ message")

    def _is_readable(self) -> bool:
        return not (self._is_paused or self._is_closed) and bool(int(self._get(zmq.EVENTS)) & zmq.POLLIN)

    def _write_if_due(self, *, is_signalled: bool) -> None:
        """Write if the minimum wait is over, else as soon as it is: the signal may have meant writable."""
        if self._loop.time() >= self._may_write_at:
            self._try_to_write()
        if self._wants_to_write and is_signalled and self._wait > _MIN_WAIT:
            self._start(_MIN_WAIT)

    def _try_to_write(self) -> None:
        self._wants_to_write = self._write is not None and self._write()
        self._may_write_at = self._loop.time() + _MIN_WAIT

    def _start(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wait = wait
        if not self._is_closed:
            self._timer = self._loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        """Retry without a signal."""
        self._timer = None
        if self._wants_to_write:
            self._try_to_write()
            self.schedule()
        if self._wants_to_write and self._timer is None:
            self._start(min(2 * self._wait, _MAX_WAIT))


def milliseconds(seconds: float) -> int:
    """Convert seconds for options of ZeroMQ."""
    return round(1000 * seconds)
