"""The hub with its port: from settings to listening sockets, and from a signal to the end."""

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
from fiveways.runtime import answers
from fiveways.runtime.clock import steady_clock, wall_clock
from fiveways.runtime.clock_guard import ClockGuard
from fiveways.runtime.endpoints import ENDPOINTS, Endpoint, Speakers, described
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.lines import Sparing, known
from fiveways.runtime.listening import CannotListen, http_limits, no_port
from fiveways.runtime.local import LocalPeer
from fiveways.runtime.logins import credentials_of
from fiveways.runtime.mqtt.side import MqttSide
from fiveways.runtime.pages import Pages
from fiveways.runtime.process import Collector
from fiveways.runtime.pump import Pump
from fiveways.runtime.refusals import Refusals
from fiveways.runtime.restoring import restore
from fiveways.runtime.results import Results
from fiveways.runtime.standing import Leg
from fiveways.runtime.standings import HEADER, Standings
from fiveways.runtime.tracing import Tracing
from fiveways.runtime.watching import Watching
from fiveways.runtime.zmq_side import ZmqSide
from fiveways.settings.hub import hub_settings
from fiveways.settings.sections import Settings
from fiveways.store.store import Store
from fiveways.transports.base import Link
from fiveways.transports.http import (
    Request,
    Response,
    shows_other_credentials,
    unauthorized,
)
from fiveways.transports.origin import check_origin, preflight, shared
from fiveways.transports.port import Port
from fiveways.transports.spool import DiskSpools
from fiveways.transports.websocket import WebSocketLink
from fiveways.transports.websocket_server import check_picows, server_protocol
from fiveways.wire.packet import Packet

if TYPE_CHECKING:
    from fiveways.runtime.journaling import Journaling

_log = logging.getLogger("fiveways.server")
_PARTING: Final = 5.0
"""Seconds for all peers to be gone after the last word; a link that lingers is cut off before."""
_LONGEST_PATH: Final = 200
"""Of a refused request, so much is noted down."""
_TAKEN_OVER: Final = frozenset({"app", "auth", "calls", "dashboard", "metrics", "topics"})
"""Sections whose new settings hold at once."""
_AT_ONCE: Final = 256
"""Peers that are asked for a sign of life before others get their turn."""


