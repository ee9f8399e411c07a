"""A connection to a hub, as the options of a command describe it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fiveways.cli.endings import UsageError
from fiveways.cli.jsonio import read_file
from fiveways.client.connect import connect
from fiveways.client.handshake import BadLogin
from fiveways.client.peer import Peer
from fiveways.client.urls import BadUrl
from fiveways.errors import CallTimeout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Access:
    """Where the hub is, and who asks."""

    url: str
    token: str = field(default="", repr=False)
    identity: str = ""
    secret: str = field(default="", repr=False)

    @asynccontextmanager
    async def peer(self, patience: float, *, reconnect: bool = False) -> AsyncIterator[Peer]:
        """Open a connection whose requests wait `patience` seconds.

        Raises:
            UsageError: no connection could be opened to what was given.
        """
        token, identity, secret = self.token, self.identity, self.secret
        try:
            opening = connect(
                self.url, token=token, identity=identity, secret=secret, timeout=patience, reconnect=reconnect
            )
        except (BadUrl, BadLogin) as exc:
            raise UsageError(str(exc)) from exc
        async with opening as peer:
            yield peer

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[Peer]:
        """Open a connection for so long, handshake and all: a script counts on it.

        Raises:
            CallTimeout: the time is over.
        """
        limit = asyncio.timeout(seconds)
        try:
            async with limit, self.peer(seconds) as peer:
                yield peer
        except TimeoutError:
            if not limit.expired():
                raise
            raise CallTimeout(f"no answer within {seconds:g} s") from None


def access(
    url: str, token: str = "", token_file: Path | None = None, identity: str = "", secret_file: Path | None = None
) -> Access:
    """Return what the options say, with the files read.

    Raises:
        UsageError: they do not fit together.
    """
    secret = "" if secret_file is None else _secret(secret_file)
    if bool(identity) != bool(secret):
        raise UsageError("--identity and --secret-file belong together")
    # A file is named for one command, the variable perhaps for all.
    return Access(url, _secret(token_file) if token_file is not None else token, identity, secret)


def _secret(path: Path) -> str:
    try:
        text = read_file(path).decode().strip()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    if not text:
        raise UsageError(f"{path} is empty")
    return text


def run(task: Coroutine[Any, Any, T]) -> T:
    """Run a command's work in an event loop of its own."""
    return asyncio.run(task)
