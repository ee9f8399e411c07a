"""The registry of resumable sessions: lookup by peer id, restoration, and expiry."""

import asyncio
from functools import partial
from hashlib import sha256
from random import Random
from typing import Final
from urllib.parse import parse_qs

from fiveways.hub.admission import ANONYMOUS_REFUSED, TOO_MANY_FAILED_LOGINS, WRONG_LOGIN
from fiveways.hub.delivery import Delivery
from fiveways.hub.rate_limit import Allowances
from fiveways.hub.session import Stage
from fiveways.hub.stored_messages import decode_answer, decode_call
from fiveways.hub.traits import Credentials
from fiveways.protocols.base import ConversationSetup, Role
from fiveways.protocols.nq import SPEC
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.runtime.endpoints import protocol_traits
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_ids import PeerIds
from fiveways.runtime.resumable_session import ResumableSession
from fiveways.runtime.session_connection import LockstepConnection, SessionConnection
from fiveways.store.contents import StoreContents
from fiveways.transports.base import Link
from fiveways.transports.http import Request, Response, is_https, too_many_requests, unauthorized
from fiveways.transports.origin import cors_headers
from fiveways.transports.zmq_link import ZmqLink, is_generated
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

NQ_PATH: Final = "/nq"
PEER_HEADER: Final = "NQ-Peer"
NUMBER_HEADER: Final = "NQ-Answer"
"""The header that numbers the responses to one peer: a later one may overtake on a second connection."""
PEER_COOKIE: Final = "fiveways-nq"
_PEER_SUBPROTOCOL: Final = "nq-peer."
"""The prefix of a WebSocket subprotocol that carries a peer id; the hub never selects it."""
_MAX_WAIT: Final = 60.0
_JSON: Final = "application/json"
_SWEEP: Final = 60.0
_IDLE_TIMEOUT: Final = 600.0
"""Seconds of silence after which an empty session ends."""
_DISMISS_DELAY: Final = 1.0
"""Seconds for a dismissed peer to read its goodbye."""
_MAX_QUERY_FIELDS: Final = 8
_TRAITS: Final = protocol_traits(SPEC)
_ROUTING_ID_PREFIX: Final = "zmq-"
"""The prefix of ids made from ZeroMQ routing ids. Peers choose these, so other transports cannot resume them."""