class Server:
    """One hub on one port, in the running event loop."""

    def __init__(self, settings: Settings, app: App | None = None) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._random = SystemRandom()
        self._app = app
        self._shows_errors = app is not None and app.show_errors
        most, most_each = self._limits.max_spool, self._limits.max_attachment
        self._spools = DiskSpools(most, most_each, settings.server.spool_directory or None, self._limits.share)
        self._speakers = Speakers(self._random, self._limits, settings.protocol_options())
        now, keeps = steady_clock(), bool(settings.store.path)
        self._epoch = wall_clock() - now
        hub = Hub(self._random, self._limits, hub_settings(settings), self._epoch, began_at=now, keeps=keeps)
        self.exchange = exchange = Exchange(hub)
        self._refusals = Refusals(exchange.now)
        self._port = Port(
            self._answer,
            self._upgrade,
            limits=http_limits(self._limits),
            body_limit=self._body_limit,
            refused=self._refusals.add,
        )
        self._journaling = _journaling(settings, self._random)
        self._tracing = Tracing(settings.tracing, self._epoch) if settings.tracing.endpoint else None
        self._clock = ClockGuard(settings.store.clock_jump, exchange, self._journaling, wall_clock)
        hub.built_ins.clock = self._clock
        self._watching = Watching(exchange, self._journaling, self._tracing, self._epoch + now)
        self._watching.port, self._watching.refusals, self._watching.clock = self._port, self._refusals, self._clock
        self._foreigners = Sparing(_log)
        self._local: LocalPeer | None = None
        self.pumps: set[Pump] = set()
        self.standings = Standings(
            self.exchange,
            self._random,
            self._limits,
            settings.protocol_options().get("nq", {}),
            settings.nq.peer_ttl,
            cookie_is_secure=settings.nq.secure_cookie,
        )
        self._watch: asyncio.Task[None] | None = None
        self._draining = False
        self._zmq = ZmqSide(settings, self.exchange, self.standings, self._new_peer)
        self._mqtt: MqttSide | None = None
        self._place = settings.server.host, settings.server.port
        self.urls: list[tuple[str, str]] = []
        """What is served where, once it is."""
        self._pages = Pages(settings, lambda: answers.welcome(self.urls), self._may_call, self._port.unread)
        self._results = Results()
        self.exchange.hub.built_ins.results = self._results.latest

    async def start(self) -> None:
        """Listen; CannotListen if that is impossible, StoreError if the store cannot be used."""
        check_picows()
        if self._settings.store.path:
            store = Store.open(self._settings.store.path, now=self._clock.now, mark=self._clock.mark)
            self.exchange.keeping.store = store
        try:
            self._recover()
            await self._serve()
        except BaseException:
            if self.exchange.keeping.store is not None:
                self.exchange.keeping.store.close()
            raise

    async def _serve(self) -> None:
        places = await self._listen()
        self._place = places[0]
        has_page = self._settings.dashboard.enabled
        self.urls = [url for host, port in places for url in described(host, port, has_page=has_page)]
        self._results.look_into(self._settings.dashboard.tables)
        self.urls += await self._zmq.start()
        if self._app is not None:
            self._show_errors()
            self._local = LocalPeer(self._app, self.exchange, self._new_peer(), self._limits)
            await self._local.start()
        if self._settings.mqtt.enabled:
            self._mqtt = MqttSide(self._settings, self.exchange, self._random, self._new_peer)
            self._watching.mqtt = self._mqtt
            await self._mqtt.start(self.urls.append)
        if self._tracing is not None:
            self._tracing.start()
            self.exchange.hub.trace(self._tracing.spans)
        self._watch = asyncio.create_task(self._watch_over(), name="watch over silent peers")

    def _recover(self) -> None:
        """Begin the journal, and take over what the store holds."""
        store = self.exchange.keeping.store
        self._clock.resume("" if store is None else store.last_mark())
        if self._journaling is not None:
            self._journaling.start()
            self.exchange.tape = self._journaling.tape
            self.exchange.hub.traffic.is_journaled = True
        if store is not None:
            restore(store, self.exchange, self.standings, self._settings.store.settle)
            self._clock.restored()

    async def _listen(self) -> list[tuple[str, int]]:
        server = self._settings.server
        try:
            return await self._port.listen(server.host, server.port)
        except OSError as exc:
            raise CannotListen(no_port(server.host, server.port, exc)) from exc

    def announce(self) -> None:
        """Say in the log that it runs, and where."""
        host, port = self._place
        about = known(version=version("fiveways"), pid=os.getpid(), host=host, port=port)
        _log.info("the hub is running", extra=about)

    def _show_errors(self) -> None:
        """Let callers be told what methods raise, if the settings or the application's own code want that."""
        if self._app is not None:
            self._app.show_errors = self._shows_errors or self._settings.app.show_errors

    def reload(self, settings: Settings) -> None:
        """Take new settings; most sections need a new start, and are named."""
        for section in (each.name for each in dataclasses.fields(settings) if each.compare):
            changed = getattr(settings, section) != getattr(self._settings, section)
            if changed and section not in _TAKEN_OVER:
                _log.warning("the settings of [%s] are taken over at the next start only", section)
        self._settings = settings
        self._show_errors()
        self._pages.configure(settings)
        self._results.look_into(settings.dashboard.tables)
        self.exchange.perform(self.exchange.hub.reload(hub_settings(settings)), self.exchange.now())
        if self._mqtt is not None:
            self._mqtt.renew()
        _log.info("the settings were taken over")

    async def stop(self) -> None:
        """Let open calls end, tell all peers, and close: nothing new is taken from now on."""
        self._draining = self._watching.is_draining = True
        exchange = self.exchange
        about = known(open_calls=exchange.hub.open_calls(), sessions=len(exchange.parties))
        _log.info("the hub is closing: open calls have %g seconds", self._settings.server.drain_timeout, extra=about)
        exchange.perform(exchange.hub.drain(exchange.now()), exchange.now())
        if self._mqtt is not None:
            self._mqtt.withdraw()
        await self._until(lambda: exchange.hub.open_calls() == 0, self._settings.server.drain_timeout)
        await self._port.close()
        now = exchange.now()
        exchange.perform(exchange.hub.finish(now), now)
        if self._local is not None:
            await self._local.stop()
        for pump in list(self.pumps):
            pump.close("the hub is closing")
        for each in (self.standings, self._results, self._clock):
            each.stop()
        if self._watch is not None:
            self._watch.cancel()
        await self._until(lambda: not self.pumps and not self.standings.legs, _PARTING)
        if self._mqtt is not None:
            await self._mqtt.stop()
        await self._zmq.stop()
        if exchange.keeping.store is not None:
            exchange.keeping.store.close()
        if self._journaling is not None:
            await self._journaling.stop()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.stop)
        exchange.doors.flush(is_last=True)
        _log.info("the hub is closed")

    async def _until(self, is_over: Callable[[], bool], patience: float) -> None:
        """Wait for something that nobody tells of, as it happens once in a hub's life."""
        until = self.exchange.now() + patience
        while not is_over() and self.exchange.now() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    # Who comes in.

    def _may_call(self, credentials: Credentials, method: str) -> bool:
        return self.exchange.hub.gate.may_call(credentials, method, self.exchange.now())

    def _new_peer(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def _upgrade(self, request: Request) -> Response | Callable[[], asyncio.BaseProtocol]:
        """Answer a request for a WebSocket."""
        refused = self._refusal(request)
        if refused is not None:
            return refused
        endpoint = ENDPOINTS.get(request.path)
        if endpoint is None:
            return answers.no_such_path(request.path)
        if self._draining:
            return Response(503, b"the hub is closing\n")
        subprotocol = endpoint.subprotocol(request.headers.get("sec-websocket-protocol", ""))
        credentials = credentials_of(request)

        def pump(link: WebSocketLink) -> Pump | Leg:
            if endpoint.posts:
                return self.standings.link(link, request, credentials)
            is_observer = any(field.partition("=")[0] == OBSERVER for field in request.query.split("&"))
            return self._pump(link, endpoint, subprotocol, dataclasses.replace(credentials, is_observer=is_observer))

        spools = self._spools.of(request.remote) if endpoint.attachments else None
        limits, unfinished = self._limits, self._port.unfinished
        return lambda: server_protocol(
            lambda: WebSocketLink(pump, limits, spools, unfinished=unfinished), limits, unfinished, subprotocol
        )

    def _pump(self, link: Link, endpoint: Endpoint, subprotocol: str, credentials: Credentials) -> Pump:
        peer = self._new_peer()

        def choose(packet: Packet) -> tuple[ProtocolSpec, Conversation]:
            return self._speakers.converse(endpoint.protocol(subprotocol, packet), peer)

        spools = self._spools.of(link.remote)
        pump = Pump(peer, link, self.exchange, choose, credentials, self._limits, spools, self.pumps.discard)
        self.pumps.add(pump)
        pump.expect(self._settings.auth.login_timeout)
        return pump

    def _refusal(self, request: Request) -> Response | None:
        server = self._settings.server
        sentence = check_origin(request.headers, server.origins, (*server.hosts, server.host))
        answer = Response(403, f"{sentence}\n".encode())
        if sentence is None:
            if not shows_other_credentials(request.headers):
                return None
            # Unreadable credentials are refused: an anonymous session would hide that they were not understood.
            sentence = "only Authorization: Bearer TOKEN is understood here"
            answer = unauthorized(sentence, shared(request.headers))
        path = request.path[:_LONGEST_PATH]
        about = {"path": path, "from": request.remote}
        self._foreigners.tell(self.exchange.now(), "a request was refused: %s", sentence, **about)
        if self._journaling is not None:
            self._journaling.refuse(path, sentence)
        return answer

    def _body_limit(self, request: Request) -> tuple[int, bool]:
        """Return how large a body may be, and whether its client will be authenticated."""
        is_known, limits = self.exchange.hub.gate.identify(credentials_of(request)) is not None, self._limits
        return limits.max_text if is_known else min(limits.max_unauthenticated, limits.max_text), is_known

    def _answer(self, request: Request) -> Response | Awaitable[Response]:
        """Answer a plain HTTP request."""
        refused = self._refusal(request)
        if refused is not None:
            return refused
        endpoint = ENDPOINTS.get(request.path)
        if endpoint is not None:
            if endpoint.posts and request.method == "OPTIONS" and "origin" in request.headers:
                return preflight(request.headers, "POST", "Content-Type", "Authorization", HEADER)
            if not endpoint.posts or request.method != "POST":
                return answers.no_websocket(endpoint, request.method)
            if self._draining:
                return answers.CLOSING
            return self.standings.post(request, credentials_of(request))
        page = self._pages.answer(request)
        if page is not None:
            return page
        if request.path not in answers.PLAIN:
            return answers.no_such_path(request.path)
        return self._watching.answer(request) if request.method in {"GET", "HEAD"} else answers.READ_ONLY

    # Who is silent.

    async def _watch_over(self) -> None:
        """Ask those who were silent for a while whether they are there; let those go who do not answer."""
        server = self._settings.server
        while True:
            await asyncio.sleep(server.ping_interval)
            self.exchange.doors.flush()
            asked: list[Pump | Leg] = []
            there: list[Pump | Leg] = [*self.pumps, *self.standings.legs]
            for number, pump in enumerate(there):
                if pump.is_silent():
                    asked.append(pump)
                    pump.link.ping()
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(server.ping_timeout)
            for pump in asked:
                if not (pump.link.is_alive and pump.has_begun):
                    pump.link.abort()


def _journaling(settings: Settings, random: Random) -> "Journaling | None":
    """Return the journal that is wanted, if one is; only then is it worth its start."""
    if not settings.journal.path:
        return None
    from fiveways.runtime.journaling import Journaling  # noqa: PLC0415

    return Journaling(settings.journal, random, settings.store.clock_jump)


def _allow_many_connections() -> None:
    """Take as many file descriptors as this process may have; most systems give few until they are asked."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(
    settings: Settings,
    app: App | None = None,
    *,
    started: Callable[[Server], None] = lambda _: None,
    reload: Callable[[], Settings] | None = None,
) -> None:
    """Run a hub until TERM or INT; HUP takes new settings from `reload`, and keeps the old ones if those are bad."""
    _allow_many_connections()
    server = Server(settings, app)
    await server.start()
    parties = server.exchange.parties
    server.exchange.left.append(Collector(lambda: len(parties)).ended)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def take_over() -> None:
        try:
            if reload is not None:
                server.reload(reload())
        except FivewaysError as exc:
            _log.error("the old settings stay: %s", exc)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, take_over)
    started(server)
    server.announce()
    try:
        await ended.wait()
    finally:
        await server.stop()
