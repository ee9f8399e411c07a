"""The hub process: ports, start, reload and shutdown."""

import asyncio
import dataclasses
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from fiveways.app import App
from fiveways.errors import FivewaysError
from fiveways.hub.core import Hub
from fiveways.hub.traits import OBSERVER, Credentials
from fiveways.protocols.base import Conversation, ProtocolSpec
from fiveways.runtime import http_responses
from fiveways.runtime.admin_endpoints import AdminEndpoints
from fiveways.runtime.clock import steady_clock, wall_clock
from fiveways.runtime.clock_guard import ClockGuard
from fiveways.runtime.endpoints import ENDPOINTS, ConversationFactory, Endpoint, list_urls
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.garbage_collector import GarbageCollector
from fiveways.runtime.http_authentication import read_credentials
from fiveways.runtime.listen_errors import CannotListen, http_limits, listen_error
from fiveways.runtime.local_peer import LocalPeer
from fiveways.runtime.mqtt.gateway import MqttGateway
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.runtime.pipeline_results import PipelineResults
from fiveways.runtime.refused_connections import RefusedConnections
from fiveways.runtime.session_connection import SessionConnection
from fiveways.runtime.session_registry import PEER_HEADER, SessionRegistry
from fiveways.runtime.store_restore import restore_hub
from fiveways.runtime.structured_logging import RateLimitedLog, log_fields
from fiveways.runtime.trace_sender import TraceSender
from fiveways.runtime.web_pages import Pages
from fiveways.runtime.zmq_gateway import ZmqGateway
from fiveways.settings.hub_settings import to_hub_settings
from fiveways.settings.sections import Settings
from fiveways.store.store import Store
from fiveways.transports.base import Link
from fiveways.transports.http import (
    Request,
    Response,
    shows_other_credentials,
    unauthorized,
)
from fiveways.transports.http_port import Port
from fiveways.transports.origin import check_origin, cors_headers, preflight
from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket import WebSocketLink
from fiveways.transports.websocket_server import check_picows, server_protocol
from fiveways.wire.packet import Packet

if TYPE_CHECKING:
    from fiveways.runtime.hub_journal import HubJournal

_log = logging.getLogger("fiveways.server")
_CLOSE_TIMEOUT: Final = 5.0
"""Seconds for all peers to disconnect after the goodbye; lingering links are aborted earlier."""
_MAX_LOGGED_PATH: Final = 200
"""Characters of a refused request's path in the log."""
_RELOADABLE_SECTIONS: Final = frozenset({"app", "auth", "calls", "dashboard", "metrics", "topics"})
"""Sections of the settings that apply without a restart."""
_PINGS_PER_ITERATION: Final = 256
"""Keepalive checks before other tasks get their turn."""


