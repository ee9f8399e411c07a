"""Leak checks for tests with many sessions or connections."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from picows import WSTransport

from fiveways.hub.session import Session
from fiveways.hub.traits import Credentials
from fiveways.journal.frame_buffer import ConnectionRecorder
from fiveways.protocols.lrpm.conversation import LrpmConversation
from fiveways.protocols.lrpm.fastpath import JsonFastPath
from fiveways.protocols.nq.conversation import NqConversation
from fiveways.protocols.umq.conversation import Umq1Conversation
from fiveways.protocols.umq36.conversation import Umq36Conversation
from fiveways.runtime.frame_recorder import FrameRecorder
from fiveways.runtime.outbox import Outbox
from fiveways.runtime.peer_connection import PeerConnection
from fiveways.runtime.resumable_session import ResumableSession
from fiveways.runtime.session_connection import SessionConnection
from fiveways.transports.http_protocol import HttpProtocol
from fiveways.transports.websocket import WebSocketLink

KINDS: Final = frozenset(
    kind.__name__
    for kind in (
        *(Credentials, Session, PeerConnection, ResumableSession, SessionConnection, Outbox),
        *(FrameRecorder, ConnectionRecorder, HttpProtocol, WebSocketLink, WSTransport, asyncio.TimerHandle),
        *(JsonFastPath, LrpmConversation, NqConversation, Umq1Conversation, Umq36Conversation),
    )
)
"""Types of the objects that a session and its connection consist of."""
_PATIENCE: Final = 30.0


def alive() -> Counter[str]:
    """Return the numbers of live objects of sessions, without timers that asyncio has cancelled and not yet dropped."""
    return Counter(
        name
        for instance in gc.get_objects()
        if (name := type(instance).__name__) in KINDS
        and not (type(instance) is asyncio.TimerHandle and instance.cancelled())
    )


@asynccontextmanager
async def nothing_left(peers: int, *, collects: bool = True) -> AsyncIterator[None]:
    """Wait until the numbers of session objects are back at their start, up to fewer than half of the peers.

    Without `collects` that must happen without the garbage collector, so reference cycles fail too. Test clients in
    this process have cycles of their own; they count while something refers to them.
    """
    gc.collect()
    before = alive()

    def left() -> list[str]:
        if collects:
            gc.collect()
        # The hub has a few timers of its own.
        return [f"{count} {name}" for name, count in (alive() - before).items() if count >= peers // 2]

    gc.disable()
    try:
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while left():  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.05)
        leftovers = left()
        assert not leftovers, leftovers
    finally:
        gc.enable()
