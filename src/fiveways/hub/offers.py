"""Methods on offer: by folded name, with those who share one, and routes for all names below another."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Final

import msgspec

from fiveways.hub.claims import HUB, Claim, Claims, Key, claimant
from fiveways.hub.names import spelled
from fiveways.hub.refusal import Refusal, bad, busy
from fiveways.hub.session import Session
from fiveways.model.failures import Reason
from fiveways.model.messages import Register, Unregister
from fiveways.model.names import LOCAL, RESERVED, UMQ, UMQ36, NameStyle

ROUND_ROBIN: Final = "round_robin"
OPEN: Final = "open"
"""In turns, like round_robin, and with other identities that register the name as open too."""
SHARES: Final = ("", ROUND_ROBIN, "random", "first", OPEN)
KINDS: Final = ("unary", "server", "client", "both")
_ARRAYS: Final = frozenset({"server", "both"})
MAX_DOC: Final = 16 << 10
"""Bytes of what a peer tells about one offer."""
_LIKE_LOCAL: Final = (UMQ, UMQ36)
_MOST_MISSED: Final = 10_000
"""Names that are remembered after their last callee has gone."""
_MOST_LISTED: Final = 100_000
"""Names below all routes together of which it is known how their peers write them."""


def _nobody() -> None:
    """Nobody wants to know."""


class Offer(msgspec.Struct, frozen=True):
    """One method, or route, of one peer."""

    session: Session
    spelling: str
    """As the peer wrote it."""
    doc: str
    listed: dict[str, str] = {}
    """How the peer itself lists the names below its route, where it was asked."""


class Method:
    """One name, or one prefix, and all who offer it. The first of them decided how."""

    __slots__ = ("gives_array", "is_route", "kind", "name", "offers", "owner", "share", "takes_turns", "turn")

    def __init__(self, word: Register, owner: str | None) -> None:
        self.name = word.method
        self.is_route = word.route
        self.kind = word.kind
        self.share = word.share or ROUND_ROBIN
        self.gives_array = word.kind in _ARRAYS
        """To callers who take no stream."""
        self.offers: list[Offer] = []
        self.owner = owner
        """The identity that the name belongs to; None if only anonymous peers registered it."""
        self.takes_turns = self.share in {ROUND_ROBIN, OPEN}
        self.turn = 0
        """Who is next, where they take turns."""

    def spelling_in(self, style: NameStyle) -> str:
        """Return how those who offer it write it in this style; empty if none of them does.

        An application in the hub's process writes names as UMQ does.
        """
        own = next((offer.spelling for offer in self.offers if offer.session.traits.names is style), "")
        if own or style not in _LIKE_LOCAL:
            return own
        local = next((offer.spelling for offer in self.offers if offer.session.traits.names is LOCAL), "")
        return local.replace(".", style.writes).replace(":", style.writes)


class Offers:
    """All methods and routes on offer."""

    def __init__(self, random: Random, max_pending: int, claims: Claims) -> None:
        self._random = random
        self._claims = claims
        claims.released = self._pass_on
        self._max_pending = max_pending
        self._methods: dict[str, Method] = {}
        self._routes: dict[str, Method] = {}
        self._by_peer: dict[str, dict[tuple[str, bool], Method]] = {}
        self._missed: dict[tuple[str, bool], None] = {}
        self.find = self._methods.get
        """Return the method of this very name, or None."""
        self.changes = 0
        """Rises with every offer that comes or goes."""
        self.changed: Callable[[], None] = _nobody
        """Who is told of that."""
        self._listed = 0

    def __len__(self) -> int:
        return len(self._methods) + len(self._routes)

    def of(self, peer: str) -> int:
        """Return how many a peer has made."""
        return len(self._by_peer.get(peer, ()))

    def own(self, session: Session, name: str) -> tuple[str, bool]:
        """Return how a peer writes a method that it offers, if it does, and whether that gives arrays."""
        method = self._by_peer.get(session.peer, {}).get((name, False))
        for offer in method.offers if method is not None else ():
            if offer.session is session:
                return offer.spelling, method is not None and method.gives_array
        return "", False

    def names_of(self, peer: str) -> Iterator[str]:
        """Yield the folded names that a peer registered; a route ends in a dot."""
        for name, is_route in self._by_peer.get(peer, ()):
            yield f"{name}." if is_route else name

    def __iter__(self) -> Iterator[Method]:
        yield from self._methods.values()
        yield from self._routes.values()

    # Coming and going.

    def add(self, session: Session, word: Register, most: int) -> None:
        """Take an offer, or take it anew; a Refusal says why not."""
        first = word.method.partition(".")[0]
        if first in RESERVED:
            raise bad(f"{word.spelling or word.method} is not free: names below {first} are the hub's own")
        if word.kind not in KINDS or word.share not in SHARES:
            raise bad(f"there is no kind {word.kind}, or no share {word.share}")
        if len(word.doc.encode(errors="surrogatepass")) > MAX_DOC:
            raise bad(f"the doc of {word.spelling or word.method} is larger than {MAX_DOC} bytes")
        key = Key(word.method, word.route)
        mine = self._by_peer.get(session.peer, {})
        if key not in mine and len(mine) >= most:
            raise busy(f"more than {most} offers")
        self._check_ownership(session, word)
        table = self._routes if word.route else self._methods
        own = claimant(session)
        if own is not None:
            self._displace(word)
        method = table.get(word.method)
        if method is not None:
            _check_agreement(method, session, word)
            self._retract(session, method)
        if method is None or not method.offers:
            method = table[word.method] = Method(word, self._owner(key, method))
        if method.owner is None:
            method.owner = own
        if own is not None and own == method.owner:
            self._claims.resume(key)
        method.offers.append(Offer(session, word.spelling, word.doc))
        self._by_peer.setdefault(session.peer, mine)[key] = method
        self._missed.pop(key, None)
        self._count_change()

    def remove(self, session: Session, word: Unregister) -> None:
        """Take an offer back; a Refusal if there was none."""
        mine = self._by_peer.get(session.peer, {})
        method = mine.pop((word.method, word.route), None)
        if method is None:
            raise bad(f"you do not offer {word.spelling or word.method}")
        if not mine:
            del self._by_peer[session.peer]
        self._withdraw(session, method)

    def revoke(self, session: Session) -> None:
        """Withdraw what a peer may not offer any more."""
        mine = self._by_peer.get(session.peer, {})
        for (name, is_route), method in list(mine.items()):
            if not session.access.may_offer(name, route=is_route):
                del mine[name, is_route]
                self._withdraw(session, method)
        if not mine:
            self._by_peer.pop(session.peer, None)

    def leave(self, session: Session) -> None:
        """Withdraw all that a peer offered."""
        for method in self._by_peer.pop(session.peer, {}).values():
            self._withdraw(session, method)

    def learn(self, session: Session, prefix: str, listed: Mapping[str, str]) -> None:
        """Remember how a peer itself writes the names below its route, as far as there is room."""
        route = self._by_peer.get(session.peer, {}).get((prefix, True))
        for offer in route.offers if route is not None else ():
            if offer.session is session:
                self._relist(offer, listed)

    def _relist(self, offer: Offer, listed: Mapping[str, str]) -> None:
        self._listed -= len(offer.listed)
        offer.listed.clear()
        offer.listed.update(islice(listed.items(), _MOST_LISTED - self._listed))
        self._listed += len(offer.listed)

    def _withdraw(self, session: Session, method: Method) -> None:
        key = Key(method.name, method.is_route)
        owner = self._owner(key, method)
        self._retract(session, method)
        self._count_change()
        if owner is not None and all(claimant(each.session) != owner for each in method.offers):
            self._claims.reserve(key, Claim(owner, method.share))
        if method.offers:
            return
        del (self._routes if method.is_route else self._methods)[method.name]
        self._missed[key] = None
        if len(self._missed) > _MOST_MISSED:
            del self._missed[next(iter(self._missed))]

    def _retract(self, session: Session, method: Method) -> None:
        for offer in method.offers:
            if offer.session is session:
                self._relist(offer, {})
        method.offers = [offer for offer in method.offers if offer.session is not session]

    def _count_change(self) -> None:
        self.changes += 1
        self.changed()

    # To whom names belong.

    def _owner(self, key: Key, method: Method | None) -> str | None:
        if method is None:
            claim = self._claims.reserved.get(key)
            return None if claim is None else claim.identity
        if method.owner is None:  # a peer may have shown its token after it registered
            self._pass_on(key)
        return method.owner

    def _check_ownership(self, session: Session, word: Register) -> None:
        """Refuse a name that belongs to another identity, or that is below a route of another identity."""
        own, written = claimant(session), word.spelling or word.method
        key, is_same = Key(word.method, word.route), True
        if self._may_stand_in(session, key):
            return
        while key.name:
            method = (self._routes if key.is_route else self._methods).get(key.name)
            owner = self._owner(key, method)
            if owner is not None and owner != own:
                claim = self._claims.reserved.get(key)
                share = method.share if method is not None else claim.share if claim is not None else ""
                if not (own is not None and is_same and share == word.share == OPEN):
                    where = written if is_same else f"{key.name}, which is above {written},"
                    raise Refusal(Reason.DENIED, f"{where} belongs to another identity")
            key, is_same = Key(key.name.rpartition(".")[0], is_route=True), False

    def _displace(self, word: Register) -> None:
        """Withdraw what anonymous peers registered under a name, or below a route, that an identity registers."""
        methods = [(self._routes if word.route else self._methods).get(word.method)]
        if word.route:
            methods += [each for each in self if each.name.startswith(f"{word.method}.")]
        for method in methods:
            if method is not None and method.owner is None:
                for session in [each.session for each in method.offers if claimant(each.session) is None]:
                    self._forget(session, method)

    def _forget(self, session: Session, method: Method) -> None:
        mine = self._by_peer[session.peer]
        del mine[method.name, method.is_route]
        if not mine:
            del self._by_peer[session.peer]
        self._withdraw(session, method)

    def _pass_on(self, key: Key) -> None:
        """Let a name belong to the next identity that registers it, if one does."""
        method = (self._routes if key.is_route else self._methods).get(key.name)
        if method is not None:
            owners = (claimant(each.session) for each in method.offers)
            method.owner = next((each for each in owners if each is not None), None)

    def _is_passed_over(self, route: Method, name: str) -> bool:
        """Say whether a name below a route is reserved for an identity that is away, and not for those of the route."""
        key, reserved = Key(name, is_route=False), self._claims.reserved
        while key.name != route.name:
            claim = reserved.get(key)
            if claim is not None and claim.identity != route.owner:
                return not all(self._may_stand_in(each.session, key) for each in route.offers)
            key = Key(key.name.rpartition(".")[0], is_route=True)
        return False

    def _may_stand_in(self, session: Session, key: Key) -> bool:
        own = claimant(session)
        return own == HUB or (own is not None and session.access.is_granted(key.name, route=key.is_route))

    # Finding somebody.

    def route_of(self, name: str) -> Method | None:
        """Return the longest route above a name; None if the name is reserved for another identity."""
        prefix = name.rpartition(".")[0] if self._routes else ""
        while prefix:
            if (route := self._routes.get(prefix)) is not None:
                return None if self._claims.reserved and self._is_passed_over(route, name) else route
            prefix = prefix.rpartition(".")[0]
        return None

    def route(self, prefix: str) -> Method | None:
        """Return the route of this very prefix."""
        return self._routes.get(prefix)

    def choose(self, method: Method, most: int = 0) -> Offer:
        """Return who gets the next call; those who have too many open ones (`most`, if given) are passed over."""
        most = most or self._max_pending
        offers = method.offers
        count = len(offers)
        if count == 1 and len(offers[0].session.serving) < most:
            return offers[0]
        first = 0
        if method.takes_turns:
            first = method.turn
        elif method.share == "random":
            first = self._random.randrange(count)
        for index in range(first, first + count):
            offer = offers[index % count]
            if len(offer.session.serving) < most:
                method.turn = (index + 1) % count
                return offer
        raise busy(f"all who offer {method.name} have too many open calls")

    def missing(self, name: str) -> Refusal:
        """Say why nobody gets a call of this name: it was never offered, or is not any more."""
        if self._missed_as(name):
            return Refusal(Reason.UNAVAILABLE, f"nobody offers {name} any more")
        return Refusal(Reason.NO_METHOD, f"there is no method {name}")

    def known_as(self, name: str) -> str:
        """Return what of a name is somebody's offer, or was: the name itself, or a route above it; empty if nothing."""
        if name in self._methods or (name, False) in self._missed:
            return name
        route = self.route_of(name)
        return self._missed_as(name) if route is None else route.name

    def _missed_as(self, name: str) -> str:
        if (name, False) in self._missed:
            return name
        prefix = name.rpartition(".")[0]
        while prefix and (prefix, True) not in self._missed:
            prefix = prefix.rpartition(".")[0]
        return prefix


def _check_agreement(method: Method, session: Session, word: Register) -> None:
    """Refuse an offer that contradicts those that are there."""
    others = [offer for offer in method.offers if offer.session is not session]
    if others and word.kind != method.kind:
        raise bad(f"{method.name} is of kind {method.kind} already, not {word.kind}")
    if others and word.share and word.share != method.share:
        raise bad(f"{method.name} is shared by {method.share} already, not by {word.share}")
    style = session.traits.names
    spelling = _spelled(word.spelling, word.method, style)
    for offer in method.offers:
        there = _spelled(offer.spelling, method.name, style)
        if offer.session.traits.names is style and there != spelling:
            raise bad(f"{spelling} is the same name as {there}, which is offered already")


def _spelled(spelling: str, name: str, style: NameStyle) -> str:
    """Return a name as a peer writes it; the separator behind a route does not count."""
    return (spelling or spelled(name, style)).rstrip(style.separators)