class Server:
    """One hub on one port, in the running event loop."""

    def __init__(self, settings: Settings, app: App | None = None) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._random = SystemRandom()
        self._app = app
        self._shows_errors = app is not None and app.show_errors
        max_spool, max_attachment = self._limits.max_spool, self._limits.max_attachment
        self._spools = DiskSpools(
            max_spool, max_attachment, settings.server.spool_directory or None, self._limits.share
        )
        self._conversations = ConversationFactory(self._random, self._limits, settings.protocol_options())
        now, is_durable = steady_clock(), bool(settings.store.path)
        self._epoch = wall_clock() - now
        hub = Hub(
            self._random, self._limits, to_hub_settings(settings), self._epoch, started_at=now, is_durable=is_durable
        )
        self.exchange = exchange = Exchange(hub)
        self._refusals = RefusedConnections(exchange.now)
        self._port = Port(
            self._handle_request,
            self._handle_upgrade,
            limits=http_limits(self._limits),
            body_limit=self._body_limit,
            refused=self._refusals.add,
        )
        self._journal = _create_journal(settings, self._random)
        self._tracing = TraceSender(settings.tracing, self._epoch) if settings.tracing.endpoint else None
        self._clock_guard = ClockGuard(settings.store.clock_jump, exchange, self._journal, wall_clock)
        hub.built_ins.clock = self._clock_guard
        self._admin_endpoints = AdminEndpoints(exchange, self._journal, self._tracing, self._epoch + now)
        self._admin_endpoints.port, self._admin_endpoints.refused_connections, self._admin_endpoints.clock = (
            self._port,
            self._refusals,
            self._clock_guard,
        )
        self._refused_request_log = RateLimitedLog(_log)
        self._local_peer: LocalPeer | None = None
        self.connections: set[PeerConnection] = set()
        self.resumable_sessions = SessionRegistry(
            self.exchange,
            self._random,
            self._limits,
            settings.protocol_options().get("nq", {}),
            settings.nq.peer_ttl,
            cookie_is_secure=settings.nq.secure_cookie,
        )
        self._keepalive_task: asyncio.Task[None] | None = None
        self._is_draining = False
        self._zmq = ZmqGateway(settings, self.exchange, self.resumable_sessions, self._new_peer)
        self._mqtt: MqttGateway | None = None
        self._address = settings.server.host, settings.server.port
        self.urls: list[tuple[str, str]] = []
        """Pairs of a protocol or page and its URL, after the start."""
        self._pages = Pages(settings, lambda: http_responses.welcome_page(self.urls), self._may_call, self._port.unread)
        self._results = PipelineResults()
        self.exchange.hub.built_ins.pipeline_results = self._results.latest

    async def start(self) -> None:
        """Listen; CannotListen if that is impossible, StoreError if the store cannot be used."""
        check_picows()
        if self._settings.store.path:
            store = Store.open(self._settings.store.path, now=self._clock_guard.now, mark=self._clock_guard.mark)
            self.exchange.persister.store = store
        try:
            self._restore()
            await self._serve()
        except BaseException:
            if self.exchange.persister.store is not None:
                self.exchange.persister.store.close()
            raise

    async def _serve(self) -> None:
        addresses = await self._listen()
        self._address = addresses[0]
        has_page = self._settings.dashboard.enabled
        self.urls = [url for host, port in addresses for url in list_urls(host, port, has_page=has_page)]
        self._results.follow(self._settings.dashboard.tables)
        self.urls += await self._zmq.start()
        if self._app is not None:
            self._show_errors()
            self._local_peer = LocalPeer(self._app, self.exchange, self._new_peer(), self._limits)
            await self._local_peer.start()
        if self._settings.mqtt.enabled:
            self._mqtt = MqttGateway(self._settings, self.exchange, self._random, self._new_peer)
            self._admin_endpoints.mqtt_gateway = self._mqtt
            await self._mqtt.start(self.urls.append)
        if self._tracing is not None:
            self._tracing.start()
            self.exchange.hub.set_span_recorder(self._tracing.spans)
        self._keepalive_task = asyncio.create_task(self._check_keepalive(), name="check keepalives")

    def _restore(self) -> None:
        """Start the journal, and restore the hub's state from the store."""
        store = self.exchange.persister.store
        self._clock_guard.resume("" if store is None else store.last_mark())
        if self._journal is not None:
            self._journal.start()
            self.exchange.frame_buffer = self._journal.frame_buffer
            self.exchange.hub.traffic.is_journaled = True
        if store is not None:
            restore_hub(store, self.exchange, self.resumable_sessions, self._settings.store.settle)
            self._clock_guard.allow_late_times()

    async def _listen(self) -> list[tuple[str, int]]:
        server = self._settings.server
        try:
            return await self._port.listen(server.host, server.port)
        except OSError as exc:
            raise CannotListen(listen_error(server.host, server.port, exc)) from exc

    def log_started(self) -> None:
        """Log the version, process id and address of the running hub."""
        host, port = self._address
        fields = log_fields(version=version("fiveways"), pid=os.getpid(), host=host, port=port)
        _log.info("the hub is running", extra=fields)

    def _show_errors(self) -> None:
        """Show callers the exceptions of methods, if the settings or the application say so."""
        if self._app is not None:
            self._app.show_errors = self._shows_errors or self._settings.app.show_errors

    def reload(self, settings: Settings) -> None:
        """Apply new settings; log the changed sections that need a restart."""
        for section in (field.name for field in dataclasses.fields(settings) if field.compare):
            changed = getattr(settings, section) != getattr(self._settings, section)
            if changed and section not in _RELOADABLE_SECTIONS:
                _log.warning("[%s] changed; restart the hub to apply it", section)
        self._settings = settings
        self._show_errors()
        self._pages.configure(settings)
        self._results.follow(settings.dashboard.tables)
        self.exchange.perform(self.exchange.hub.reload(to_hub_settings(settings)), self.exchange.now())
        if self._mqtt is not None:
            self._mqtt.register_services()
        _log.info("settings reloaded")

    async def stop(self) -> None:
        """Drain open calls, say goodbye to all peers, and close."""
        self._is_draining = self._admin_endpoints.is_draining = True
        exchange = self.exchange
        fields = log_fields(
            drain_timeout=self._settings.server.drain_timeout,
            open_calls=exchange.hub.open_calls(),
            sessions=len(exchange.participants),
        )
        _log.info("the hub is shutting down; draining open calls", extra=fields)
        exchange.perform(exchange.hub.drain(exchange.now()), exchange.now())
        if self._mqtt is not None:
            self._mqtt.withdraw()
        await self._wait_until(lambda: exchange.hub.open_calls() == 0, self._settings.server.drain_timeout)
        await self._port.close()
        now = exchange.now()
        exchange.perform(exchange.hub.end_calls(now), now)
        if self._local_peer is not None:
            await self._local_peer.stop()
        for connection in list(self.connections):
            connection.close("the hub is closing")
        for component in (self.resumable_sessions, self._results, self._clock_guard):
            component.stop()
        if self._keepalive_task is not None:
            self._keepalive_task.cancel()
        await self._wait_until(lambda: not self.connections and not self.resumable_sessions.connections, _CLOSE_TIMEOUT)
        if self._mqtt is not None:
            await self._mqtt.stop()
        await self._zmq.stop()
        if exchange.persister.store is not None:
            exchange.persister.store.close()
        if self._journal is not None:
            await self._journal.stop()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.stop)
        exchange.session_log.flush(is_last=True)
        _log.info("the hub has stopped")

    async def _wait_until(self, is_over: Callable[[], bool], wait: float) -> None:
        """Poll a condition until it holds or the timeout ends; it runs only at shutdown."""
        deadline = self.exchange.now() + wait
        while not is_over() and self.exchange.now() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    # New connections.

    def _may_call(self, credentials: Credentials, method: str) -> bool:
        return self.exchange.hub.admission.may_call(credentials, method, self.exchange.now())

    def _new_peer(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def _handle_upgrade(self, request: Request) -> Response | Callable[[], asyncio.BaseProtocol]:
        """Handle a WebSocket upgrade request."""
        refused = self._check_request(request)
        if refused is not None:
            return refused
        endpoint = ENDPOINTS.get(request.path)
        if endpoint is None:
            return http_responses.path_not_found(request.path)
        if self._is_draining:
            return Response(503, b"the hub is closing\n")
        subprotocol = endpoint.subprotocol(request.headers.get("sec-websocket-protocol", ""))
        credentials = read_credentials(request)

        def connect(link: WebSocketLink) -> PeerConnection | SessionConnection:
            if endpoint.accepts_post:
                return self.resumable_sessions.connect(link, request, credentials)
            is_observer = any(field.partition("=")[0] == OBSERVER for field in request.query.split("&"))
            return self._connect_peer(
                link, endpoint, subprotocol, dataclasses.replace(credentials, is_observer=is_observer)
            )

        spools = self._spools.for_remote(request.remote) if endpoint.attachments else None
        limits, unfinished = self._limits, self._port.unfinished
        return lambda: server_protocol(
            lambda: WebSocketLink(connect, limits, spools, unfinished=unfinished), limits, unfinished, subprotocol
        )

    def _connect_peer(
        self, link: Link, endpoint: Endpoint, subprotocol: str, credentials: Credentials
    ) -> PeerConnection:
        peer = self._new_peer()

        def choose_protocol(packet: Packet) -> tuple[ProtocolSpec, Conversation]:
            return self._conversations.create(endpoint.protocol(subprotocol, packet), peer)

        spools = self._spools.for_remote(link.remote)
        connection = PeerConnection(
            peer, link, self.exchange, choose_protocol, credentials, self._limits, spools, self.connections.discard
        )
        self.connections.add(connection)
        connection.set_login_timeout(self._settings.auth.login_timeout)
        return connection

    def _check_request(self, request: Request) -> Response | None:
        server = self._settings.server
        refusal = check_origin(request.headers, server.origins, (*server.hosts, server.host))
        response = Response(403, f"{refusal}\n".encode())
        if refusal is None:
            if not shows_other_credentials(request.headers):
                return None
            # Refused, because an anonymous session would hide that the credentials were not understood.
            refusal = "unsupported credentials; use Authorization: Bearer TOKEN"
            response = unauthorized(refusal, cors_headers(request.headers))
        path = request.path[:_MAX_LOGGED_PATH]
        fields = {"path": path, "from": request.remote}
        self._refused_request_log.log(self.exchange.now(), "request refused: %s", refusal, **fields)
        if self._journal is not None:
            self._journal.record_refusal(path, refusal)
        return response

    def _body_limit(self, request: Request) -> tuple[int, bool]:
        """Return the largest allowed body, and whether the client will be authenticated."""
        is_known, limits = self.exchange.hub.admission.identify(read_credentials(request)) is not None, self._limits
        return limits.max_text if is_known else min(limits.max_unauthenticated, limits.max_text), is_known

    def _handle_request(self, request: Request) -> Response | Awaitable[Response]:
        """Handle a plain HTTP request."""
        refused = self._check_request(request)
        if refused is not None:
            return refused
        endpoint = ENDPOINTS.get(request.path)
        if endpoint is not None:
            if endpoint.accepts_post and request.method == "OPTIONS" and "origin" in request.headers:
                return preflight(request.headers, "POST", "Content-Type", "Authorization", PEER_HEADER)
            if not endpoint.accepts_post or request.method != "POST":
                return http_responses.upgrade_required(endpoint, request.method)
            if self._is_draining:
                return http_responses.CLOSING_RESPONSE
            return self.resumable_sessions.handle_post(request, read_credentials(request))
        page = self._pages.answer(request)
        if page is not None:
            return page
        if request.path not in http_responses.PLAIN_HTTP_PATHS:
            return http_responses.path_not_found(request.path)
        return (
            self._admin_endpoints.answer(request)
            if request.method in {"GET", "HEAD"}
            else http_responses.METHOD_NOT_ALLOWED
        )

    # Keepalive.

    async def _check_keepalive(self) -> None:
        """Ping silent peers, and abort the links of those that do not respond."""
        server = self._settings.server
        while True:
            await asyncio.sleep(server.ping_interval)
            self.exchange.session_log.flush()
            silent: list[PeerConnection | SessionConnection] = []
            connections: list[PeerConnection | SessionConnection] = [
                *self.connections,
                *self.resumable_sessions.connections,
            ]
            for number, connection in enumerate(connections):
                if connection.check_silent():
                    silent.append(connection)
                    connection.link.ping()
                if number % _PINGS_PER_ITERATION == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(server.ping_timeout)
            for connection in silent:
                if not (connection.link.is_alive and connection.has_begun):
                    connection.link.abort()


def _create_journal(settings: Settings, random: Random) -> "HubJournal | None":
    """Return the journal if the settings name one; only then is it imported."""
    if not settings.journal.path:
        return None
    from fiveways.runtime.hub_journal import HubJournal  # noqa: PLC0415

    return HubJournal(settings.journal, random, settings.store.clock_jump)


def _raise_open_file_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


async def serve(
    settings: Settings,
    app: App | None = None,
    *,
    started: Callable[[Server], None] = lambda _: None,
    reload: Callable[[], Settings] | None = None,
) -> None:
    """Run a hub until SIGTERM or SIGINT.

    SIGHUP applies new settings from `reload`; if they are invalid, the old ones stay.
    """
    _raise_open_file_limit()
    server = Server(settings, app)
    await server.start()
    participants = server.exchange.participants
    server.exchange.on_leave.append(GarbageCollector(lambda: len(participants)).count_ended)
    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()

    def reload_settings() -> None:
        try:
            if reload is not None:
                server.reload(reload())
        except FivewaysError as exc:
            _log.error("settings not reloaded; the old ones stay: %s", exc)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    loop.add_signal_handler(signal.SIGHUP, reload_settings)
    started(server)
    server.log_started()
    try:
        await stop_requested.wait()
    finally:
        await server.stop()
