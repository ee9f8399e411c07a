"""Calls and questions that reach an application by one of its routes."""

import inspect
from typing import Final

from msgspec.structs import replace

from fiveways.app.app import Route
from fiveways.app.arguments import BadArguments
from fiveways.app.responses import truncate
from fiveways.errors import Reason, Unrepresentable
from fiveways.model.messages import Call, Description, Discover, Failure, HubMessage
from fiveways.wire.payload import Value

_ROUTE_SUFFIX: Final = "."
"""What a listed name ends in that is a route itself."""


def bind_route(call: Call, route: Route) -> Call:
    """Return a call with the arguments of a route's function: the rest of the name, and the body unless it is null."""
    if call.more:
        raise BadArguments(f"{route.name} takes no stream")
    rest = call.method[len(route.name) + 1 :]
    try:
        value = call.body.value()
    except Unrepresentable as exc:
        raise BadArguments(str(exc)) from exc
    return replace(call, body=Value([rest] if value is None else [rest, value]))


async def describe_route(word: Discover, route: Route) -> HubMessage:
    """Return what an application tells about a route, or about one name below it."""
    rest = word.name
    if route.discover is None:
        return (
            Description(word.id)
            if not rest or rest.endswith(_ROUTE_SUFFIX)
            else Description(word.id, doc=route.method.doc)
        )
    try:
        found = route.discover(rest)
        if inspect.isawaitable(found):
            found = await found
    except Exception as exc:  # noqa: BLE001  # whoever asked is told
        return Failure(word.id, Reason.RAISED, truncate(f"{type(exc).__name__}: {exc}"))
    if isinstance(found, str):
        return Description(word.id, doc=found)
    if found is None:
        return Failure(word.id, Reason.NO_SUCH_METHOD, f"there is no method {route.name}.{rest}")
    listed = list(map(str, found))
    routes = tuple(name for name in listed if name.endswith(_ROUTE_SUFFIX))
    return Description(word.id, tuple(name for name in listed if not name.endswith(_ROUTE_SUFFIX)), routes)
