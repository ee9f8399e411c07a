"""Topics as tables: the batch that collects for a while, and the stream."""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fiveways.client.sync import SyncPeer
from fiveways.client.sync_handles import SyncEvent, SyncSubscription
from fiveways.pipeline.peer.options import COUNT_TIMEOUT, DataSourceOptions
from fiveways.pipeline.peer.row_buffer import RowBuffer
from fiveways.pipeline.peer.rows import TopicRow, decode_rows, encode_rows, to_json
from fiveways.pipeline.peer.topic_follower import MAX_WAITING_EVENTS, TopicFollower

# ruff: noqa: N802  Spark gives the names

Offset: TypeAlias = dict[str, str | int]
_RETAINED_IDLE_TIMEOUT: Final = 0.3
"""Seconds without a further event after which all retained values have come."""
_AVAILABLE_NOW_SECONDS: Final = 1.0
"""Seconds that a stream collects for `availableNow`, unless `seconds` says otherwise."""


def new_reader_id() -> str:
    """Return a name for one more reader."""
    return secrets.token_hex(6)


class TopicReader(DataSourceReader):
    """A batch: what comes within `seconds`, or `count` rows, or, without these, the values that are retained."""

    def __init__(self, options: DataSourceOptions) -> None:
        self._options = options
        options.topic_pattern()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the one there is: a subscription cannot be divided."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[TopicRow]:
        """Collect, in a worker."""
        options, reader = self._options, new_reader_id()
        restored = 0
        with (
            options.connect() as peer,
            peer.subscribe(
                options.topic_pattern(), when_full=options.when_full, max_waiting=MAX_WAITING_EVENTS
            ) as events,
        ):
            for seq, event in enumerate(_collect_events(options, peer, events), 1):
                gap, restored = events.restored > restored, events.restored
                yield TopicRow(event.topic, to_json(event.data), time.time_ns(), event.missed, gap, reader, seq)


def _collect_events(options: DataSourceOptions, peer: SyncPeer, events: SyncSubscription) -> Iterator[SyncEvent]:
    seconds, count = options.seconds, options.count
    if seconds is None and count is None:
        # They come right behind the grant, so that they are on their way before the answer to this.
        peer.call("hub.ping")
        while (event := events.next(_RETAINED_IDLE_TIMEOUT)) is not None:
            yield event
        return
    until = time.monotonic() + (COUNT_TIMEOUT if seconds is None else seconds)
    found = 0
    while (left := until - time.monotonic()) > 0 and found != count and not events.is_over:
        event = events.next(left)
        if event is not None:
            found += 1
            yield event


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: what came since the last micro-batch, held on the driver until Spark is done with it.

    An offset names its reader, since a new one cannot give what an earlier one had.
    """

    def __init__(self, options: DataSourceOptions) -> None:
        self._options = options
        options.topic_pattern()
        self._reader_id = new_reader_id()
        self._buffer = RowBuffer(self._reader_id, options.buffer_rows, options.buffer_bytes)
        self._follower = TopicFollower(options, self._buffer)
        self._final_seq: int | None = None
        """The last row there is, for a query that ends."""
        self._lost_rows: dict[str, int] = {}
        """Rows of readers before us that Spark asked for and nobody has any more."""

    def __reduce__(self) -> tuple[type["TopicStreamReader"], tuple[DataSourceOptions]]:
        """Travel to the workers without connection or rows: there it only unpacks partitions."""
        return TopicStreamReader, (self._options,)

    def initialOffset(self) -> Offset:
        """Begin to follow the topic."""
        self._follower.open()
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one micro-batch takes."""
        return ReadMaxRows(self._options.batch_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far the next micro-batch may go; `start` if there is nothing new."""
        self._follower.open()
        known = self._position(start)
        # Spark asks for more when it is done with `start`, but commits that only when there is more: it has to go now,
        # or a full buffer would never have room again.
        self._buffer.discard(known)
        newest = self._buffer.latest if self._final_seq is None else self._final_seq
        if newest <= known:
            if self._follower.error is not None:
                raise self._follower.error
            return start
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, known + limit.max_rows)
        return self._offset(newest)

    def reportLatestOffset(self) -> Offset | None:
        """Return how far we are ourselves, for the query's progress."""
        return self._offset(self._buffer.latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Collect for a while, and let that be all."""
        self._follower.open()
        seconds, count = self._options.seconds, self._options.count
        if count is not None:
            self._buffer.wait_for(count, COUNT_TIMEOUT if seconds is None else seconds)
            self._final_seq = min(count, self._buffer.latest)
        else:
            time.sleep(_AVAILABLE_NOW_SECONDS if seconds is None else seconds)
            self._final_seq = self._buffer.latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the rows themselves: a task that is run again gets the same ones."""
        if end["reader"] != self._reader_id:
            self._lost_rows[str(end)] = int(end["seq"]) - (int(start["seq"]) if start["reader"] == end["reader"] else 0)
            return []
        rows = self._buffer.between(self._position(start), int(end["seq"]))
        if rows and start["reader"] != self._reader_id:
            rows[0] = rows[0]._replace(missed=rows[0].missed + sum(self._lost_rows.values()), gap=True)
        step = self._options.partition_rows
        return [InputPartition(encode_rows(rows[first : first + step])) for first in range(0, len(rows), step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Unpack one, in a worker."""
        yield from decode_rows(partition.value)

    def commit(self, end: Offset) -> None:
        """Let go what Spark is done with."""
        if end["reader"] == self._reader_id:
            self._buffer.discard(int(end["seq"]))

    def stop(self) -> None:
        """Part from the hub."""
        self._follower.close()

    def _offset(self, seq: int) -> Offset:
        return {"reader": self._reader_id, "seq": seq}

    def _position(self, offset: Offset) -> int:
        """Return up to which of our own rows an offset goes."""
        return int(offset["seq"]) if offset["reader"] == self._reader_id else 0
