"""Registrations: methods by folded name with the callees that share each, and routes for all names below a prefix."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Final

import msgspec

from fiveways.errors import Reason
from fiveways.hub.name_reservations import LOCAL_OWNER, NameKey, NameReservations, Reservation, name_owner
from fiveways.hub.name_spelling import spell_name
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.session import Session
from fiveways.model.messages import Register, Unregister
from fiveways.model.names import LOCAL, RESERVED, UMQ, UMQ36, NameStyle

ROUND_ROBIN: Final = "round_robin"
SHARED_OPEN: Final = "open"
"""Round-robin, also with other identities that register the name as open."""
SHARE_MODES: Final = ("", ROUND_ROBIN, "random", "first", SHARED_OPEN)
KINDS: Final = ("unary", "server", "client", "both")
_STREAMING_KINDS: Final = frozenset({"server", "both"})
MAX_DOC_BYTES: Final = 16 << 10
"""Maximum size of the documentation of one registration."""
_UMQ_STYLES: Final = (UMQ, UMQ36)
_MAX_FORMER_NAMES: Final = 10_000
"""Names that the hub remembers after their last callee has left."""
_MAX_LISTED_NAMES: Final = 100_000
"""Maximum number of names below all routes together for which the hub remembers the callee's spelling."""


def _ignore() -> None:
    """Do nothing."""


class Registration(msgspec.Struct, frozen=True):
    """One method or route of one callee."""

    session: Session
    spelling: str
    """The name as the callee wrote it."""
    doc: str
    listed_names: dict[str, str] = {}
    """Spellings of the names below the callee's route, from its response to a route query."""


class MethodEntry:
    """One method or route with all its registrations. The first registration sets kind and share."""

    __slots__ = (
        "collects_stream",
        "is_round_robin",
        "is_route",
        "kind",
        "name",
        "next_index",
        "owner_identity",
        "registrations",
        "share",
    )

    def __init__(self, message: Register, owner: str | None) -> None:
        self.name = message.method
        self.is_route = message.route
        self.kind = message.kind
        self.share = message.share or ROUND_ROBIN
        self.collects_stream = message.kind in _STREAMING_KINDS
        """For callers without streams."""
        self.registrations: list[Registration] = []
        self.owner_identity = owner
        """The identity that owns the name; None if only anonymous peers registered it."""
        self.is_round_robin = self.share in {ROUND_ROBIN, SHARED_OPEN}
        self.next_index = 0
        """Index of the next callee in round-robin order."""

    def spelling_in(self, style: NameStyle) -> str:
        """Return the callees' own spelling of the name in this style; empty if no callee uses the style.

        An application in the hub's process writes names as UMQ does.
        """
        spelling = next(
            (
                registration.spelling
                for registration in self.registrations
                if registration.session.traits.names is style
            ),
            "",
        )
        if spelling or style not in _UMQ_STYLES:
            return spelling
        local_spelling = next(
            (
                registration.spelling
                for registration in self.registrations
                if registration.session.traits.names is LOCAL
            ),
            "",
        )
        return local_spelling.replace(".", style.joiner).replace(":", style.joiner)


