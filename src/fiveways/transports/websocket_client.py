"""Opening WebSocket connections to a hub."""

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from picows import WSHandshakeError, ws_connect

from fiveways.transports.address import http_error
from fiveways.transports.base import Receiver, SpoolFactory
from fiveways.transports.stale_file_descriptors import forget_stale_handle
from fiveways.transports.websocket import PICOWS_LOG, READ_BUFFER_SIZE, WebSocketLink
from fiveways.wire.limits import Limits


async def open_websocket(
    url: str,
    receive: Callable[[WebSocketLink], Receiver],
    *,
    limits: Limits,
    spools: SpoolFactory | None = None,
    subprotocol: str = "",
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  the error text contains it
) -> WebSocketLink:
    """Connect to `url`; raise ConnectionError or OSError with an error text."""
    extra = {**(headers or {}), **({"Sec-WebSocket-Protocol": subprotocol} if subprotocol else {})}
    link = WebSocketLink(receive, limits, spools, is_client=True)
    try:
        await asyncio.wait_for(
            ws_connect(
                lambda *_: link,
                url,
                websocket_handshake_timeout=timeout,
                logger_name=PICOWS_LOG,
                max_frame_size=limits.max_frame,
                extra_headers=extra,
                read_buffer_init_size=READ_BUFFER_SIZE,
                enable_auto_pong=False,
            ),
            timeout,
        )
    except TimeoutError:
        raise ConnectionError(f"{url} did not answer within {timeout:g} seconds") from None
    except WSHandshakeError as exc:
        raise ConnectionRefusedError(_refusal(url, exc)) from exc
    except RuntimeError as exc:
        if not forget_stale_handle(exc):
            raise
        raise ConnectionAbortedError(f"cannot connect to {url}: {exc}") from exc
    if not link.has_opened:
        # picows does not report a connection that ends during the handshake.
        raise ConnectionResetError(f"{url} closed the connection before it was open")
    return link


def _refusal(url: str, error: WSHandshakeError) -> str:
    """Return the reason why the server refused the WebSocket."""
    parts = urlsplit(url)
    # picows parses no status from an HTTP/1.0 response, which no hub sends.
    status = None if error.response is None else error.response.status.value
    return http_error(parts.netloc, parts.path, status, error.raw_body or b"")
