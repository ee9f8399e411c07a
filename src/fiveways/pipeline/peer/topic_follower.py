"""Subscription that runs in a thread of the driver, so that nothing is missed between micro-batches."""

import threading
import time
from contextlib import suppress
from typing import Final

from fiveways.client.sync import SyncPeer
from fiveways.client.sync_handles import SyncEvent, SyncSubscription
from fiveways.errors import FivewaysError, Unrepresentable
from fiveways.pipeline.peer.options import DataSourceOptions
from fiveways.pipeline.peer.row_buffer import RowBuffer
from fiveways.pipeline.peer.rows import to_json

_POLL_INTERVAL: Final = 0.2
"""Seconds between two checks of a waiting thread for the end of the query."""
_RESUBSCRIBE_DELAY: Final = 0.5
"""Seconds between the end of a subscription and the next one."""
MAX_WAITING_EVENTS: Final = 10_000
"""Events that wait in the client; the row buffer is larger."""


class TopicFollower:
    """One connection and one subscription, from `open` to `close`."""

    def __init__(self, options: DataSourceOptions, buffer: RowBuffer) -> None:
        self.error: FivewaysError | None = None
        """Error that ended the subscription."""
        self._options = options
        self._buffer = buffer
        self._closing = threading.Event()
        self._peer: SyncPeer | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Connect, subscribe and start the thread, once; raise FivewaysError if the hub is unreachable or refuses."""
        if self._peer is not None:
            return
        peer = self._options.connect()
        try:
            events = self._subscribe(peer)
        except BaseException:
            peer.close()
            raise
        self._peer = peer
        self._thread = threading.Thread(target=self._follow, args=(peer, events), name="fiveways-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; rows stay in the buffer."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(10 * _POLL_INTERVAL)
        if self._peer is not None:
            self._peer.close()

    def _subscribe(self, peer: SyncPeer) -> SyncSubscription:
        return peer.subscribe(
            self._options.topic_pattern(), when_full=self._options.when_full, max_waiting=MAX_WAITING_EVENTS
        )

    def _follow(self, peer: SyncPeer, events: SyncSubscription) -> None:
        try:
            while not self._closing.is_set():
                self._read_events(events)
                # The topic was closed, or policy `unsubscribe` ended a slow consumer. A stream has no end: resubscribe.
                self._buffer.record_loss(gap=True)
                if not self._closing.wait(_RESUBSCRIBE_DELAY):
                    events = self._subscribe(peer)
        except FivewaysError as exc:
            self.error = exc
        except Exception as exc:  # noqa: BLE001  a dead thread would look like a topic without events
            self.error = FivewaysError(f"the subscription ended: {type(exc).__name__}: {exc}")

    def _read_events(self, events: SyncSubscription) -> None:
        restored = 0
        while not self._closing.is_set():
            event = events.next(_POLL_INTERVAL)
            if event is not None:
                gap, restored = events.restored > restored, events.restored
                self._buffer_event(event, gap=gap)
            elif events.is_over:
                return
        with suppress(FivewaysError):  # the connection may be closed
            events.close()

    def _buffer_event(self, event: SyncEvent, *, gap: bool) -> None:
        try:
            text = to_json(event.data)
        except Unrepresentable:
            self._buffer.record_loss(event.missed + 1, gap=gap)
        else:
            self._buffer.put(event.topic, text, time.time_ns(), event.missed, gap=gap)
