"""Check that peers leave no objects behind: for every test with many sessions or connections."""

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
from fiveways.protocols.lrpm.conversation import JsonFastPath, LrpmConversation
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
    """How many objects of sessions there are; asyncio keeps cancelled timers for a while."""
    return Counter(
        name
        for each in gc.get_objects()
        if (name := type(each).__name__) in KINDS and not (type(each) is asyncio.TimerHandle and each.cancelled())
    )


@asynccontextmanager
async def nothing_left(peers: int, *, collects: bool = True) -> AsyncIterator[None]:
    """Wait until there are as many objects of sessions as before, but for those of fewer than half of the peers.

    Without `collects` that must happen without the garbage collector, so reference cycles fail too. Test clients in
    this process have cycles of their own, and are counted as well while something refers to them.
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
                while left():  # noqa: ASYNC110  nobody tells of it
                    await asyncio.sleep(0.05)
        found = left()
        assert not found, found
    finally:
        gc.enable()
