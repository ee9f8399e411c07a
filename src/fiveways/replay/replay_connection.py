"""Connections to the hub, as recorded peers had them: a handshake of our own, and then frames as they lie."""

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
"""The hub decides how much it says at once, and we are to hear all of it."""
_HELLO: Final = Packet(b'{"e":{"type":"sys","fatal":false,"note":"hello"}}')
_ID_BITS: Final = 128
_CLOSE_TIMEOUT: Final = 2.0
_WRITE_TIMEOUT: Final = 30.0
"""Seconds for a hub to read what was written, before the link counts as lost."""


class ConnectFailed(FivewaysError):
    """The hub is not there, or does not let us in."""


class ReplayConnection:
    """One connection. Fulfils `transports.base.Receiver`."""

    def __init__(self, settings: ClientSettings, hear: Callable[[Packet], None], ended: Callable[[], None]) -> None:
        """Make it; `hear` gets what the hub says when the handshake is over, `ended` is told when all is over."""
        self._settings = settings
        self._on_packet = hear
        self._on_closed = ended
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._is_nq = settings.address.protocol == "nq"
        spec = registry.load(settings.address.protocol)
        self._spec = spec
        self._conversation = spec.create_conversation(ConversationSetup("hub", Role.CLIENT, SystemRandom(), LIMITS))
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """Why it is over."""
        self.is_closing = False
        self.is_expectant = True
        """Over HTTP, the hub is asked again and again whether it has something to say."""
        self.peer = ""
        """The id by which an NQ conversation goes on over another link."""

    async def open(self, peer: str = "", *, greets: bool = True) -> None:
        """Connect and shake hands, in NQ as a peer that was here before; NoEntry if that fails.

        Who does not greet says nothing of itself, as those do who break the rules.
        """
        if not greets and not self._is_nq:
            self._opened.set_result(None)
        try:
            await self._connect(peer)
            async with asyncio.timeout(self._settings.open_timeout):
                await self._opened
        except TimeoutError:
            await self._abort()
            raise ConnectFailed(f"{self._settings.address.original_url} did not greet us") from None
        except (OSError, ConnectionLost, ValueError) as exc:
            await self._abort()
            raise ConnectFailed(str(exc)) from exc

    async def _abort(self) -> None:
        """Leave nothing open of a link that is of no use."""
        if self._link is not None:
            self._link.abort()
            await asyncio.wait([self.closed], timeout=_CLOSE_TIMEOUT)

    async def _connect(self, peer: str) -> None:
        address, headers = self._settings.address, dict[str, str]()
        if self._is_nq and self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if address.is_zmq:
            from fiveways.transports.zmq_client import open_nq_zmq  # noqa: PLC0415  few need it

            self.peer = peer or f"fiveways-{SystemRandom().getrandbits(_ID_BITS):032x}"
            self._link = await open_nq_zmq(
                address.url, self._on_connected, limits=LIMITS, headers={PEER_HEADER: self.peer}
            )
        elif address.is_http:
            given = {PEER_HEADER: peer} if peer else {}
            self._link = await open_http(address.url, self._on_connected, limits=LIMITS, headers={**headers, **given})
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

    # Calls from the link.

    def received(self, packet: Packet) -> None:
        """Shake hands, and then let others hear."""
        if self._opened.done():
            self._on_packet(packet)
        elif self._is_nq:
            self._handle_nq_greeting(packet)
        else:
            for word in self._conversation.receive(packet, self._loop.time()):
                self._handle_handshake(word)
            self.write(self._conversation.take_packets())

    def _handle_handshake(self, word: object) -> None:
        match word:
            case Welcome():
                self._opened.set_result(None)
            case Challenge():
                try:
                    self._conversation.send(handshake.proof(self._settings, word), self._loop.time())
                except ConnectionLost as exc:
                    self._fail_open(exc)
            case Goodbye():
                self._fail_open(Refused(word.text or "the hub refuses our credentials"))
            case _:
                pass

    def _fail_open(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    def _handle_nq_greeting(self, packet: Packet) -> None:
        """Learn from a hub that speaks NQ who we are there; it may say more in the same breath."""
        try:
            said = msgspec.json.decode(packet.payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            said = None
        rest = []
        for each in said if isinstance(said, list) else [said]:
            match each:
                case {"e": {"note": "peer", "args": [str(peer), *_]}}:
                    self.peer = peer
                    self._opened.set_result(None)
                case {"e": {"fatal": True, **error}}:
                    self._fail_open(ConnectionLost(str(error.get("text") or error.get("note") or "it was refused")))
                case _:
                    rest.append(each)
        if rest and self._opened.done() and not self._opened.exception():
            self._on_packet(Packet(msgspec.json.encode(rest)))

    def progressed(self, _size: int) -> bool:
        """Be patient."""
        return True

    def writable(self) -> None:
        """Go on."""
        self._writable.set()

    def lost(self, reason: str) -> None:
        """End."""
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(reason or "the hub closed the connection"))
            self._opened.exception()
        if not self.closed.done():
            self.closed.set_result(reason)
        self._writable.set()
        self._on_closed()

    # What we say.

    def write(self, packets: Sequence[Packet]) -> None:
        """Write frames."""
        if packets and self._link is not None and not self.closed.done():
            self._link.write(self._link.frames(packets))

    async def wait_writable(self) -> None:
        """Wait until the hub has read some of what was written."""
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
        """Leave, after what was written."""
        self.is_closing = True
        self.is_expectant = False
        if self._link is not None and not self.closed.done():
            self._link.close()


def connection_settings(address: Address, token: str, identity: str, secret: str) -> ClientSettings:
    """Return how to connect; who has a name proves it where the protocol can, all others show the token."""
    challenges = registry.load(address.protocol).supports_challenge
    known = (identity, secret) if challenges else ("", "")
    shown = "" if (identity and challenges) or address.is_zmq else token
    return ClientSettings(address, shown, *known)
