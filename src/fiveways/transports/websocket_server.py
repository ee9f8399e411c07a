"""WebSocket links as server: a socket whose upgrade request was read elsewhere is handed over to picows."""

import asyncio
from collections.abc import Callable
from importlib.metadata import version

import picows.picows
from picows import WSAutoPingStrategy, WSUpgradeResponse, WSUpgradeResponseWithListener

from fiveways.errors import FivewaysError
from fiveways.transports.websocket import QUIET, READ_BUFFER, WebSocketLink
from fiveways.wire.limits import Limits


class UnsupportedPicows(FivewaysError):
    """The installed picows has another interface than the one that the hub uses."""


def server_protocol(make: Callable[[], WebSocketLink], limits: Limits, subprotocol: str = "") -> asyncio.BaseProtocol:
    """Return what takes over a socket whose upgrade request is about to be replayed."""
    headers = {"Sec-WebSocket-Protocol": subprotocol} if subprotocol else None

    def listener(_request: object) -> WSUpgradeResponseWithListener:
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(headers), make())

    # The order of picows' own ws_create_server; a test opens a connection through it.
    return picows.picows.WSProtocol(  # type: ignore[attr-defined, no-any-return]  # it is not in picows' stubs
        None,
        None,
        False,
        listener,
        QUIET,
        True,
        10.0,
        False,
        0.0,
        0.0,
        WSAutoPingStrategy.PING_WHEN_IDLE,
        False,
        limits.max_frame,
        None,
        READ_BUFFER,
    )


def check_picows() -> None:
    """Raise `UnsupportedPicows` if `server_protocol` cannot work: picows does not promise to keep its WSProtocol.

    Without this the hub would start, and every WebSocket would fail. It needs a running event loop.
    """
    try:
        server_protocol(_no_link, Limits())
    except (AttributeError, TypeError) as exc:
        raise UnsupportedPicows(
            f"the hub cannot use picows {version('picows')} ({exc}); install a version that the package allows: "
            "pip install --upgrade 'fiveways[hub]'"
        ) from exc


def _no_link() -> WebSocketLink:
    raise AssertionError