class Registrations:
    """All methods and routes."""

    def __init__(self, random: Random, max_pending: int, reservations: NameReservations) -> None:
        self._random = random
        self._reservations = reservations
        reservations.on_release = self._assign_next_owner
        self._max_pending = max_pending
        self._methods: dict[str, MethodEntry] = {}
        self._routes: dict[str, MethodEntry] = {}
        self._by_peer: dict[str, dict[tuple[str, bool], MethodEntry]] = {}
        self._former_names: dict[tuple[str, bool], None] = {}
        self.find = self._methods.get
        """Return the method with exactly this name, or None."""
        self.version = 0
        """Increases with every registration that begins or ends."""
        self.on_change: Callable[[], None] = _ignore
        """Called after each such change."""
        self._listed_count = 0

    def __len__(self) -> int:
        return len(self._methods) + len(self._routes)

    def count_of(self, peer: str) -> int:
        """Return the number of registrations of a peer."""
        return len(self._by_peer.get(peer, ()))

    def registered_spelling(self, session: Session, name: str) -> tuple[str, bool]:
        """Return a callee's spelling of its method, empty if it has none, and whether the method streams its result."""
        method = self._by_peer.get(session.peer, {}).get((name, False))
        for registration in method.registrations if method is not None else ():
            if registration.session is session:
                return registration.spelling, method is not None and method.collects_stream
        return "", False

    def registered_names(self, peer: str) -> Iterator[str]:
        """Yield the folded names that a peer registered; a route ends in a dot."""
        for name, is_route in self._by_peer.get(peer, ()):
            yield f"{name}." if is_route else name

    def __iter__(self) -> Iterator[MethodEntry]:
        yield from self._methods.values()
        yield from self._routes.values()

    # Registration and removal.

    def add(self, session: Session, message: Register, limit: int) -> None:
        """Add or replace a registration; raise Refusal if it is not possible."""
        first_segment = message.method.partition(".")[0]
        if first_segment in RESERVED:
            raise bad_arguments(
                f"{message.spelling or message.method} is not free: names below {first_segment} are the hub's own"
            )
        if message.kind not in KINDS or message.share not in SHARE_MODES:
            raise bad_arguments(f"unknown kind {message.kind!r} or share {message.share!r}")
        if len(message.doc.encode(errors="surrogatepass")) > MAX_DOC_BYTES:
            raise bad_arguments(
                f"the documentation of {message.spelling or message.method} is larger than {MAX_DOC_BYTES} bytes"
            )
        key = NameKey(message.method, message.route)
        entries = self._by_peer.get(session.peer, {})
        if key not in entries and len(entries) >= limit:
            raise overloaded(f"more than {limit} registrations")
        self._check_ownership(session, message)
        table = self._routes if message.route else self._methods
        identity = name_owner(session)
        if identity is not None:
            self._withdraw_anonymous(message)
        method = table.get(message.method)
        if method is not None:
            _check_agreement(method, session, message)
            self._remove_from(session, method)
        if method is None or not method.registrations:
            method = table[message.method] = MethodEntry(message, self._owner_of(key, method))
        if method.owner_identity is None:
            method.owner_identity = identity
        if identity is not None and identity == method.owner_identity:
            self._reservations.take_back(key)
        method.registrations.append(Registration(session, message.spelling, message.doc))
        self._by_peer.setdefault(session.peer, entries)[key] = method
        self._former_names.pop(key, None)
        self._notify_change()

    def remove(self, session: Session, message: Unregister) -> None:
        """Remove a registration; raise Refusal if there is none."""
        entries = self._by_peer.get(session.peer, {})
        method = entries.pop((message.method, message.route), None)
        if method is None:
            raise bad_arguments(f"you did not register {message.spelling or message.method}")
        if not entries:
            del self._by_peer[session.peer]
        self._withdraw(session, method)

    def revoke(self, session: Session) -> None:
        """Remove the registrations that the permissions of a peer forbid now."""
        entries = self._by_peer.get(session.peer, {})
        for (name, is_route), method in list(entries.items()):
            if not session.access.may_register(name, route=is_route):
                del entries[name, is_route]
                self._withdraw(session, method)
        if not entries:
            self._by_peer.pop(session.peer, None)

    def leave(self, session: Session) -> None:
        """Remove all registrations of a peer."""
        for method in self._by_peer.pop(session.peer, {}).values():
            self._withdraw(session, method)

    def store_listed_names(self, session: Session, prefix: str, listed: Mapping[str, str]) -> None:
        """Remember a callee's spellings of the names below its route, up to the limit."""
        route = self._by_peer.get(session.peer, {}).get((prefix, True))
        for registration in route.registrations if route is not None else ():
            if registration.session is session:
                self._set_listed_names(registration, listed)

    def _set_listed_names(self, registration: Registration, listed: Mapping[str, str]) -> None:
        self._listed_count -= len(registration.listed_names)
        registration.listed_names.clear()
        registration.listed_names.update(islice(listed.items(), _MAX_LISTED_NAMES - self._listed_count))
        self._listed_count += len(registration.listed_names)

    def _withdraw(self, session: Session, method: MethodEntry) -> None:
        key = NameKey(method.name, method.is_route)
        owner = self._owner_of(key, method)
        self._remove_from(session, method)
        self._notify_change()
        if owner is not None and all(
            name_owner(registration.session) != owner for registration in method.registrations
        ):
            self._reservations.reserve(key, Reservation(owner, method.share))
        if method.registrations:
            return
        del (self._routes if method.is_route else self._methods)[method.name]
        self._former_names[key] = None
        if len(self._former_names) > _MAX_FORMER_NAMES:
            del self._former_names[next(iter(self._former_names))]

    def _remove_from(self, session: Session, method: MethodEntry) -> None:
        for registration in method.registrations:
            if registration.session is session:
                self._set_listed_names(registration, {})
        method.registrations = [
            registration for registration in method.registrations if registration.session is not session
        ]

    def _notify_change(self) -> None:
        self.version += 1
        self.on_change()

    # Ownership of names.

    def _owner_of(self, key: NameKey, method: MethodEntry | None) -> str | None:
        if method is None:
            reservation = self._reservations.reserved.get(key)
            return None if reservation is None else reservation.identity
        if method.owner_identity is None:  # a peer may have shown its token after it registered
            self._assign_next_owner(key)
        return method.owner_identity

    def _check_ownership(self, session: Session, message: Register) -> None:
        """Refuse a name that another identity owns, or that is below its route."""
        identity, spelling = name_owner(session), message.spelling or message.method
        key, is_exact = NameKey(message.method, message.route), True
        if self._may_share_name(session, key):
            return
        while key.name:
            method = (self._routes if key.is_route else self._methods).get(key.name)
            owner = self._owner_of(key, method)
            if owner is not None and owner != identity:
                reservation = self._reservations.reserved.get(key)
                share = method.share if method is not None else reservation.share if reservation is not None else ""
                if not (identity is not None and is_exact and share == message.share == SHARED_OPEN):
                    subject = spelling if is_exact else f"{key.name}, which is above {spelling},"
                    raise Refusal(Reason.DENIED, f"{subject} belongs to another identity")
            key, is_exact = NameKey(key.name.rpartition(".")[0], is_route=True), False

    def _withdraw_anonymous(self, message: Register) -> None:
        """Remove anonymous registrations of a name, or below a route, that an identity registers."""
        methods = [(self._routes if message.route else self._methods).get(message.method)]
        if message.route:
            methods += [entry for entry in self if entry.name.startswith(f"{message.method}.")]
        for method in methods:
            if method is not None and method.owner_identity is None:
                for session in [entry.session for entry in method.registrations if name_owner(entry.session) is None]:
                    self._unregister(session, method)

    def _unregister(self, session: Session, method: MethodEntry) -> None:
        entries = self._by_peer[session.peer]
        del entries[method.name, method.is_route]
        if not entries:
            del self._by_peer[session.peer]
        self._withdraw(session, method)

    def _assign_next_owner(self, key: NameKey) -> None:
        """Give a name to the next identity with a registration of it."""
        method = (self._routes if key.is_route else self._methods).get(key.name)
        if method is not None:
            owners = (name_owner(registration.session) for registration in method.registrations)
            method.owner_identity = next((registration for registration in owners if registration is not None), None)

    def _is_reserved_below(self, route: MethodEntry, name: str) -> bool:
        """Return whether a name below a route is reserved for an absent identity that has no part in the route."""
        key, reserved = NameKey(name, is_route=False), self._reservations.reserved
        while key.name != route.name:
            reservation = reserved.get(key)
            if reservation is not None and reservation.identity != route.owner_identity:
                return not all(self._may_share_name(registration.session, key) for registration in route.registrations)
            key = NameKey(key.name.rpartition(".")[0], is_route=True)
        return False

    def _may_share_name(self, session: Session, key: NameKey) -> bool:
        identity = name_owner(session)
        return identity == LOCAL_OWNER or (
            identity is not None and session.access.is_granted_by_name(key.name, route=key.is_route)
        )

    # Lookup of callees.

    def longest_route(self, name: str) -> MethodEntry | None:
        """Return the longest route above a name; None if the name is reserved for another identity."""
        prefix = name.rpartition(".")[0] if self._routes else ""
        while prefix:
            if (route := self._routes.get(prefix)) is not None:
                return None if self._reservations.reserved and self._is_reserved_below(route, name) else route
            prefix = prefix.rpartition(".")[0]
        return None

    def find_route(self, prefix: str) -> MethodEntry | None:
        """Return the route with exactly this prefix."""
        return self._routes.get(prefix)

    def choose_callee(self, method: MethodEntry, max_calls: int = 0) -> Registration:
        """Return the callee of the next call; skip callees with `max_calls` pending calls, 0 for the general limit."""
        max_calls = max_calls or self._max_pending
        registrations = method.registrations
        count = len(registrations)
        if count == 1 and len(registrations[0].session.calls_served) < max_calls:
            return registrations[0]
        start = 0
        if method.is_round_robin:
            start = method.next_index
        elif method.share == "random":
            start = self._random.randrange(count)
        for index in range(start, start + count):
            registration = registrations[index % count]
            if len(registration.session.calls_served) < max_calls:
                method.next_index = (index + 1) % count
                return registration
        raise overloaded(f"all callees of {method.name} have too many pending calls")

    def not_found_refusal(self, name: str) -> Refusal:
        """Return the refusal of a call without a callee: the name is unknown, or its last callee has left."""
        if self._former_name(name):
            return Refusal(Reason.UNAVAILABLE, f"{name} has no callee any more")
        return Refusal(Reason.NO_SUCH_METHOD, f"there is no method {name}")

    def known_name(self, name: str) -> str:
        """Return the name, or a route above it, if it is or was registered; else an empty text."""
        if name in self._methods or (name, False) in self._former_names:
            return name
        route = self.longest_route(name)
        return self._former_name(name) if route is None else route.name

    def _former_name(self, name: str) -> str:
        if (name, False) in self._former_names:
            return name
        prefix = name.rpartition(".")[0]
        while prefix and (prefix, True) not in self._former_names:
            prefix = prefix.rpartition(".")[0]
        return prefix


def _check_agreement(method: MethodEntry, session: Session, message: Register) -> None:
    """Refuse a registration that contradicts the existing ones."""
    others = [registration for registration in method.registrations if registration.session is not session]
    if others and message.kind != method.kind:
        raise bad_arguments(f"{method.name} is already registered with kind {method.kind}, not {message.kind}")
    if others and message.share and message.share != method.share:
        raise bad_arguments(f"{method.name} is already registered with share {method.share}, not {message.share}")
    style = session.traits.names
    spelling = _spelling(message.spelling, message.method, style)
    for registration in method.registrations:
        other_spelling = _spelling(registration.spelling, method.name, style)
        if registration.session.traits.names is style and other_spelling != spelling:
            raise bad_arguments(f"{spelling} is the same name as {other_spelling}, which is already registered")


def _spelling(spelling: str, name: str, style: NameStyle) -> str:
    """Return a name in a peer's spelling, without the separator at the end of a route."""
    return (spelling or spell_name(name, style)).rstrip(style.separators)
