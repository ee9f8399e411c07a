"""All peers whose conversations outlive their links: who they are, how they come back, and when they are forgotten."""

import asyncio
from functools import partial
from hashlib import sha256
from random import Random
from typing import Final
from urllib.parse import parse_qs

from fiveways.hub.delivery import Delivery
from fiveways.hub.gate import ANONYMOUS, TOO_OFTEN, UNKNOWN
from fiveways.hub.kept import read_answer, read_call
from fiveways.hub.rate import Allowances
from fiveways.hub.session import Stage
from fiveways.hub.traits import Credentials
from fiveways.protocols.base import Role, Setup
from fiveways.protocols.nq import SPEC
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.runtime.endpoints import traits_of
from fiveways.runtime.exchange import Exchange
from fiveways.runtime.peer_ids import PeerIds
from fiveways.runtime.standing import Leg, Standing
from fiveways.runtime.turns import Turns
from fiveways.store.loaded import Loaded
from fiveways.transports.base import Link
from fiveways.transports.http import Request, Response, is_https, too_often, unauthorized
from fiveways.transports.origin import shared
from fiveways.transports.zmq_link import ZmqLink, is_generated
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet

PATH: Final = "/nq"
HEADER: Final = "NQ-Peer"
NUMBER: Final = "NQ-Answer"
"""The header that numbers the answers to one peer: on two connections, a later one may arrive first."""
COOKIE: Final = "fiveways-nq"
_SHOWN: Final = "nq-peer."
"""How a subprotocol begins that holds a peer id; it is never the one that the hub selects."""
_LONGEST_WAIT: Final = 60.0
_JSON: Final = "application/json"
_SWEEP: Final = 60.0
_IDLE: Final = 600.0
"""Seconds of silence after which somebody is forgotten for whom there is nothing to come back to."""
_PARTING: Final = 1.0
"""Seconds to hear that one was sent away."""
_MOST_FIELDS: Final = 8
_TRAITS: Final = traits_of(SPEC)
_CHOSEN: Final = "zmq-"
"""How ids begin that come of routing ids, which peers choose: by these nobody comes back over other transports."""


