"""Keeps a connection open: state, backoff and the wait for a connection, for hubs and for MQTT brokers."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import ClassVar, Generic, Protocol, TypeVar

from fiveways.client.connection_state import ConnectionState, ConnectionStatus, StatusTracker
from fiveways.client.settings import BAD_TIMEOUT
from fiveways.errors import ConnectionLost, NotExecuted, Reason, Refused
from fiveways.wire.limits import Limits

T = TypeVar("T")


class ReconnectSettings(Protocol):
    """Settings of a reconnector; times are in seconds."""

    @property
    def reconnect(self) -> bool:
        """Whether a lost connection is replaced."""

    @property
    def wait(self) -> float:
        """How long the first connection is retried."""

    @property
    def first_wait(self) -> float:
        """Limit of the wait before the first retry; it doubles with each retry."""

    @property
    def longest_wait(self) -> float:
        """Maximum of that limit."""

    @property
    def limits(self) -> Limits:
        """Limits of the client."""


class Connection(Protocol):
    """An open connection."""

    @property
    def ended(self) -> asyncio.Future[ConnectionLost]:
        """Reason for the end of the connection."""


C = TypeVar("C", bound=Connection)


class Reconnector(ABC, Generic[C]):
    """Opens one connection after another until it is closed, refused, or must not reconnect."""

    not_sent_error: ClassVar[type[NotExecuted]] = NotExecuted
    """Exception for a request that was never sent."""
    min_jitter: ClassVar[float] = 0.0
    """Shortest random wait before a retry, as a fraction of the longest."""

    def __init__(self, settings: ReconnectSettings, endpoint: str, log: logging.Logger) -> None:
        self.states = StatusTracker()
        self._reconnect_settings = settings
        self._endpoint = endpoint
        """Address of the hub or broker, for people."""
        self._log = log
        self._changed = asyncio.Event()
        """Set while there is a connection, and when there will be none."""
        self._resumed = asyncio.Event()
        """Cleared while a resumable session is paused."""
        self._resumed.set()
        self._waiting_requests = 0
        self._close_error: ConnectionLost | None = None
        self._backoff = settings.first_wait
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _connect(self) -> C:
        """Open a connection, restore its state and publish it; ConnectionLost or Refused if that fails."""

    @abstractmethod
    def _on_finished(self, error: ConnectionLost) -> None:
        """Release the last connection and tell the owner that there will be none."""

    async def start(self) -> None:
        """Open the first connection; if that fails, retry for `wait` seconds.

        Raises:
            Refused: the credentials are wrong; there is no retry.
            ConnectionLost: the hub or broker cannot be reached.
        """
        try:
            connection = await self._connect_first()
        except ConnectionLost as exc:
            self._finish(exc)
            raise
        self._set_status(ConnectionStatus(ConnectionState.CONNECTED, self._endpoint), logging.INFO)
        self._task = asyncio.create_task(self._run(connection), name=self._log.name)

    async def _connect_first(self) -> C:
        wait = self._reconnect_settings.wait
        deadline = asyncio.get_running_loop().time() + wait
        try:
            return await self._connect()
        except Refused:
            raise
        except ConnectionLost as exc:
            if wait <= 0:
                raise
            self._log.warning("%s; retrying wait=%gs", exc, wait)
            error = exc
        try:
            async with asyncio.timeout_at(deadline):
                return await self._reconnect(keep_trying=True)
        except TimeoutError:
            raise ConnectionLost(f"{error} (retried for {wait:g} seconds)") from None

    async def _wait_connection(
        self, wait: float, is_ready: Callable[[], Awaitable[T]], explain: Callable[[], str]
    ) -> tuple[T, float]:
        """Wait for a connection; return the result of `is_ready` and the remaining seconds.

        Raises:
            NotExecuted: there is no connection in time, or too many requests wait for one.
            ConnectionLost: there will be no connection.
            ValueError: `wait` is not positive.
        """
        if wait <= 0:
            raise ValueError(BAD_TIMEOUT)
        if self._waiting_requests >= self._reconnect_settings.limits.max_pending:
            text = f"{self._waiting_requests} requests already wait for a connection to {self._endpoint}"
            raise self.not_sent_error(Reason.OVERLOADED, text)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._waiting_requests += 1
        try:
            async with asyncio.timeout_at(deadline):
                result = await is_ready()
        except TimeoutError:
            raise self.not_sent_error(Reason.UNAVAILABLE, f"{explain()} within {wait:g} seconds") from None
        finally:
            self._waiting_requests -= 1
        return result, max(deadline - loop.time(), 0.001)

    def _raise_if_closed(self) -> None:
        """Raise the reason why there will be no connection, if that is so."""
        if self._close_error is not None:
            raise type(self._close_error)(str(self._close_error))

    async def _stop(self) -> None:
        """Stop to reconnect."""
        self._finish(ConnectionLost("the connection is closed"))
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, connection: C) -> None:
        loop, settings = asyncio.get_running_loop(), self._reconnect_settings
        while True:
            opened_at = loop.time()
            error = await asyncio.shield(connection.ended)
            if loop.time() - opened_at > settings.longest_wait:
                self._backoff = settings.first_wait
            if not self._may_replace(error):
                self._finish(error)
                return
            try:
                connection = await self._replace(error)
            except ConnectionLost as exc:
                self._finish(exc)
                return

    def _may_replace(self, error: ConnectionLost) -> bool:
        """Return whether a connection that ended for this reason is replaced."""
        return self._reconnect_settings.reconnect and not isinstance(error, Refused)

    async def _replace(self, error: ConnectionLost) -> C:
        """Open a new connection after one was lost."""
        self._set_status(ConnectionStatus(ConnectionState.RECONNECTING, str(error)), logging.WARNING)
        connection = await self._reconnect()
        self._set_status(ConnectionStatus(ConnectionState.RECONNECTED, self._endpoint), logging.WARNING)
        return connection

    async def _reconnect(self, *, is_urgent: bool = False, keep_trying: bool = False) -> C:
        """Retry with exponential backoff and random jitter: many clients lose one hub or broker at once."""
        random, settings = SystemRandom(), self._reconnect_settings
        while True:
            await asyncio.sleep(0 if is_urgent else random.uniform(self.min_jitter * self._backoff, self._backoff))
            is_urgent = False
            await self._resumed.wait()
            self._check_open()
            self._backoff = min(2 * self._backoff, settings.longest_wait)
            try:
                return await self._connect()
            except Refused:
                raise
            except ConnectionLost as exc:
                if not (settings.reconnect or keep_trying) and self._resumed.is_set():
                    raise
                self._log.info("reconnect failed error=%s", exc)

    def _check_open(self) -> None:
        # `asyncio.timeout` and `wait_for` can lose a cancellation if the inner call fails in the same moment.
        if self._close_error is not None:
            raise asyncio.CancelledError

    def _finish(self, error: ConnectionLost) -> None:
        if self._close_error is None:
            self._close_error = error
            self._on_finished(error)
            self._set_status(ConnectionStatus(ConnectionState.CLOSED, str(error)), logging.INFO)
        self._changed.set()

    def _set_status(self, status: ConnectionStatus, level: int) -> None:
        self._log.log(level, "%s", status)
        self.states.publish(status)
