"""Calls and discovery requests for routes of an application."""

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
"""Suffix of a listed name that is a route."""


def bind_route(call: Call, route: Route) -> Call:
    """Return a call with the arguments of a route's function: the rest of the name, and the body unless it is null."""
    if call.more:
        raise BadArguments(f"{route.name} does not accept a streamed request")
    rest = call.method[len(route.name) + 1 :]
    try:
        value = call.body.value()
    except Unrepresentable as exc:
        raise BadArguments(str(exc)) from exc
    return replace(call, body=Value([rest] if value is None else [rest, value]))


async def describe_route(request: Discover, route: Route) -> HubMessage:
    """Return the description of a route, or of one name below it."""
    rest = request.name
    if route.discover is None:
        return (
            Description(request.id)
            if not rest or rest.endswith(_ROUTE_SUFFIX)
            else Description(request.id, doc=route.method.doc)
        )
    try:
        description = route.discover(rest)
        if inspect.isawaitable(description):
            description = await description
    except Exception as exc:  # noqa: BLE001  # the requester gets it
        return Failure(request.id, Reason.RAISED, truncate(f"{type(exc).__name__}: {exc}"))
    if isinstance(description, str):
        return Description(request.id, doc=description)
    if description is None:
        return Failure(request.id, Reason.NO_SUCH_METHOD, f"there is no method {route.name}.{rest}")
    listed_names = list(map(str, description))
    routes = tuple(name for name in listed_names if name.endswith(_ROUTE_SUFFIX))
    return Description(request.id, tuple(name for name in listed_names if not name.endswith(_ROUTE_SUFFIX)), routes)
