"""All peers whose conversations outlive their links: who they are, how they come back, and when they are forgotten."""

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
from fiveways.runtime.lockstep_connection import LockstepConnection
from fiveways.runtime.peer_ids import PeerIds
from fiveways.runtime.resumable_session import ResumableSession, SessionConnection
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
"""The header that numbers the answers to one peer: on two connections, a later one may arrive first."""
PEER_COOKIE: Final = "fiveways-nq"
_PEER_SUBPROTOCOL: Final = "nq-peer."
"""How a subprotocol begins that holds a peer id; it is never the one that the hub selects."""
_MAX_WAIT: Final = 60.0
_JSON: Final = "application/json"
_SWEEP: Final = 60.0
_IDLE_TIMEOUT: Final = 600.0
"""Seconds of silence after which somebody is forgotten for whom there is nothing to come back to."""
_DISMISS_DELAY: Final = 1.0
"""Seconds to hear that one was sent away."""
_MAX_QUERY_FIELDS: Final = 8
_TRAITS: Final = protocol_traits(SPEC)
_ROUTING_ID_PREFIX: Final = "zmq-"
"""How ids begin that come of routing ids, which peers choose: by these nobody comes back over other transports."""


class SessionRegistry:
    """The peers that speak NQ, by their ids."""

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
        # A session that something is kept for lasts longer than its id is recognized.
        self._ids = PeerIds(random, min(_IDLE_TIMEOUT, peer_ttl))
        self._minted = 0
        """The highest number in an identifier of a session that has ended: the next one under its id begins there."""
        self._allowances = Allowances()
        self.connections: set[SessionConnection] = set()
        self._is_stopped = False
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._end_idle)

    def __len__(self) -> int:
        return len(self._by_id)

    def stop(self) -> None:
        """Say goodbye to all; what they were promised they find when they come back."""
        self._is_stopped = True
        self._sweep.cancel()
        for standing in list(self._by_id.values()):
            standing.close("the hub is closing")

    # Coming in and coming back.

    def find_or_create(self, peer: str, credentials: Credentials) -> ResumableSession:
        """Return the peer of this id, if it belongs to whoever asks; else a new one."""
        known, hub, now = self._by_id.get(peer), self._exchange.hub, self._exchange.now()
        identity = hub.admission.identify(credentials)
        if known is None and identity is not None and self._ids.is_recent(peer, identity, now):
            return self._create_and_admit(peer, credentials)
        if known is not None and hub.identity_of(peer) == identity and not peer.startswith(_ROUTING_ID_PREFIX):
            hub.resume(peer, credentials)
            return known
        return self._create_and_admit(self._ids.mint(identity or "", now), credentials)

    def _create_and_admit(self, peer: str, credentials: Credentials) -> ResumableSession:
        standing = self._create(peer, "" if peer.startswith(_ROUTING_ID_PREFIX) else self._ids.id_prefix(peer))
        self._exchange.hub.arrive(peer, _TRAITS, credentials, self._exchange.now())
        standing.conversation.borrow_from(self._exchange.hub.unacknowledged_bytes.track(peer))
        standing.send_hello()
        return standing

    def _create(self, peer: str, run: str = "") -> ResumableSession:
        options = {"id_prefix": run, **self._options} if run else self._options
        talk = NqConversation(ConversationSetup(peer, Role.SERVER, self._random, self._limits, options))
        if run:
            talk.mint_after(self._minted)
        standing = self._by_id[peer] = self._exchange.participants[peer] = ResumableSession(
            talk, self._exchange, self._limits
        )
        standing.on_dismissed = self._end_later
        return standing

    def restore(self, loaded: StoreContents, epoch: float) -> None:
        """Go on where an earlier hub stopped: its peers may come back, and are owed what it has promised them."""
        exchange, now = self._exchange, self._exchange.now()
        for peer in loaded.peers:
            self._create(peer.peer)
            exchange.hub.restore_session(peer.peer, _TRAITS, peer.identity, now, peer.remote)
        for tomb in loaded.tombstones:
            if (standing := self._by_id.get(tomb.peer)) is not None:
                standing.conversation.restore_tombstone(tomb.key, tomb.until - epoch)
        for answer in loaded.answers:
            if (standing := self._by_id.get(answer.peer)) is not None:
                standing.conversation.restore_accepted(answer.key)
                standing.deliver(Delivery(answer.peer, decode_answer(answer.key, answer.payload)), now)
        for peer in loaded.peers:  # what they hold now was promised, whether or not there is room for it
            self._by_id[peer.peer].conversation.borrow_from(exchange.hub.unacknowledged_bytes.track(peer.peer))
        for request in (*loaded.expired_requests, *loaded.requests):
            if (standing := self._by_id.get(request.peer)) is not None:
                standing.conversation.restore_accepted(request.key)
                word = decode_call(request.key, request.payload)
                exchange.perform(exchange.hub.restore_request(request.peer, word, request.expires_at, now), now)

    def connect(self, link: Link, request: Request, credentials: Credentials) -> SessionConnection:
        """Let a conversation begin, or go on, over a duplex link."""
        try:
            peer = (
                request.headers.get(PEER_HEADER.lower())
                or _peer_from_subprotocols(request)
                or _query_field(request.query, "peer")
            )
        except ValueError:
            peer = ""  # the link is open already, and nobody to be found by such a query
        standing = self.find_or_create(peer, credentials)
        leg = self._attach(standing, link)
        if standing.is_dismissed:
            standing.close("you are not let in")
        return leg

    def _attach(self, standing: ResumableSession, link: Link) -> SessionConnection:
        leg = standing.attach(link)
        self.connections.add(leg)
        leg.on_gone = self._on_connection_lost
        if why := self._exchange.hub.admission.session_limits.take_connection_slot(standing.peer):
            standing.close(why)
        return leg

    def connect_zmq(self, link: ZmqLink, routing_id: bytes) -> SessionConnection | LockstepConnection:
        """Let a ZeroMQ peer in; who chose its routing id goes on where it stopped."""
        now = self._exchange.now()
        peer = (
            self._ids.mint("", now) if is_generated(routing_id) else _ROUTING_ID_PREFIX + sha256(routing_id).hexdigest()
        )
        # The address alone: with the routing id behind it, each peer would have the shares of an address for itself,
        # and others could take the session over.
        host = link.remote.partition(" as ")[0]
        shown = Credentials(link.is_loopback, remote=f"[{host}]:0" if ":" in host else f"{host}:0")
        standing = self._by_id.get(peer) or self._create_and_admit(peer, shown)
        self._exchange.hub.resume(peer, shown)
        if self._is_stopped:
            link.abort()  # its port is open a little longer, for those who are being told
            return LockstepConnection(standing, link, self._end_if_unused)
        return (
            LockstepConnection(standing, link, self._end_if_unused)
            if link.is_lockstep
            else self._attach(standing, link)
        )

    # HTTP.

    async def handle_post(self, request: Request, credentials: Credentials) -> Response:
        """Take a batch, and answer with what is due."""
        # A page from elsewhere may be one of ours: it has to be able to read what it is answered.
        readable = {"Cache-Control": "no-store", **cors_headers(request.headers, PEER_HEADER, NUMBER_HEADER)}
        try:
            wait = _parse_wait(request)
            packet = Packet(request.body)
        except ValueError:
            return Response(400, b"`wait` is a number of seconds, such as /nq?wait=10\n", headers=readable)
        peer = _peer_from_headers(request)
        known = self._by_id.get(peer)
        standing = self.find_or_create(peer, credentials)
        if standing is not known:
            self._lend_allowance(standing)
        if standing.is_denied or self._exchange.hub.stage_of(standing.peer) is Stage.UNIDENTIFIED:
            self._end(standing)
            return unauthorized(WRONG_LOGIN if credentials.bearer else ANONYMOUS_REFUSED, readable)
        if standing.is_dismissed:
            farewell = self._exchange.hub.goodbye_of(standing.peer)
            self._end(standing)
            gate = self._exchange.hub.admission
            if credentials.bearer and (wait := gate.retry_after(credentials, self._exchange.now())):
                return too_many_requests(TOO_MANY_FAILED_LOGINS.format(wait), wait, readable)
            text = "the hub takes nobody in now" if farewell is None else farewell.text
            return Response(503, f"{text}\n".encode(), headers={"Retry-After": "10", **readable})
        is_secure = self._cookie_is_secure or is_https(request.headers)
        given_up = request.abandoned or asyncio.get_running_loop().create_future()
        exchange = standing.handle_post(packet, wait, given_up)
        del packet, request  # the body may be large, and the wait long
        try:
            answer = await exchange
        finally:
            self._end_if_unused(standing)
        cookie = f"{PEER_COOKIE}={standing.peer}; Path={NQ_PATH}; HttpOnly; SameSite=Strict"
        if is_secure:
            cookie += "; Secure"
        headers = {
            PEER_HEADER: standing.peer,
            NUMBER_HEADER: str(standing.response_count),
            "Set-Cookie": cookie,
            **readable,
        }
        return Response(200, answer.payload, _JSON, headers)

    def _lend_allowance(self, standing: ResumableSession) -> None:
        """Let a session that began with a POST begin with what its owner has left of its rate."""
        if (session := self._exchange.hub.find_session(standing.peer)) is not None:
            self._allowances.restore(session)
            standing.on_first_post = partial(self._allowances.save, session)

    # Going.

    def _end_later(self, standing: ResumableSession) -> None:
        """Let somebody go whom the hub has sent away, when it has heard that."""
        standing.dismiss_timer = asyncio.get_running_loop().call_later(_DISMISS_DELAY, self._end, standing)

    def _on_connection_lost(self, leg: SessionConnection) -> None:
        self.connections.discard(leg)
        self._end_if_unused(leg.session)

    def _end_if_unused(self, standing: ResumableSession) -> None:
        """End a session without a connection if nothing is kept for it, or it was never let in."""
        if self._by_id.get(standing.peer) is standing and not standing.is_connected:
            is_open = self._exchange.hub.stage_of(standing.peer) is Stage.OPEN
            if standing.is_empty or not is_open:
                self._end(standing, "nothing is kept for it")

    def _end(self, standing: ResumableSession, reason: str = "it did not come back") -> None:
        peer = standing.peer
        if self._by_id.get(peer) is not standing:
            return
        del self._by_id[peer]
        if self._exchange.hub.stage_of(peer) is Stage.OPEN and not standing.is_empty:
            self._ids.retire(peer, self._exchange.now())
        self._minted = max(self._minted, standing.conversation.last_number)
        standing.end(reason)

    def _end_idle(self) -> None:
        """Let those go who have been silent for long: what they were promised is overdue by then."""
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._end_idle)
        now, hub = self._exchange.now(), self._exchange.hub
        for standing in [each for each in self._by_id.values() if not each.is_connected]:
            silence = now - standing.last_seen_at
            has_nothing = silence > _IDLE_TIMEOUT and standing.conversation.is_idle and hub.is_idle(standing.peer)
            if silence > self._peer_ttl or has_nothing:
                self._end(standing)


def _parse_wait(request: Request) -> float:
    """Return how long a client waits for something to be due; ValueError if that is no time."""
    wait = float(_query_field(request.query, "wait") or "0")
    if not wait >= 0:  # nor is NaN a time
        raise ValueError(wait)
    return min(wait, _MAX_WAIT)


def _peer_from_subprotocols(request: Request) -> str:
    """Return the peer id among the subprotocols of a WebSocket: pages cannot set its headers."""
    offered = (each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(","))
    return next((each.removeprefix(_PEER_SUBPROTOCOL) for each in offered if each.startswith(_PEER_SUBPROTOCOL)), "")


def _query_field(query: str, name: str) -> str:
    """Return one field of a query, empty if it is not there; ValueError if there are too many."""
    return parse_qs(query, max_num_fields=_MAX_QUERY_FIELDS).get(name, [""])[0] if query else ""


def _peer_from_headers(request: Request) -> str:
    given = request.headers.get(PEER_HEADER.lower(), "")
    if given:
        return given
    # Cookies of others may be anything: they share the machine's name with ours.
    ours = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in ours if name == PEER_COOKIE), "")
