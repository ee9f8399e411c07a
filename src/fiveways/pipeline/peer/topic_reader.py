"""Readers of topics, for a batch and for a stream."""

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

# ruff: noqa: N802  names of Spark's API

Offset: TypeAlias = dict[str, str | int]
_RETAINED_IDLE_TIMEOUT: Final = 0.3
"""Seconds without an event after which all retained values have arrived."""
_AVAILABLE_NOW_SECONDS: Final = 1.0
"""Default of `seconds` for a stream with `availableNow`."""


def new_reader_id() -> str:
    """Return a random id for a reader."""
    return secrets.token_hex(6)


class TopicReader(DataSourceReader):
    """Reader of a batch: events for `seconds`, or `count` events, or without both options the retained values."""

    def __init__(self, options: DataSourceOptions) -> None:
        self._options = options
        options.topic_pattern()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition, because a subscription cannot be divided."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[TopicRow]:
        """Collect the events, in a worker."""
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
        # The hub sends retained values directly after the subscription is granted, so before the response to this call.
        peer.call("hub.ping")
        while (event := events.next(_RETAINED_IDLE_TIMEOUT)) is not None:
            yield event
        return
    until = time.monotonic() + (COUNT_TIMEOUT if seconds is None else seconds)
    collected = 0
    while (left := until - time.monotonic()) > 0 and collected != count and not events.is_over:
        event = events.next(left)
        if event is not None:
            collected += 1
            yield event


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: events since the last micro-batch, kept on the driver until Spark commits them.

    An offset names its reader, because a new reader does not have the rows of an earlier one.
    """

    def __init__(self, options: DataSourceOptions) -> None:
        self._options = options
        options.topic_pattern()
        self._reader_id = new_reader_id()
        self._buffer = RowBuffer(self._reader_id, options.buffer_rows, options.buffer_bytes)
        self._follower = TopicFollower(options, self._buffer)
        self._final_seq: int | None = None
        """Number of the last row, for a query that ends."""
        self._lost_rows: dict[str, int] = {}
        """Rows of earlier readers that Spark requested and that are lost."""

    def __reduce__(self) -> tuple[type["TopicStreamReader"], tuple[DataSourceOptions]]:
        """Pickle without connection and rows; in workers a reader only decodes partitions."""
        return TopicStreamReader, (self._options,)

    def initialOffset(self) -> Offset:
        """Start the subscription."""
        self._follower.open()
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum rows of a micro-batch."""
        return ReadMaxRows(self._options.batch_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch, or `start` if there are no new rows."""
        self._follower.open()
        processed = self._position(start)
        # Spark has processed `start` when it asks for more, but commits it only if there is more. Without this discard
        # a full buffer would stay full.
        self._buffer.discard(processed)
        newest = self._buffer.latest if self._final_seq is None else self._final_seq
        if newest <= processed:
            if self._follower.error is not None:
                raise self._follower.error
            return start
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, processed + limit.max_rows)
        return self._offset(newest)

    def reportLatestOffset(self) -> Offset | None:
        """Return the offset of the newest row, for the query's progress."""
        return self._offset(self._buffer.latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Collect events for `seconds` or up to `count`, and end there."""
        self._follower.open()
        seconds, count = self._options.seconds, self._options.count
        if count is not None:
            self._buffer.wait_for(count, COUNT_TIMEOUT if seconds is None else seconds)
            self._final_seq = min(count, self._buffer.latest)
        else:
            time.sleep(_AVAILABLE_NOW_SECONDS if seconds is None else seconds)
            self._final_seq = self._buffer.latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return partitions that contain their rows, so that a repeated task reads the same ones."""
        if end["reader"] != self._reader_id:
            self._lost_rows[str(end)] = int(end["seq"]) - (int(start["seq"]) if start["reader"] == end["reader"] else 0)
            return []
        rows = self._buffer.between(self._position(start), int(end["seq"]))
        if rows and start["reader"] != self._reader_id:
            rows[0] = rows[0]._replace(missed=rows[0].missed + sum(self._lost_rows.values()), gap=True)
        step = self._options.partition_rows
        return [InputPartition(encode_rows(rows[first : first + step])) for first in range(0, len(rows), step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode a partition, in a worker."""
        yield from decode_rows(partition.value)

    def commit(self, end: Offset) -> None:
        """Discard rows that Spark has processed."""
        if end["reader"] == self._reader_id:
            self._buffer.discard(int(end["seq"]))

    def stop(self) -> None:
        """Close the connection."""
        self._follower.close()

    def _offset(self, seq: int) -> Offset:
        return {"reader": self._reader_id, "seq": seq}

    def _position(self, offset: Offset) -> int:
        """Return the number of the last own row before an offset."""
        return int(offset["seq"]) if offset["reader"] == self._reader_id else 0
