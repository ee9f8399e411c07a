"""The hub's ZeroMQ port, and methods that ZeroMQ programs answer."""

from collections.abc import Callable

import zmq

from fiveways.runtime.exchange import Exchange
from fiveways.runtime.listen_errors import CannotListen, listen_error
from fiveways.runtime.session_registry import SessionRegistry
from fiveways.runtime.zmq_target import ZmqTarget
from fiveways.settings.sections import Settings
from fiveways.transports.address import is_loopback
from fiveways.transports.zmq_link import ZmqLimits
from fiveways.transports.zmq_port import ZmqPort
from fiveways.transports.zmq_processor_pool import ProcessorPool


class ZmqGateway:
    """The configured parts of ZeroMQ; often none."""

    def __init__(
        self, settings: Settings, exchange: Exchange, sessions: SessionRegistry, new_peer: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._exchange = exchange
        self._sessions = sessions
        self._new_peer = new_peer
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._port: ZmqPort | None = None
        self._targets: list[ZmqTarget] = []

    async def start(self) -> list[tuple[str, str]]:
        """Start, and return the served URLs; CannotListen or BadTarget if that is impossible."""
        settings = self._settings.zmq
        if settings.listen or settings.targets:
            self._context = zmq.Context()
        urls = [await self._listen()] if settings.listen else []
        self._open_targets()
        return urls

    async def _listen(self) -> tuple[str, str]:
        server, settings, limits = self._settings.server, self._settings.zmq, self._settings.limits
        if not is_loopback(server.host):
            raise CannotListen("zmq.listen needs a hub on loopback, because ZeroMQ peers cannot authenticate")
        zmq_limits = ZmqLimits(limits.max_text, max_links=limits.max_sessions, max_waiting=limits.max_unread)
        self._port = ZmqPort(self._sessions.connect_zmq, limits=zmq_limits, context=self._context)
        try:
            host, port = await self._port.listen(server.host, settings.port)
        except OSError as exc:
            raise CannotListen(listen_error(server.host, settings.port, exc)) from exc
        return "nq", f"nq+zmq://{host}:{port}"

    def _open_targets(self) -> None:
        settings, limits = self._settings.zmq, self._settings.limits
        for method, endpoints in settings.targets.items():
            processors = ProcessorPool(
                retry_after=settings.retry_after, max_answer=limits.max_text, context=self._context
            )
            target = ZmqTarget(method, processors, self._exchange, self._new_peer())
            self._targets.append(target)
            target.start(endpoints)

    async def stop(self) -> None:
        """Close the port and all targets."""
        for target in self._targets:
            target.stop()
        if self._port is not None:
            await self._port.close()
        if self._context is not None:
            self._context.destroy(linger=0)
