"""One hub process as the hub fuzzer runs it: a real server without sockets, from its start to its stop or kill."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fiveways.hub.traits import Credentials
from fiveways.journal.frame_buffer import FrameBuffer
from fiveways.runtime import server as server_module
from fiveways.runtime.endpoints import ENDPOINTS
from fiveways.runtime.http_authentication import read_credentials
from fiveways.runtime.mqtt import broker_peer as mqtt_peer
from fiveways.runtime.mqtt.topic_election import CLAIMS_PREFIX
from fiveways.settings.limits import LimitSettings
from fiveways.settings.operations import MetricsSettings
from fiveways.settings.sections import (
    AuthSettings,
    CallSettings,
    IdentitySettings,
    MqttSettings,
    NqSettings,
    Secret,
    Settings,
    StoreSettings,
)
from fiveways.store.contents import StoreContents
from fiveways.transports.http import Request, Response
from fiveways.transports.memory import MemoryLink, link_pair
from fiveways.transports.mqtt_link import MqttMessage
from fuzz import hub_app
from fuzz.virtual_time import InlineStore, unix_time
from tests.support.store_helpers import Model

TOKENS: Final = {"ada": "token-of-ada", "bob": "token-of-bob"}
SECRET: Final = "secret-of-ada"  # noqa: S105  of a hub without sockets
REQUEST_TTL: Final = 300.0
PEER_TTL: Final = 2000.0
_HIGH_WATER: Final = 1 << 14
_BROAD: Final = ("*", "hub.purge")
SETTINGS: Final = Settings(
    limits=LimitSettings(
        max_text=1 << 14,
        max_attachments=4,
        max_expected_attachments=8,
        max_pending=12,
        max_subscriptions=6,
        max_variables=4,
        max_stream=8,
        max_unread_events=1 << 14,
        max_unread=1 << 18,
        max_offers=6,
        max_retained=8,
        max_queues=3,
        max_queue=8,
        max_tries=3,
        max_owed=24,
        max_given=3,
        max_sessions=12,
        max_resumable=8,
    ),
    calls=CallSettings(timeout=20.0, max_timeout=60.0),
    auth=AuthSettings(
        identity=(
            IdentitySettings("ada", token=Secret(TOKENS["ada"]), secret=Secret(SECRET), call=_BROAD, close=("*",)),
            IdentitySettings("bob", token=Secret(TOKENS["bob"]), offer=("beta.*", "gamma"), pull=("jobs",)),
        ),
        call=("*", "hub.purge"),
        name_grace=5.0,
        max_failures=3,
    ),
    nq=NqSettings(request_ttl=REQUEST_TTL, answer_ttl=400.0, duplicate_window=200.0, peer_ttl=PEER_TTL),
    mqtt=MqttSettings(
        enabled=True,
        url="mqtt://127.0.0.1:1883",
        services={"/Meter/Read": "bytes"},
        topics={"sensors/#": "both"},
        retry_after=10.0,
    ),
    metrics=MetricsSettings(max_methods=6, max_topics=4),
)
OTHER_SETTINGS: Final = replace(
    SETTINGS,
    calls=CallSettings(timeout=5.0),
    auth=replace(SETTINGS.auth, call=("alpha", "beta.*", "hub.*"), subscribe=("t.*",), pull=("mail",)),
)
"""Settings for a reload: some permissions are withdrawn."""


class FakeBroker:
    """A link to a broker without a socket. Its only other client is the fuzzer."""

    transport = "mqtt"
    is_loopback = True
    remote = "127.0.0.1:1883"
    is_full = False

    def __init__(self, receiver: Any, on_publish: Callable[[str, bytes], None]) -> None:  # noqa: ANN401  a BrokerPeer
        self._receiver = receiver
        self._on_publish = on_publish
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    async def subscribe(self, filters: Sequence[str], qos: int = 1) -> None:
        """Accept all filters."""

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Accept all filters."""

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Return the hub's own election messages to it; pass all others to the fuzzer."""
        if self._is_closed:
            return
        if topic.startswith(CLAIMS_PREFIX):
            self._loop.call_soon(self.deliver, topic, payload)
        else:
            self._on_publish(topic, payload)

    def deliver(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Deliver a message to the hub."""
        if not self._is_closed:
            self._receiver.received(MqttMessage(topic, payload, retained, duplicate=False, qos=1))

    def unsent_bytes(self) -> int:
        """Return 0: every write is complete at once."""
        return 0

    def close(self) -> None:
        """Close the link."""
        self.abort()

    def abort(self) -> None:
        """Close the link; the hub is notified later, as by a socket."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._receiver.lost, "closed")


class SimulatedHub:
    """A server without listening sockets; links are attached directly.

    The store is at `path`; publications at the broker are passed to `on_publish`.
    """

    def __init__(
        self, path: Path, on_publish: Callable[[str, bytes], None], *, has_broker: bool, has_app: bool
    ) -> None:
        mqtt = SETTINGS.mqtt if has_broker else MqttSettings()
        self.settings = replace(SETTINGS, store=StoreSettings(str(path), settle=5.0), mqtt=mqtt)
        self.server = server_module.Server(self.settings, hub_app.create_app() if has_app else None)
        self.hub, self.exchange = self.server.exchange.hub, self.server.exchange
        self.resumable_sessions = self.server.resumable_sessions
        self.broker: FakeBroker | None = None
        self._on_publish = on_publish

    async def start(self, model: Model, delay: float) -> tuple[StoreContents, StoreContents]:
        """Start the hub on a store that should hold the model; return the loaded and the expected contents."""
        port: Any = self.server._port

        async def listen(_host: str, _port: int) -> list[tuple[str, int]]:
            return [("127.0.0.1", 1)]

        async def connect(_broker: object, receiver: object, **_: object) -> FakeBroker:
            self.broker = FakeBroker(receiver, self._on_publish)
            return self.broker

        port.listen = listen
        module: Any = mqtt_peer
        module.open_mqtt = connect
        InlineStore.inherited = model, delay
        await self.server.start()
        return self.store.loaded, self.store.expected

    @property
    def store(self) -> InlineStore:
        """The store of the hub."""
        store = self.exchange.persister.store
        assert isinstance(store, InlineStore)
        return store

    def record(self) -> None:
        """Journal all frames, and discard the records."""
        self.exchange.frame_buffer = buffer = FrameBuffer(lambda: int(unix_time() * 1e9))
        self.hub.traffic.is_journaled = True

        def discard() -> None:
            while buffer.take(1000) is not None:
                pass

        buffer.flush = discard

    async def empty(self) -> None:
        """End the hub's own sessions at the broker and in its process."""
        broker_peer, self.server._mqtt = self.server._mqtt, None
        if broker_peer is not None:
            await broker_peer.stop()
        local_peer, self.server._local_peer = self.server._local_peer, None
        if local_peer is not None:
            await local_peer.stop()

    def dissolve(self) -> None:
        """Break reference cycles through objects that the garbage collector does not track (`gc=False`)."""
        for session in self.hub._sessions.values():
            session.handlers = {}
            session.calls_made.clear()
            session.calls_served.clear()
        for table in (self.hub._sessions, self.exchange.participants, self.resumable_sessions._by_id):
            table.clear()

    def reload(self, settings: Settings) -> None:
        """Apply new settings with the same store and broker."""
        self.server.reload(replace(settings, store=self.settings.store, mqtt=self.settings.mqtt))

    def link(self, path: str, remote: str, token: str, peer: str) -> MemoryLink:
        """Return the client's end of a new link."""
        client_end, hub_end = link_pair(high_water=_HIGH_WATER)
        client_end.remote = hub_end.remote = remote
        endpoint = ENDPOINTS[path]
        if endpoint.accepts_post:
            request = self._request("GET", path, remote, token, peer)
            hub_end.attach(self.resumable_sessions.connect(hub_end, request, read_credentials(request)))
        else:
            hub_end.attach(self.server._connect_peer(hub_end, endpoint, "", Credentials(bearer=token, remote=remote)))
        return client_end

    async def post(self, remote: str, token: str, peer: str, body: bytes, wait: str) -> Response:
        """Return the response to an NQ POST."""
        answer = self.server._handle_request(self._request("POST", "/nq", remote, token, peer, body, wait))
        return answer if isinstance(answer, Response) else await answer

    def _request(
        self, method: str, path: str, remote: str, token: str, peer: str, body: bytes = b"", query: str = ""
    ) -> Request:
        headers = {"host": "localhost"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if peer:
            headers["nq-peer"] = peer
        return Request(method, path, query, headers, body, remote, is_loopback=True)
