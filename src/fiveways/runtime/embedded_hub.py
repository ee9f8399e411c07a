"""A hub inside another program."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from fiveways.app.app import App
from fiveways.errors import FivewaysError
from fiveways.extras import require
from fiveways.runtime.server import Server
from fiveways.settings.load import read_settings

_NO_SETTINGS: Final[Mapping[str, object]] = {}


class EmbeddedHub:
    """A hub in the running event loop, between `async with` and its end. `fiveways.serve` creates it."""

    def __init__(
        self,
        app: App | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 7500,
        config: Path | str | None = None,
        settings: Mapping[str, object] = _NO_SETTINGS,
    ) -> None:
        require("hub", "fiveways.serve")
        flags = {**settings, "server.host": host, "server.port": port}
        self._server = Server(read_settings(config, {}, flags).settings, app)

    async def __aenter__(self) -> Self:
        await self._server.start()
        self._server.log_started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._server.stop()

    @property
    def urls(self) -> list[tuple[str, str]]:
        """The URLs of the hub, each with its protocol, or with the name of a page such as `metrics`."""
        return list(self._server.urls)

    def url(self, name: str) -> str:
        """Return the URL of a protocol (`umq`, `umq36`, `lrpm`, `nq`, `mqtt-rpc`), or of a page such as `metrics`.

        A URL scheme such as `nq+http` selects one of several transports.

        Raises:
            FivewaysError: the hub does not serve it; the message lists what it serves.
        """
        for label, url in self._server.urls:
            if name in {label, urlsplit(url).scheme}:
                return url
        names = sorted({label for label, _ in self._server.urls})
        raise FivewaysError(f"the hub does not serve {name!r}; it serves {', '.join(names)}")


def serve(
    app: App | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 7500,
    config: Path | str | None = None,
    settings: Mapping[str, object] = _NO_SETTINGS,
) -> EmbeddedHub:
    """Return a hub to run in this program, as an async context manager.

    Environment variables are not read, so that programs and their tests do not depend on them.

    Args:
        app: the application whose methods the hub serves in its own process.
        host: the address to listen on. Beyond loopback the settings must have an identity with a token.
        port: the port for HTTP and WebSocket; 0 takes a free one.
        config: a TOML file with settings.
        settings: settings by their dotted keys, such as `{"store.path": "hub.db"}`; they override the file.

    Raises:
        FivewaysError: a setting is unknown or has a wrong value, or the extra `hub` is not installed. Entering the
            context raises it if the address, the port or the store is not available.
    """
    return EmbeddedHub(app, host=host, port=port, config=config, settings=settings)
