"""Discovery: lists of methods and routes, and their documentation, in the spelling of the requesting peer."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from fiveways.errors import Reason
from fiveways.hub.builtin_methods import BUILT_IN_DOCS
from fiveways.hub.counters import Counters
from fiveways.hub.delivery import Deliveries, Delivery
from fiveways.hub.name_spelling import cut_spelling, respell, spell_below_route, spell_name, spell_route, strip_prefix
from fiveways.hub.pending_calls import PendingCall, PendingCalls
from fiveways.hub.pending_kinds import HubRouteQuery, RouteQuery
from fiveways.hub.permissions import AllowList
from fiveways.hub.refusal import Refusal, bad_arguments, overloaded
from fiveways.hub.registrations import MethodEntry, Registrations
from fiveways.hub.session import Session, create_hub_session
from fiveways.model.messages import Description, Discover
from fiveways.model.names import UMQ, BadName, NameStyle, fold_prefix
from fiveways.wire.limits import Limits

HUB_ROUTE: Final = "hub"
"""The route of the built-in methods."""
_DISCOVER_METHOD: Final = "hub.discover"
"""The method name under which route queries are counted."""
_ROUTE_QUERY_TIMEOUT: Final = 10.0
"""Seconds that a callee has to answer a route query of the hub itself."""
_NAME_OVERHEAD: Final = 4
"""Bytes that a protocol writes around a name in a list: quotes, a comma, a space."""


class Discovery:
    """Answers from the table of registrations, or forwards the query to the callee of a route."""

    def __init__(
        self, limits: Limits, registrations: Registrations, pending_calls: PendingCalls, counters: Counters
    ) -> None:
        self._max_pending = limits.max_pending
        # Escaped quotes make names longer, and the lists are only a part of the message.
        self._max_list = limits.max_text // 2
        self._registrations = registrations
        self._pending_calls = pending_calls
        self._counters = counters
        self._lists: dict[NameStyle, Description] = {}
        """Complete lists, for peers that may call everything."""
        self._lists_version = registrations.version
        self._hub_session = create_hub_session()

    def open_route_queries(self) -> int:
        """Return the number of pending route queries of the hub itself."""
        return len(self._hub_session.calls_made)

    def query_route(self, session: Session, route: str, now: float) -> Deliveries:
        """Query the names below a new route, so that calls use the callee's own spelling."""
        query_id = f"{session.peer} {route}"
        is_full = len(session.calls_served) >= self._max_pending
        if not session.traits.lists_routes or is_full or query_id in self._hub_session.calls_made:
            return []
        pending = self._pending_calls.open(
            self._hub_session,
            query_id,
            session,
            _DISCOVER_METHOD,
            self._pending_calls.bounded_timeout(_ROUTE_QUERY_TIMEOUT),
            now,
        )
        pending.mark_special(HubRouteQuery(route))
        return [Delivery(session.peer, Discover(pending.op), pending.op)]

    def discover(self, session: Session, message: Discover, now: float) -> Deliveries:
        """Answer a query, or forward it to the callee of a route."""
        if not message.name:
            return [Delivery(session.peer, replace(self._list_all(session), id=message.id))]
        style = session.traits.names
        try:
            name, is_route = fold_prefix(message.name, style)
        except BadName as exc:
            raise Refusal(Reason.NO_SUCH_METHOD, str(exc)) from exc
        if name == HUB_ROUTE:
            methods = tuple(spell_below_route(strip_prefix(HUB_ROUTE, entry), style) for entry in BUILT_IN_DOCS)
            return [Delivery(session.peer, Description(message.id, methods))]
        if name in BUILT_IN_DOCS and not is_route:
            return [Delivery(session.peer, Description(message.id, doc=BUILT_IN_DOCS[name]))]
        method = None if is_route else self._registrations.find(name)
        route = self._registrations.find_route(name)
        allowed = session.access.call
        members = (
            [entry for entry in self._registrations if entry.name.startswith(f"{name}.")]
            if not (method or route)
            else []
        )
        is_prefix = is_route or route or members
        if allowed is not None and not (allowed.may_allow_below(f"{name}.") if is_prefix else allowed.allows(name)):
            raise Refusal(Reason.DENIED, f"you may not call {name}")
        if method is not None:
            return [Delivery(session.peer, Description(message.id, doc=method.registrations[0].doc))]
        if members:
            return [Delivery(session.peer, replace(self._list_namespace(session, name, members), id=message.id))]
        if (route := route or self._registrations.longest_route(name)) is None:
            raise self._registrations.not_found_refusal(name)
        return self._forward_query(session, message, route, name, is_route, now)

    def _forward_query(
        self, session: Session, message: Discover, route: MethodEntry, name: str, is_route: bool, now: float
    ) -> Deliveries:
        """Forward a query to the callee of a route, without the prefix."""
        if message.id in session.calls_made:
            raise bad_arguments(f"call {message.id} is already open")
        if len(session.calls_made) >= self._max_pending:
            raise overloaded("too many calls are open")
        registration = self._registrations.choose_callee(route)
        callee = registration.session
        inner_name = strip_prefix(route.name, name)
        spelling = registration.listed_names.get(inner_name, "")
        if inner_name and not spelling:
            caller_style, callee_style = session.traits.names, callee.traits.names
            spelling = respell(
                message.name.rstrip(caller_style.separators), route.name, name, caller_style, callee_style
            )
            spelling = spelling or spell_below_route(inner_name, callee_style)
            if not spelling:
                raise bad_arguments(f"{callee.traits.protocol} cannot write the name {inner_name}")
        if is_route and inner_name:
            spelling += callee.traits.names.joiner
        timeout = self._pending_calls.default_timeout
        pending = self._pending_calls.open(session, message.id, callee, _DISCOVER_METHOD, timeout, now)
        pending.mark_special(RouteQuery(route.name, name, lists_all=not inner_name))
        session.op = pending.op
        return [Delivery(callee.peer, Discover(pending.op, spelling), pending.op)]

    def forward_description(self, callee: Session, message: Description, now: float) -> Deliveries:
        """Forward the response of a callee about the names below its route."""
        pending = callee.calls_served.get(message.id)
        query = None if pending is None else pending.kind
        if pending is None or not isinstance(query, RouteQuery | HubRouteQuery):
            self._counters.stray += 1
            return []
        callee.op = pending.op
        self._pending_calls.close(pending, now)
        if isinstance(query, HubRouteQuery):
            self._registrations.store_listed_names(
                callee, query.route, dict(_fold_names(message.methods, callee.traits.names))
            )
            return []
        self._counters.results += 1
        if message.doc is not None:
            description = Description(pending.id, doc=message.doc)
        else:
            methods = list(_fold_names(message.methods, callee.traits.names))
            routes = _fold_names(message.routes, callee.traits.names)
            if query.lists_all:
                self._registrations.store_listed_names(callee, query.route, dict(methods))
            description = _fit_description(
                pending.id,
                _respell_names(pending, query, methods, routes=False),
                _respell_names(pending, query, routes, routes=True),
                self._max_list,
                message.more,
            )
        return [Delivery(pending.caller.peer, description, pending.op, pending)]

    def _list_all(self, session: Session) -> Description:
        style, allowed = session.traits.names, session.access.call
        if allowed is not None:
            return self._build_list(style, allowed)
        if self._lists_version != self._registrations.version:
            self._lists.clear()
            self._lists_version = self._registrations.version
        if style not in self._lists:
            self._lists[style] = self._build_list(style, None)
        return self._lists[style]

    def _list_namespace(self, session: Session, prefix: str, members: Iterable[MethodEntry]) -> Description:
        """List a namespace without its prefix: its methods, and routes to namespaces within it (UMQ1-20)."""
        style, allowed = session.traits.names, session.access.call
        methods: list[str] = []
        routes: dict[str, str] = {}
        for method in members:
            name = method.name
            if allowed is not None and not (
                allowed.may_allow_below(f"{name}.") if method.is_route else allowed.allows(name)
            ):
                continue
            inner_name = strip_prefix(prefix, name)
            full_spelling = method.spelling_in(style).rstrip(style.separators)
            spelling = cut_spelling(full_spelling, prefix, name, style) or spell_below_route(inner_name, style)
            segment, is_nested, _ = inner_name.partition(".")
            if is_nested or method.is_route:
                routes.setdefault(segment, _first_segment(spelling, style))
            else:
                methods.append(spelling)
        return _fit_description("", methods, routes.values(), self._max_list)

    def _build_list(self, style: NameStyle, allowed: AllowList | None) -> Description:
        """List all methods and routes. The oldest registrations come first, so that new ones cannot push them out."""
        methods: list[str] = []
        routes: list[str] = []
        namespaces: dict[str, str] = {}
        for method in self._registrations:
            name = method.name
            if method.is_route:
                if allowed is None or allowed.may_allow_below(f"{name}."):
                    routes.append(_route_spelling(method, style))
            elif allowed is None or allowed.allows(name):
                spelling = method.spelling_in(style) or spell_name(name, style)
                methods.append(spelling)
                segment, is_nested, _ = name.partition(".")
                if (
                    style is UMQ
                    and is_nested
                    and segment not in namespaces
                    and self._registrations.find_route(segment) is None
                ):
                    namespaces[segment] = _first_segment(spelling, style)
        hub_route = spell_route(HUB_ROUTE, style)
        description = _fit_description("", methods, routes, self._max_list - len(hub_route) - _NAME_OVERHEAD)
        fitting_namespaces = _fit_names(namespaces.values(), self._max_list // 2)[0]
        return replace(description, routes=(*description.routes, hub_route), namespaces=fitting_namespaces)


def _first_segment(spelling: str, style: NameStyle) -> str:
    """Return the first segment of a name, with the separator that makes it a route."""
    ends = [index for index, character in enumerate(spelling) if index and character in style.separators]
    return spelling[: ends[0] + 1] if ends else spelling and spelling + style.joiner


def _fit_description(
    call_id: str, methods: Iterable[str], routes: Iterable[str], room: int, more: int = 0
) -> Description:
    """Describe as many names as fit; routes take at most half of the room, so neither list hides the other."""
    fitting_routes, room_left, cut_routes = _fit_names(routes, room // 2)
    fitting_methods, _, cut_methods = _fit_names(methods, room - room // 2 + room_left)
    return Description(call_id, fitting_methods, fitting_routes, more=more + cut_routes + cut_methods)


def _fit_names(names: Iterable[str], room: int) -> tuple[tuple[str, ...], int, int]:
    """Return the names that fit, the room left, and the number of names that do not fit; empty names are skipped."""
    fitting: list[str] = []
    omitted = 0
    for name in filter(None, names):
        size = len(name.encode()) + _NAME_OVERHEAD
        if size > room:
            omitted += 1
        else:
            fitting.append(name)
            room -= size
    return tuple(fitting), room, omitted


def _route_spelling(route: MethodEntry, style: NameStyle) -> str:
    spelling = route.spelling_in(style)
    if not spelling:
        return spell_route(route.name, style)
    return spelling if spelling[-1] in style.separators else spelling + style.joiner


def _fold_names(names: Iterable[str], style: NameStyle) -> Iterator[tuple[str, str]]:
    """Yield the folded form and the spelling of each listed name, without invalid names."""
    for name in names:
        try:
            yield fold_prefix(name, style)[0], name
        except BadName:
            continue


def _respell_names(
    pending: PendingCall, query: RouteQuery, listed: Iterable[tuple[str, str]], *, routes: bool
) -> Iterator[str]:
    """Yield the names in the spelling of the requesting peer, without those that it may not call."""
    style, allowed = pending.caller.traits.names, pending.caller.access.call
    is_same = style is pending.callee.traits.names
    write = spell_route if routes else spell_below_route
    for folded, spelling in listed:
        full_name = f"{query.prefix}.{folded}"
        if allowed is None or (allowed.may_allow_below(f"{full_name}.") if routes else allowed.allows(full_name)):
            yield spelling if is_same else write(folded, style)
