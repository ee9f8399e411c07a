"""Connection of a replayed session: a live handshake, then recorded frames."""

import asyncio
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final
from urllib.parse import urlencode

import msgspec

from fiveways.client import handshake
from fiveways.client.settings import ClientSettings
from fiveways.client.urls import Address
from fiveways.errors import ConnectionLost, FivewaysError, Refused
from fiveways.model.messages import Challenge, Goodbye, Welcome
from fiveways.protocols import registry
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.transports.base import Link
from fiveways.transports.http_client import PEER_HEADER, open_http
from fiveways.transports.websocket_client import open_websocket
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

LIMITS: Final = Limits(max_text=1 << 26, max_frame=1 << 28)
"""Generous limits, because the hub decides on the size of its frames."""
_HELLO: Final = Packet(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')
_ID_BITS: Final = 128
_CLOSE_TIMEOUT: Final = 2.0
_WRITE_TIMEOUT: Final = 30.0
"""Seconds for the hub to read written data before the connection counts as lost."""


class ConnectFailed(FivewaysError):
    """The hub is not reachable, or refuses the session."""


class ReplayConnection:
    """One connection. Implements `transports.base.Receiver`."""

    def __init__(
        self, settings: ClientSettings, on_packet: Callable[[Packet], None], on_closed: Callable[[], None]
    ) -> None:
        """Create a connection; `on_packet` receives packets after the handshake, `on_closed` is called at the end."""
        self._settings = settings
        self._on_packet = on_packet
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._is_nq = settings.address.protocol == "nq"
        spec = registry.load(settings.address.protocol)
        self._spec = spec
        self._conversation = spec.create_conversation(ConversationSetup("hub", Role.CLIENT, SystemRandom(), LIMITS))
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """The reason for the end."""
        self.is_closing = False
        self.is_expectant = True
        """Over HTTP, poll the hub for packets."""
        self.peer = ""
        """The NQ peer id, to resume the session over another connection."""

    async def open(self, peer: str = "", *, greets: bool = True) -> None:
        """Connect and shake hands; an NQ session with a `peer` id is resumed.

        With `greets` False, no handshake is sent, as by recorded peers that violated the protocol.

        Raises:
            ConnectFailed: the hub is not reachable or refuses the session.
        """
        if not greets and not self._is_nq:
            self._opened.set_result(None)
        try:
            await self._connect(peer)
            async with asyncio.timeout(self._settings.open_timeout):
                await self._opened
        except TimeoutError:
            await self._abort()
            raise ConnectFailed(
                f"{self._settings.address.original_url} did not complete the handshake in time"
            ) from None
        except (OSError, ConnectionLost, ValueError) as exc:
            await self._abort()
            raise ConnectFailed(str(exc)) from exc

    async def _abort(self) -> None:
        """Abort the connection, and wait for its end."""
        if self._link is not None:
            self._link.abort()
            await asyncio.wait([self.closed], timeout=_CLOSE_TIMEOUT)

    async def _connect(self, peer: str) -> None:
        address, headers = self._settings.address, dict[str, str]()
        if self._is_nq and self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if address.is_zmq:
            from fiveways.transports.zmq_client import open_nq_zmq  # noqa: PLC0415  pyzmq is optional

            self.peer = peer or f"fiveways-{SystemRandom().getrandbits(_ID_BITS):032x}"
            self._link = await open_nq_zmq(
                address.url, self._on_connected, limits=LIMITS, headers={PEER_HEADER: self.peer}
            )
        elif address.is_http:
            peer_headers = {PEER_HEADER: peer} if peer else {}
            self._link = await open_http(
                address.url, self._on_connected, limits=LIMITS, headers={**headers, **peer_headers}
            )
        else:
            url = (
                f"{address.url}{'&' if '?' in address.url else '?'}{urlencode({'peer': peer})}" if peer else address.url
            )
            self._link = await open_websocket(
                url, self._on_connected, limits=LIMITS, subprotocol=address.subprotocol, headers=headers
            )

    def _on_connected(self, link: Link) -> "ReplayConnection":
        self._link = link
        if self._is_nq:
            self.write([_HELLO])
        elif not self._opened.done():
            self._conversation.send(handshake.hello(self._settings, self._spec), self._loop.time())
            self.write(self._conversation.take_packets())
        return self

    # Calls from the transport.

    def received(self, packet: Packet) -> None:
        """Handle the handshake, and pass on later packets."""
        if self._opened.done():
            self._on_packet(packet)
        elif self._is_nq:
            self._handle_nq_greeting(packet)
        else:
            for message in self._conversation.receive(packet, self._loop.time()):
                self._handle_handshake(message)
            self.write(self._conversation.take_packets())

    def _handle_handshake(self, message: object) -> None:
        match message:
            case Welcome():
                self._opened.set_result(None)
            case Challenge():
                try:
                    self._conversation.send(handshake.proof(self._settings, message), self._loop.time())
                except ConnectionLost as exc:
                    self._fail_open(exc)
            case Goodbye():
                self._fail_open(Refused(message.text or "the hub refused the credentials"))
            case _:
                pass

    def _fail_open(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    def _handle_nq_greeting(self, packet: Packet) -> None:
        """Read the peer id from the first NQ packet, which may contain further messages."""
        try:
            content = msgspec.json.decode(packet.payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            content = None
        rest = []
        for message in content if isinstance(content, list) else [content]:
            match message:
                case {"e": {"note": "peer", "args": [str(peer), *_]}}:
                    self.peer = peer
                    self._opened.set_result(None)
                case {"e": {"fatal": True, **error}}:
                    self._fail_open(
                        ConnectionLost(str(error.get("text") or error.get("note") or "the hub refused the session"))
                    )
                case _:
                    rest.append(message)
        if rest and self._opened.done() and not self._opened.exception():
            self._on_packet(Packet(msgspec.json.encode(rest)))

    def progressed(self, _size: int) -> bool:
        """Accept any size."""
        return True

    def writable(self) -> None:
        """Wake `wait_writable`."""
        self._writable.set()

    def lost(self, reason: str) -> None:
        """Handle the end of the connection."""
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(reason or "the hub closed the connection"))
            self._opened.exception()
        if not self.closed.done():
            self.closed.set_result(reason)
        self._writable.set()
        self._on_closed()

    # Writing.

    def write(self, packets: Sequence[Packet]) -> None:
        """Write packets."""
        if packets and self._link is not None and not self.closed.done():
            self._link.write(self._link.frames(packets))

    async def wait_writable(self) -> None:
        """Wait until the outgoing buffer is no longer full."""
        link = self._link
        if link is None:
            return
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT):
                while link.is_full and not self.closed.done():
                    self._writable.clear()
                    await self._writable.wait()
        except TimeoutError:
            link.abort()

    def close(self) -> None:
        """Close the connection after all written packets."""
        self.is_closing = True
        self.is_expectant = False
        if self._link is not None and not self.closed.done():
            self._link.close()


def connection_settings(address: Address, token: str, identity: str, secret: str) -> ClientSettings:
    """Return the settings of a connection.

    An identity uses the challenge of the protocol if it has one. Otherwise the token is sent.
    """
    supports_challenge = registry.load(address.protocol).supports_challenge
    credentials = (identity, secret) if supports_challenge else ("", "")
    bearer = "" if (identity and supports_challenge) or address.is_zmq else token
    return ClientSettings(address, bearer, *credentials)