class SessionRegistry:
    """All NQ sessions of the hub, by peer id."""

    def __init__(
        self,
        exchange: Exchange,
        random: Random,
        limits: Limits,
        options: dict[str, object],
        peer_ttl: float,
        *,
        cookie_is_secure: bool,
    ) -> None:
        self._exchange = exchange
        self._random = random
        self._limits = limits
        self._options = options
        self._peer_ttl = peer_ttl
        self._cookie_is_secure = cookie_is_secure
        self._by_id: dict[str, ResumableSession] = {}
        # A session with stored state outlasts the time for which its id is recognized.
        self._ids = PeerIds(random, min(_IDLE_TIMEOUT, peer_ttl))
        self._minted = 0
        """The highest message number of an ended session: a new session with its id starts there."""
        self._allowances = Allowances()
        self.connections: set[SessionConnection] = set()
        self._is_stopped = False
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._end_idle)

    def __len__(self) -> int:
        return len(self._by_id)

    def stop(self) -> None:
        """Close all connections; the sessions can be resumed at the next start."""
        self._is_stopped = True
        self._sweep.cancel()
        for session in list(self._by_id.values()):
            session.close("the hub is closing")

    # Begin and resume.

    def find_or_create(self, peer: str, credentials: Credentials) -> ResumableSession:
        """Return the session of this id if it belongs to these credentials, else a new one."""
        session, hub, now = self._by_id.get(peer), self._exchange.hub, self._exchange.now()
        identity = hub.admission.identify(credentials)
        if session is None and identity is not None and self._ids.is_recent(peer, identity, now):
            return self._create_and_admit(peer, credentials)
        if session is not None and hub.identity_of(peer) == identity and not peer.startswith(_ROUTING_ID_PREFIX):
            hub.resume(peer, credentials)
            return session
        return self._create_and_admit(self._ids.mint(identity or "", now), credentials)

    def _create_and_admit(self, peer: str, credentials: Credentials) -> ResumableSession:
        session = self._create(peer, "" if peer.startswith(_ROUTING_ID_PREFIX) else self._ids.id_prefix(peer))
        self._exchange.hub.arrive(peer, _TRAITS, credentials, self._exchange.now())
        session.conversation.borrow_from(self._exchange.hub.unacknowledged_bytes.track(peer))
        session.send_hello()
        return session

    def _create(self, peer: str, id_prefix: str = "") -> ResumableSession:
        options = {"id_prefix": id_prefix, **self._options} if id_prefix else self._options
        conversation = NqConversation(ConversationSetup(peer, Role.SERVER, self._random, self._limits, options))
        if id_prefix:
            conversation.mint_after(self._minted)
        session = self._by_id[peer] = self._exchange.participants[peer] = ResumableSession(
            conversation, self._exchange, self._limits
        )
        session.on_dismissed = self._end_later
        return session

    def restore(self, loaded: StoreContents, epoch: float) -> None:
        """Restore the sessions, requests, answers and tombstones that a previous hub process stored."""
        exchange, now = self._exchange, self._exchange.now()
        for peer in loaded.peers:
            self._create(peer.peer)
            exchange.hub.restore_session(peer.peer, _TRAITS, peer.identity, now, peer.remote)
        for tombstone in loaded.tombstones:
            if (session := self._by_id.get(tombstone.peer)) is not None:
                session.conversation.restore_tombstone(tombstone.key, tombstone.until - epoch)
        for answer in loaded.answers:
            if (session := self._by_id.get(answer.peer)) is not None:
                session.conversation.restore_accepted(answer.key)
                session.deliver(Delivery(answer.peer, decode_answer(answer.key, answer.payload)), now)
        for peer in loaded.peers:  # restored answers were accepted: they count, but no limit refuses them
            self._by_id[peer.peer].conversation.borrow_from(exchange.hub.unacknowledged_bytes.track(peer.peer))
        for request in (*loaded.expired_requests, *loaded.requests):
            if (session := self._by_id.get(request.peer)) is not None:
                session.conversation.restore_accepted(request.key)
                message = decode_call(request.key, request.payload)
                exchange.perform(exchange.hub.restore_request(request.peer, message, request.expires_at, now), now)

    def connect(self, link: Link, request: Request, credentials: Credentials) -> SessionConnection:
        """Begin or resume a session over a duplex link."""
        try:
            peer = (
                request.headers.get(PEER_HEADER.lower())
                or _peer_from_subprotocols(request)
                or _query_field(request.query, "peer")
            )
        except ValueError:
            peer = ""  # the link is open already, and such a query identifies no session
        session = self.find_or_create(peer, credentials)
        connection = self._attach(session, link)
        if session.is_dismissed:
            session.close("you are not let in")
        return connection

    def _attach(self, session: ResumableSession, link: Link) -> SessionConnection:
        connection = session.attach(link)
        self.connections.add(connection)
        connection.on_gone = self._on_connection_lost
        if refusal := self._exchange.hub.admission.session_limits.take_connection_slot(session.peer):
            session.close(refusal)
        return connection

    def connect_zmq(self, link: ZmqLink, routing_id: bytes) -> SessionConnection | LockstepConnection:
        """Begin or resume the session of a ZeroMQ peer; only peers that chose their routing id can resume."""
        now = self._exchange.now()
        peer = (
            self._ids.mint("", now) if is_generated(routing_id) else _ROUTING_ID_PREFIX + sha256(routing_id).hexdigest()
        )
        # Without the routing id: with it, each peer would have the share of an address for itself, and others could
        # take the session over.
        host = link.remote.partition(" as ")[0]
        credentials = Credentials(link.is_loopback, remote=f"[{host}]:0" if ":" in host else f"{host}:0")
        session = self._by_id.get(peer) or self._create_and_admit(peer, credentials)
        self._exchange.hub.resume(peer, credentials)
        if self._is_stopped:
            link.abort()  # the port stays open until all peers have read their goodbye
            return LockstepConnection(session, link, self._end_if_unused)
        return (
            LockstepConnection(session, link, self._end_if_unused) if link.is_lockstep else self._attach(session, link)
        )

    # HTTP.

    async def handle_post(self, request: Request, credentials: Credentials) -> Response:
        """Handle a POSTed batch, and respond with the next packet."""
        # A page of another origin must be able to read the response.
        headers = {"Cache-Control": "no-store", **cors_headers(request.headers, PEER_HEADER, NUMBER_HEADER)}
        try:
            wait = _parse_wait(request)
            packet = Packet(request.body)
        except ValueError:
            return Response(400, b"`wait` is a number of seconds, such as /nq?wait=10\n", headers=headers)
        peer = _peer_from_headers(request)
        previous = self._by_id.get(peer)
        session = self.find_or_create(peer, credentials)
        if session is not previous:
            self._lend_allowance(session)
        if session.is_denied or self._exchange.hub.stage_of(session.peer) is Stage.UNIDENTIFIED:
            self._end(session)
            return unauthorized(WRONG_LOGIN if credentials.bearer else ANONYMOUS_REFUSED, headers)
        if session.is_dismissed:
            goodbye = self._exchange.hub.goodbye_of(session.peer)
            self._end(session)
            admission = self._exchange.hub.admission
            if credentials.bearer and (wait := admission.retry_after(credentials, self._exchange.now())):
                return too_many_requests(TOO_MANY_FAILED_LOGINS.format(wait), wait, headers)
            text = "the hub accepts no new sessions now" if goodbye is None else goodbye.text
            return Response(503, f"{text}\n".encode(), headers={"Retry-After": "10", **headers})
        is_secure = self._cookie_is_secure or is_https(request.headers)
        abandoned = request.abandoned or asyncio.get_running_loop().create_future()
        exchange = session.handle_post(packet, wait, abandoned)
        del packet, request  # free a large body during the wait
        try:
            answer = await exchange
        finally:
            self._end_if_unused(session)
        cookie = f"{PEER_COOKIE}={session.peer}; Path={NQ_PATH}; HttpOnly; SameSite=Strict"
        if is_secure:
            cookie += "; Secure"
        headers = {
            PEER_HEADER: session.peer,
            NUMBER_HEADER: str(session.response_count),
            "Set-Cookie": cookie,
            **headers,
        }
        return Response(200, answer.payload, _JSON, headers)

    def _lend_allowance(self, session: ResumableSession) -> None:
        """Start a session that began with a POST with its owner's remaining rate limit."""
        if (hub_session := self._exchange.hub.find_session(session.peer)) is not None:
            self._allowances.restore(hub_session)
            session.on_first_post = partial(self._allowances.save, hub_session)

    # Expiry.

    def _end_later(self, session: ResumableSession) -> None:
        """End a session that the hub dismissed, after the peer had time to read the goodbye."""
        session.dismiss_timer = asyncio.get_running_loop().call_later(_DISMISS_DELAY, self._end, session)

    def _on_connection_lost(self, connection: SessionConnection) -> None:
        self.connections.discard(connection)
        self._end_if_unused(connection.session)

    def _end_if_unused(self, session: ResumableSession) -> None:
        """End a session without a connection if it is empty or was never admitted."""
        if self._by_id.get(session.peer) is session and not session.is_connected:
            is_open = self._exchange.hub.stage_of(session.peer) is Stage.OPEN
            if session.is_empty or not is_open:
                self._end(session, "nothing is kept for it")

    def _end(self, session: ResumableSession, reason: str = "it did not come back") -> None:
        peer = session.peer
        if self._by_id.get(peer) is not session:
            return
        del self._by_id[peer]
        if self._exchange.hub.stage_of(peer) is Stage.OPEN and not session.is_empty:
            self._ids.retire(peer, self._exchange.now())
        self._minted = max(self._minted, session.conversation.last_number)
        session.end(reason)

    def _end_idle(self) -> None:
        """End sessions after a silence of `nq.peer_ttl`, and empty ones after `_IDLE_TIMEOUT`."""
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._end_idle)
        now, hub = self._exchange.now(), self._exchange.hub
        for session in [each for each in self._by_id.values() if not each.is_connected]:
            silence = now - session.last_seen_at
            has_nothing = silence > _IDLE_TIMEOUT and session.conversation.is_idle and hub.is_idle(session.peer)
            if silence > self._peer_ttl or has_nothing:
                self._end(session)


def _parse_wait(request: Request) -> float:
    """Return the seconds that a client waits for a packet; ValueError if the field is not a time."""
    wait = float(_query_field(request.query, "wait") or "0")
    if not wait >= 0:  # also refuses NaN
        raise ValueError(wait)
    return min(wait, _MAX_WAIT)


def _peer_from_subprotocols(request: Request) -> str:
    """Return the peer id among the subprotocols of a WebSocket: a web page cannot set its headers."""
    subprotocols = (each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(","))
    return next(
        (each.removeprefix(_PEER_SUBPROTOCOL) for each in subprotocols if each.startswith(_PEER_SUBPROTOCOL)), ""
    )


def _query_field(query: str, name: str) -> str:
    """Return a query field, empty if absent; ValueError if there are too many fields."""
    return parse_qs(query, max_num_fields=_MAX_QUERY_FIELDS).get(name, [""])[0] if query else ""


def _peer_from_headers(request: Request) -> str:
    peer = request.headers.get(PEER_HEADER.lower(), "")
    if peer:
        return peer
    # Other servers on the same host name share the cookie jar; their cookies can hold anything.
    ours = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in ours if name == PEER_COOKIE), "")
