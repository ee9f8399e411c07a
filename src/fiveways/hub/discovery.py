"""What can be called: lists, routes and documentation, in the spelling of whoever asks."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from fiveways.hub.builtins import DOCS
from fiveways.hub.calls import Calls, Pending
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.errands import Listing, Query
from fiveways.hub.names import below, cut, respelled, spelled, spelled_below, spelled_route
from fiveways.hub.offers import Method, Offers
from fiveways.hub.policy import AllowList
from fiveways.hub.refusal import Refusal, bad, busy
from fiveways.hub.session import Session, hub_itself
from fiveways.model.failures import Reason
from fiveways.model.messages import Description, Discover
from fiveways.model.names import UMQ, BadName, NameStyle, fold_prefix
from fiveways.wire.limits import Limits

HUB: Final = "hub"
"""The route of the built-ins."""
_DISCOVER: Final = "hub.discover"
"""As what it is counted when somebody is asked."""
_PATIENCE: Final = 10.0
"""Seconds that a peer has to say what is below its route, where it is the hub that asks."""
_AROUND: Final = 4
"""Bytes that a protocol writes around a name in a list: quotes, a comma, a blank."""


class Discovery:
    """Answers from the table of offers, or passes the question on to the peer behind a route."""

    def __init__(self, limits: Limits, offers: Offers, calls: Calls, counters: Counters) -> None:
        self._max_pending = limits.max_pending
        # A name may have quotes, which become longer, and there is more in a message than its lists.
        self._max_list = limits.max_text // 2
        self._offers = offers
        self._calls = calls
        self._counters = counters
        self._lists: dict[NameStyle, Description] = {}
        """Of all there is, for those who may call it all."""
        self._lists_of = offers.changes
        self._me = hub_itself()

    def listings(self) -> int:
        """Return how many questions of the hub itself are open."""
        return len(self._me.asked)

    def look_below(self, session: Session, route: str, now: float) -> Deliveries:
        """Ask a peer that offers a route what is below it, so that it is called in its own spelling."""
        question = f"{session.peer} {route}"
        is_full = len(session.serving) >= self._max_pending
        if not session.traits.lists or is_full or question in self._me.asked:
            return []
        pending = self._calls.open(self._me, question, session, _DISCOVER, self._calls.timeout(_PATIENCE), now)
        pending.errand, pending.plain = Listing(route), False
        return [Delivery(session.peer, Discover(pending.op), pending.op)]

    def discover(self, session: Session, word: Discover, now: float) -> Deliveries:
        """Tell what there is, or pass the question on."""
        if not word.name:
            return [Delivery(session.peer, replace(self._everything(session), id=word.id))]
        style = session.traits.names
        try:
            name, is_route = fold_prefix(word.name, style)
        except BadName as exc:
            raise Refusal(Reason.NO_METHOD, str(exc)) from exc
        if name == HUB:
            methods = tuple(spelled_below(below(HUB, each), style) for each in DOCS)
            return [Delivery(session.peer, Description(word.id, methods))]
        if name in DOCS and not is_route:
            return [Delivery(session.peer, Description(word.id, doc=DOCS[name]))]
        method = None if is_route else self._offers.find(name)
        route = self._offers.route(name)
        allowed = session.access.call
        members = [each for each in self._offers if each.name.startswith(f"{name}.")] if not (method or route) else []
        is_prefix = is_route or route or members
        if allowed is not None and not (allowed.reaches(f"{name}.") if is_prefix else allowed.allows(name)):
            raise Refusal(Reason.DENIED, f"you may not call {name}")
        if method is not None:
            return [Delivery(session.peer, Description(word.id, doc=method.offers[0].doc))]
        if members:
            return [Delivery(session.peer, replace(self._below(session, name, members), id=word.id))]
        if (route := route or self._offers.route_of(name)) is None:
            raise self._offers.missing(name)
        return self._ask(session, word, route, name, is_route, now)

    def _ask(
        self, session: Session, word: Discover, route: Method, name: str, is_route: bool, now: float
    ) -> Deliveries:
        """Pass a question on to a peer behind a route, without the prefix."""
        if word.id in session.asked:
            raise bad(f"a call {word.id} is open already")
        if len(session.asked) >= self._max_pending:
            raise busy("too many calls are open")
        offer = self._offers.choose(route)
        callee = offer.session
        rest = below(route.name, name)
        written = offer.listed.get(rest, "")
        if rest and not written:
            style, wanted = session.traits.names, callee.traits.names
            written = respelled(word.name.rstrip(style.separators), route.name, name, style, wanted)
            written = written or spelled_below(rest, wanted)
            if not written:
                raise bad(f"{callee.traits.protocol} cannot write the name {rest}")
        if is_route and rest:
            written += callee.traits.names.writes
        timeout = self._calls.default
        pending = self._calls.open(session, word.id, callee, _DISCOVER, timeout, now)
        pending.errand, pending.plain = Query(route.name, name, is_whole=not rest), False
        session.op = pending.op
        return [Delivery(callee.peer, Discover(pending.op, written), pending.op)]

    def describe(self, callee: Session, word: Description, now: float) -> Deliveries:
        """Pass on what a peer tells about the names below its route."""
        pending = callee.serving.get(word.id)
        query = None if pending is None else pending.errand
        if pending is None or not isinstance(query, Query | Listing):
            self._counters.stray += 1
            return []
        callee.op = pending.op
        self._calls.close(pending, now)
        if isinstance(query, Listing):
            self._offers.learn(callee, query.route, dict(_folded(word.methods, callee.traits.names)))
            return []
        self._counters.results += 1
        if word.doc is not None:
            told = Description(pending.id, doc=word.doc)
        else:
            methods = list(_folded(word.methods, callee.traits.names))
            routes = _folded(word.routes, callee.traits.names)
            if query.is_whole:
                self._offers.learn(callee, query.route, dict(methods))
            told = _bounded(
                pending.id,
                _respelled(pending, query, methods, routes=False),
                _respelled(pending, query, routes, routes=True),
                self._max_list,
                word.more,
            )
        return [Delivery(pending.caller.peer, told, pending.op, pending)]

    def _everything(self, session: Session) -> Description:
        style, allowed = session.traits.names, session.access.call
        if allowed is not None:
            return self._list(style, allowed)
        if self._lists_of != self._offers.changes:
            self._lists.clear()
            self._lists_of = self._offers.changes
        if style not in self._lists:
            self._lists[style] = self._list(style, None)
        return self._lists[style]

    def _below(self, session: Session, prefix: str, members: Iterable[Method]) -> Description:
        """List a namespace without its prefix: its own methods, and routes to namespaces within it (UMQ1-20)."""
        style, allowed = session.traits.names, session.access.call
        methods: list[str] = []
        routes: dict[str, str] = {}
        for method in members:
            name = method.name
            if allowed is not None and not (allowed.reaches(f"{name}.") if method.is_route else allowed.allows(name)):
                continue
            rest = below(prefix, name)
            own = method.spelling_in(style).rstrip(style.separators)
            written = cut(own, prefix, name, style) or spelled_below(rest, style)
            first, is_deeper, _ = rest.partition(".")
            if is_deeper or method.is_route:
                routes.setdefault(first, _head(written, style))
            else:
                methods.append(written)
        return _bounded("", methods, routes.values(), self._max_list)

    def _list(self, style: NameStyle, allowed: AllowList | None) -> Description:
        """List all there is; what was offered first is left out last, so that nobody who comes hides what is there."""
        methods: list[str] = []
        routes: list[str] = []
        namespaces: dict[str, str] = {}
        for method in self._offers:
            name = method.name
            if method.is_route:
                if allowed is None or allowed.reaches(f"{name}."):
                    routes.append(_route_spelling(method, style))
            elif allowed is None or allowed.allows(name):
                written = method.spelling_in(style) or spelled(name, style)
                methods.append(written)
                first, is_deeper, _ = name.partition(".")
                if style is UMQ and is_deeper and first not in namespaces and self._offers.route(first) is None:
                    namespaces[first] = _head(written, style)
        own = spelled_route(HUB, style)
        found = _bounded("", methods, routes, self._max_list - len(own) - _AROUND)
        led_to = _fitting(namespaces.values(), self._max_list // 2)[0]
        return replace(found, routes=(*found.routes, own), namespaces=led_to)


def _head(written: str, style: NameStyle) -> str:
    """Return the first segment of a written name, with the separator that makes it a route."""
    ends = [index for index, character in enumerate(written) if index and character in style.separators]
    return written[: ends[0] + 1] if ends else written and written + style.writes


def _bounded(call_id: str, methods: Iterable[str], routes: Iterable[str], room: int, more: int = 0) -> Description:
    """Tell of as many names as there is room for. Routes take half of it at most: neither hides the other."""
    told_routes, left, cut_routes = _fitting(routes, room // 2)
    told_methods, _, cut_methods = _fitting(methods, room - room // 2 + left)
    return Description(call_id, told_methods, told_routes, more=more + cut_routes + cut_methods)


def _fitting(names: Iterable[str], room: int) -> tuple[tuple[str, ...], int, int]:
    """Return the names that can be written and that fit, what room is left, and how many do not fit."""
    fitting: list[str] = []
    cut = 0
    for name in filter(None, names):
        size = len(name.encode()) + _AROUND
        if size > room:
            cut += 1
        else:
            fitting.append(name)
            room -= size
    return tuple(fitting), room, cut


def _route_spelling(route: Method, style: NameStyle) -> str:
    written = route.spelling_in(style)
    if not written:
        return spelled_route(route.name, style)
    return written if written[-1] in style.separators else written + style.writes


def _folded(names: Iterable[str], style: NameStyle) -> Iterator[tuple[str, str]]:
    """Give the names that a peer lists, folded and as it writes them, but for those that are none."""
    for name in names:
        try:
            yield fold_prefix(name, style)[0], name
        except BadName:
            continue


def _respelled(pending: Pending, query: Query, listed: Iterable[tuple[str, str]], *, routes: bool) -> Iterator[str]:
    """Give the names as the asker would write them, but for those that it may not call."""
    style, allowed = pending.caller.traits.names, pending.caller.access.call
    is_same = style is pending.callee.traits.names
    write = spelled_route if routes else spelled_below
    for folded, written in listed:
        whole = f"{query.above}.{folded}"
        if allowed is None or (allowed.reaches(f"{whole}.") if routes else allowed.allows(whole)):
            yield written if is_same else write(folded, style)
