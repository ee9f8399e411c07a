"""A ZeroMQ socket in the event loop: no thread, and no futures, which cost more than the messages."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Final

import zmq

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]

_READS_PER_ITERATION: Final = 128
"""Messages that are read in one pass of the loop; then it is the turn of others."""
_SHORTEST_WAIT: Final = 0.001
_LONGEST_WAIT: Final = 0.128
"""Seconds between two tries to write what the socket did not take: no less, or those who do not read would cost the
others their time; and no more, since the sign that there is room may have been taken away.
"""
_CLOSED_ERRORS: Final = (errno.ENOTSOCK, zmq.ETERM)

_log = logging.getLogger("fiveways.zmq")


class SocketWatcher:
    """Knows when a socket can be read, or takes more.

    ZeroMQ shows this by a file descriptor, but only once: it stays silent until everything is read. Any call on the
    socket may take the sign away, also a send. So who has sent something calls `look`.
    """

    def __init__(self, socket: Socket, read: Callable[[], None], write: Callable[[], bool] | None = None) -> None:
        """Begin.

        Args:
            socket: What is watched; it is closed by its owner, after `close`.
            read: Takes one message from the socket without waiting, or lets zmq.Again through.
            write: Tries to write what waits, and says whether some still does; called after `wait_to_write`.
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
        self._wait = _SHORTEST_WAIT
        self._may_write_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop.remove_reader(self._fd)  # one of a closed connection may be left, see stale_file_descriptors.py
        self._loop.add_reader(self._fd, self._on_readable)
        self.schedule()

    def schedule(self) -> None:
        """Look in the next pass whether there is something to read."""
        if not (self._is_scheduled or self._is_running or self._is_closed):
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def wait_to_write(self) -> None:
        """Call `write` soon, and again until it says that nothing waits. It says so itself when some has gone."""
        self._wants_to_write = True
        if self._timer is None or self._wait > _SHORTEST_WAIT:
            self._start(_SHORTEST_WAIT)

    def pause(self) -> None:
        """Read nothing more; the other end will have to wait."""
        if not (self._is_paused or self._is_closed):
            self._is_paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Go on reading."""
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._loop.add_reader(self._fd, self._on_readable)
            self.schedule()

    def close(self) -> None:
        """Watch no longer."""
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
            self._run(is_sure=True)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._run(is_sure=False)

    def _run(self, *, is_sure: bool) -> None:
        """Read, then write. `is_sure` is whether the socket gave a sign; without, it costs less to ask than to try."""
        self._is_running = True
        is_left = False
        try:
            if is_sure or self._is_readable():
                is_left = self._read_some()
            if self._wants_to_write and not self._is_closed:
                self._write_if_due(is_sign=is_sure)
                is_left = is_left or self._is_readable()
        except zmq.ZMQError as exc:
            if exc.errno not in _CLOSED_ERRORS:
                raise
            self.close()
        finally:
            self._is_running = False
        if is_left:
            self.schedule()

    def _read_some(self) -> bool:
        """Read some messages; say whether there may be more. One alone, the usual case, needs no exception."""
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
        except Exception:  # noqa: BLE001  whatever it is, the others' messages come by this socket, too
            _log.exception("a message could not be dealt with")

    def _is_readable(self) -> bool:
        return not (self._is_paused or self._is_closed) and bool(int(self._get(zmq.EVENTS)) & zmq.POLLIN)

    def _write_if_due(self, *, is_sign: bool) -> None:
        """Write now or, where the sign may have meant that there is room, as soon as it may be tried again."""
        if self._loop.time() >= self._may_write_at:
            self._try_to_write()
        if self._wants_to_write and is_sign and self._wait > _SHORTEST_WAIT:
            self._start(_SHORTEST_WAIT)

    def _try_to_write(self) -> None:
        self._wants_to_write = self._write is not None and self._write()
        self._may_write_at = self._loop.time() + _SHORTEST_WAIT

    def _start(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wait = wait
        if not self._is_closed:
            self._timer = self._loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        """Try again, sign or no sign."""
        self._timer = None
        if self._wants_to_write:
            self._try_to_write()
            self.schedule()
        if self._wants_to_write and self._timer is None:
            self._start(min(2 * self._wait, _LONGEST_WAIT))


def milliseconds(seconds: float) -> int:
    """Return a time as ZeroMQ's options want it."""
    return round(1000 * seconds)
