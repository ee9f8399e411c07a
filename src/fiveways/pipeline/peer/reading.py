"""Topics as tables: the batch that collects for a while, and the stream."""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fiveways.client.handles import SyncEvent, SyncSubscription
from fiveways.client.sync import SyncPeer
from fiveways.pipeline.peer.buffer import Buffer
from fiveways.pipeline.peer.follow import WAITING, Follower
from fiveways.pipeline.peer.options import FOR_COUNT, Options
from fiveways.pipeline.peer.rows import Row, packed, text_of, unpacked

# ruff: noqa: N802  Spark gives the names

Offset: TypeAlias = dict[str, str | int]
_QUIET: Final = 0.3
"""Seconds without a further event after which all retained values have come."""
_AT_ONCE: Final = 1.0
"""Seconds that a stream collects for `availableNow`, unless `seconds` says otherwise."""


def new_name() -> str:
    """Return a name for one more reader."""
    return secrets.token_hex(6)


class TopicReader(DataSourceReader):
    """A batch: what comes within `seconds`, or `count` rows, or, without these, the values that are retained."""

    def __init__(self, options: Options) -> None:
        self._options = options
        options.pattern()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the one there is: a subscription cannot be divided."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Collect, in a worker."""
        options, reader = self._options, new_name()
        restored = 0
        with (
            options.connect() as peer,
            peer.subscribe(options.pattern(), when_full=options.when_full, max_waiting=WAITING) as events,
        ):
            for seq, event in enumerate(_collected(options, peer, events), 1):
                gap, restored = events.restored > restored, events.restored
                yield Row(event.topic, text_of(event.data), time.time_ns(), event.missed, gap, reader, seq)


def _collected(options: Options, peer: SyncPeer, events: SyncSubscription) -> Iterator[SyncEvent]:
    seconds, count = options.seconds, options.count
    if seconds is None and count is None:
        # They come right behind the grant, so that they are on their way before the answer to this.
        peer.call("hub.ping")
        while (event := events.next(_QUIET)) is not None:
            yield event
        return
    until = time.monotonic() + (FOR_COUNT if seconds is None else seconds)
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

    def __init__(self, options: Options) -> None:
        self._options = options
        options.pattern()
        self._name = new_name()
        self._buffer = Buffer(self._name, options.buffer_rows, options.buffer_bytes)
        self._follower = Follower(options, self._buffer)
        self._target: int | None = None
        """The last row there is, for a query that ends."""
        self._lost: dict[str, int] = {}
        """Rows of readers before us that Spark asked for and nobody has any more."""

    def __reduce__(self) -> tuple[type["TopicStreamReader"], tuple[Options]]:
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
        self._buffer.forget(known)
        newest = self._buffer.latest if self._target is None else self._target
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
            self._buffer.wait_for(count, FOR_COUNT if seconds is None else seconds)
            self._target = min(count, self._buffer.latest)
        else:
            time.sleep(_AT_ONCE if seconds is None else seconds)
            self._target = self._buffer.latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the rows themselves: a task that is run again gets the same ones."""
        if end["reader"] != self._name:
            self._lost[str(end)] = int(end["seq"]) - (int(start["seq"]) if start["reader"] == end["reader"] else 0)
            return []
        rows = self._buffer.between(self._position(start), int(end["seq"]))
        if rows and start["reader"] != self._name:
            rows[0] = rows[0]._replace(missed=rows[0].missed + sum(self._lost.values()), gap=True)
        step = self._options.partition_rows
        return [InputPartition(packed(rows[first : first + step])) for first in range(0, len(rows), step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Unpack one, in a worker."""
        yield from unpacked(partition.value)

    def commit(self, end: Offset) -> None:
        """Let go what Spark is done with."""
        if end["reader"] == self._name:
            self._buffer.forget(int(end["seq"]))

    def stop(self) -> None:
        """Part from the hub."""
        self._follower.close()

    def _offset(self, seq: int) -> Offset:
        return {"reader": self._name, "seq": seq}

    def _position(self, offset: Offset) -> int:
        """Return up to which of our own rows an offset goes."""
        return int(offset["seq"]) if offset["reader"] == self._name else 0