class Standings:
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
        self._by_id: dict[str, Standing] = {}
        # A session that something is kept for lasts longer than its id is recognized.
        self._ids = PeerIds(random, min(_IDLE, peer_ttl))
        self._minted = 0
        """The highest number in an identifier of a session that has ended: the next one under its id begins there."""
        self._allowances = Allowances()
        self.legs: set[Leg] = set()
        self._is_stopped = False
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._forget_idle)

    def __len__(self) -> int:
        return len(self._by_id)

    def stop(self) -> None:
        """Say goodbye to all; what they were promised they find when they come back."""
        self._is_stopped = True
        self._sweep.cancel()
        for standing in list(self._by_id.values()):
            standing.close("the hub is closing")

    # Coming in and coming back.

    def find(self, peer: str, credentials: Credentials) -> Standing:
        """Return the peer of this id, if it belongs to whoever asks; else a new one."""
        known, hub, now = self._by_id.get(peer), self._exchange.hub, self._exchange.now()
        identity = hub.gate.identify(credentials)
        if known is None and identity is not None and self._ids.is_recent(peer, identity, now):
            return self._admit(peer, credentials)
        if known is not None and hub.identity_of(peer) == identity and not peer.startswith(_CHOSEN):
            hub.resume(peer, credentials)
            return known
        return self._admit(self._ids.mint(identity or "", now), credentials)

    def _admit(self, peer: str, credentials: Credentials) -> Standing:
        standing = self._make(peer, "" if peer.startswith(_CHOSEN) else self._ids.run_of(peer))
        self._exchange.hub.arrive(peer, _TRAITS, credentials, self._exchange.now())
        standing.talk.borrow_from(self._exchange.hub.unacknowledged.lease(peer))
        standing.come_in()
        return standing

    def _make(self, peer: str, run: str = "") -> Standing:
        options = {"id_prefix": run, **self._options} if run else self._options
        talk = NqConversation(Setup(peer, Role.SERVER, self._random, self._limits, options))
        if run:
            talk.mint_after(self._minted)
        standing = self._by_id[peer] = self._exchange.parties[peer] = Standing(talk, self._exchange, self._limits)
        standing.over = self._forget_soon
        return standing

    def restore(self, loaded: Loaded, epoch: float) -> None:
        """Go on where an earlier hub stopped: its peers may come back, and are owed what it has promised them."""
        exchange, now = self._exchange, self._exchange.now()
        for peer in loaded.peers:
            self._make(peer.peer)
            exchange.hub.readmit(peer.peer, _TRAITS, peer.identity, now, peer.remote)
        for tomb in loaded.tombs:
            if (standing := self._by_id.get(tomb.peer)) is not None:
                standing.talk.bury(tomb.key, tomb.until - epoch)
        for answer in loaded.answers:
            if (standing := self._by_id.get(answer.peer)) is not None:
                standing.talk.take_over(answer.key)
                standing.say(Delivery(answer.peer, read_answer(answer.key, answer.word)), now)
        for peer in loaded.peers:  # what they hold now was promised, whether or not there is room for it
            self._by_id[peer.peer].talk.borrow_from(exchange.hub.unacknowledged.lease(peer.peer))
        for request in (*loaded.late, *loaded.requests):
            if (standing := self._by_id.get(request.peer)) is not None:
                standing.talk.take_over(request.key)
                word = read_call(request.key, request.word)
                exchange.perform(exchange.hub.owe(request.peer, word, request.expires_at, now), now)

    def link(self, link: Link, request: Request, credentials: Credentials) -> Leg:
        """Let a conversation begin, or go on, over a duplex link."""
        try:
            peer = request.headers.get(HEADER.lower()) or _shown(request) or _asked(request.query, "peer")
        except ValueError:
            peer = ""  # the link is open already, and nobody to be found by such a query
        standing = self.find(peer, credentials)
        leg = self._attach(standing, link)
        if standing.is_over:
            standing.close("you are not let in")
        return leg

    def _attach(self, standing: Standing, link: Link) -> Leg:
        leg = standing.attach(link)
        self.legs.add(leg)
        leg.gone = self._lost
        if why := self._exchange.hub.gate.places.connect(standing.peer):
            standing.close(why)
        return leg

    def zmq_link(self, link: ZmqLink, routing_id: bytes) -> Leg | Turns:
        """Let a ZeroMQ peer in; who chose its routing id goes on where it stopped."""
        now = self._exchange.now()
        peer = self._ids.mint("", now) if is_generated(routing_id) else _CHOSEN + sha256(routing_id).hexdigest()
        # The address alone: with the routing id behind it, each peer would have the shares of an address for itself,
        # and others could take the session over.
        host = link.remote.partition(" as ")[0]
        shown = Credentials(link.is_loopback, remote=f"[{host}]:0" if ":" in host else f"{host}:0")
        standing = self._by_id.get(peer) or self._admit(peer, shown)
        self._exchange.hub.resume(peer, shown)
        if self._is_stopped:
            link.abort()  # its port is open a little longer, for those who are being told
            return Turns(standing, link, self._let_go)
        return Turns(standing, link, self._let_go) if link.is_lockstep else self._attach(standing, link)

    # HTTP.

    async def post(self, request: Request, credentials: Credentials) -> Response:
        """Take a batch, and answer with what is due."""
        # A page from elsewhere may be one of ours: it has to be able to read what it is answered.
        readable = {"Cache-Control": "no-store", **shared(request.headers, HEADER, NUMBER)}
        try:
            wait = _wait_of(request)
            packet = Packet(request.body)
        except ValueError:
            return Response(400, b"`wait` is a number of seconds, such as /nq?wait=10\n", headers=readable)
        peer = _peer_of(request)
        known = self._by_id.get(peer)
        standing = self.find(peer, credentials)
        if standing is not known:
            self._lend(standing)
        if standing.is_denied or self._exchange.hub.stage_of(standing.peer) is Stage.NOBODY:
            self._forget(standing)
            return unauthorized(UNKNOWN if credentials.bearer else ANONYMOUS, readable)
        if standing.is_over:
            farewell = self._exchange.hub.farewell_of(standing.peer)
            self._forget(standing)
            gate = self._exchange.hub.gate
            if credentials.bearer and (wait := gate.retry_after(credentials, self._exchange.now())):
                return too_often(TOO_OFTEN.format(wait), wait, readable)
            text = "the hub takes nobody in now" if farewell is None else farewell.text
            return Response(503, f"{text}\n".encode(), headers={"Retry-After": "10", **readable})
        is_secure = self._cookie_is_secure or is_https(request.headers)
        given_up = request.given_up or asyncio.get_running_loop().create_future()
        exchange = standing.exchange(packet, wait, given_up)
        del packet, request  # the body may be large, and the wait long
        try:
            answer = await exchange
        finally:
            self._let_go(standing)
        cookie = f"{COOKIE}={standing.peer}; Path={PATH}; HttpOnly; SameSite=Strict"
        if is_secure:
            cookie += "; Secure"
        headers = {HEADER: standing.peer, NUMBER: str(standing.answered), "Set-Cookie": cookie, **readable}
        return Response(200, answer.payload, _JSON, headers)

    def _lend(self, standing: Standing) -> None:
        """Let a session that began with a POST begin with what its owner has left of its rate."""
        if (session := self._exchange.hub.session(standing.peer)) is not None:
            self._allowances.lend(session)
            standing.first_heard = partial(self._allowances.settle, session)

    # Going.

    def _forget_soon(self, standing: Standing) -> None:
        """Let somebody go whom the hub has sent away, when it has heard that."""
        standing.parting = asyncio.get_running_loop().call_later(_PARTING, self._forget, standing)

    def _lost(self, leg: Leg) -> None:
        self.legs.discard(leg)
        self._let_go(leg.standing)

    def _let_go(self, standing: Standing) -> None:
        """End a session without a connection if nothing is kept for it, or it was never let in."""
        if self._by_id.get(standing.peer) is standing and not standing.is_here:
            is_open = self._exchange.hub.stage_of(standing.peer) is Stage.OPEN
            if standing.is_empty or not is_open:
                self._forget(standing, "nothing is kept for it")

    def _forget(self, standing: Standing, reason: str = "it did not come back") -> None:
        peer = standing.peer
        if self._by_id.get(peer) is not standing:
            return
        del self._by_id[peer]
        if self._exchange.hub.stage_of(peer) is Stage.OPEN and not standing.is_empty:
            self._ids.retire(peer, self._exchange.now())
        self._minted = max(self._minted, standing.talk.minted)
        standing.forget(reason)

    def _forget_idle(self) -> None:
        """Let those go who have been silent for long: what they were promised is overdue by then."""
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP, self._forget_idle)
        now, hub = self._exchange.now(), self._exchange.hub
        for standing in [each for each in self._by_id.values() if not each.is_here]:
            silence = now - standing.seen_at
            has_nothing = silence > _IDLE and standing.talk.is_idle and hub.is_idle(standing.peer)
            if silence > self._peer_ttl or has_nothing:
                self._forget(standing)


def _wait_of(request: Request) -> float:
    """Return how long a client waits for something to be due; ValueError if that is no time."""
    wait = float(_asked(request.query, "wait") or "0")
    if not wait >= 0:  # nor is NaN a time
        raise ValueError(wait)
    return min(wait, _LONGEST_WAIT)


def _shown(request: Request) -> str:
    """Return the peer id among the subprotocols of a WebSocket: pages cannot set its headers."""
    offered = (each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(","))
    return next((each.removeprefix(_SHOWN) for each in offered if each.startswith(_SHOWN)), "")


def _asked(query: str, name: str) -> str:
    """Return one field of a query, empty if it is not there; ValueError if there are too many."""
    return parse_qs(query, max_num_fields=_MOST_FIELDS).get(name, [""])[0] if query else ""


def _peer_of(request: Request) -> str:
    given = request.headers.get(HEADER.lower(), "")
    if given:
        return given
    # Cookies of others may be anything: they share the machine's name with ours.
    ours = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in ours if name == COOKIE), "")
