"""Publishers of rows: the hub confirms each publication, or the task fails."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import BooleanType, DataType, StringType, StructType

from fiveways.client.connect import connect
from fiveways.client.loop_thread import LoopThread
from fiveways.client.peer import Peer
from fiveways.errors import CallError, FivewaysError, Malformed, NotExecuted
from fiveways.pipeline.peer.options import BadOption, DataSourceOptions
from fiveways.pipeline.peer.topic_reader import new_reader_id
from fiveways.wire import strict_json
from fiveways.wire.payload import Json

_COLUMNS: Final = ("topic", "data", "retain")
_MAX_UNCONFIRMED: Final = 256
"""Maximum publications without confirmation; they are sent in order."""
_QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"
"""Local properties that identify the stream and the batch of a task."""


class NotPublished(FivewaysError):
    """A row was not published, or its publication was not confirmed."""


@dataclass(frozen=True, slots=True)
class PublishCommit(WriterCommitMessage):
    """Result of one task."""

    rows: int


@dataclass(frozen=True, slots=True)
class Publication:
    """One row to publish."""

    number: int
    """Number of the row in its partition, from 1."""
    topic: str
    data: object
    retain: bool


class Publisher:
    """Publisher of the rows of a partition, in a worker."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise BadOption('a topic cannot be overwritten; use .mode("append")')
        _check_columns(options, schema)
        self._options = options
        self._is_text = "data" in schema.names and isinstance(schema["data"].dataType, StringType)
        self._run_id = new_reader_id()
        """Id shared by all tasks of a batch and their retries."""

    def publish(self, rows: Iterator[Row]) -> PublishCommit:
        """Publish all rows; raise NotPublished or an error of the client unless the hub confirms each of them."""
        publications = map(self._publication, count(1), rows)
        chunk = list(islice(publications, _MAX_UNCONFIRMED))
        if not chunk:
            return PublishCommit(0)
        published = 0
        loop = LoopThread()
        peer: Peer | None = None
        try:
            peer = loop.run(self._connect())
            while chunk:
                loop.run(_publish_all(peer, chunk, self._options.timeout))
                published += len(chunk)
                chunk = list(islice(publications, _MAX_UNCONFIRMED))
        finally:
            loop.stop(_close_nothing if peer is None else peer.close)
        return PublishCommit(published)

    async def _connect(self) -> Peer:
        options = self._options
        return await connect(
            options.url,
            token=options.token,
            identity=options.identity,
            secret=options.secret,
            timeout=options.timeout,
        )

    def _publication(self, number: int, row: Row) -> Publication:
        values = row.asDict(recursive=True)
        topic = values.get("topic", self._options.topic)
        if not topic:
            raise NotPublished(f"row {number} of its partition has no topic")
        data = values.get("data")
        if self._is_text and data is not None:
            data = _parse_json(data, number)
        elif isinstance(data, bytearray):
            data = bytes(data)
        if self._options.ids:
            data = {"id": f"{self._task_name()}-{number}", "data": data}
        retain = values.get("retain")
        return Publication(number, topic, data, self._options.retain if retain is None else bool(retain))

    def _task_name(self) -> str:
        """Return an id of the task that is the same in a retry."""
        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        query, batch = (
            None if task is None else task.getLocalProperty(name) for name in (_QUERY_ID_PROPERTY, _BATCH_ID_PROPERTY)
        )
        return f"{query}-{batch}-{partition}" if query and batch else f"{self._run_id}-{partition}"


def _check_columns(options: DataSourceOptions, schema: StructType) -> None:
    """Reject unusable columns before a job runs."""
    listed = ", ".join(schema.names) or "none"
    if "data" not in schema.names:
        raise BadOption(f"there is no column data to publish; the columns are {listed}")
    if "topic" not in schema.names and not options.default_topic():
        raise BadOption(f'there is no column topic and no .option("topic", ...) for all rows; the columns are {listed}')
    unknown = [name for name in schema.names if name not in _COLUMNS]
    if unknown:
        raise BadOption(f"column {unknown[0]} would be lost; select only {', '.join(_COLUMNS)}")
    required: dict[str, type[DataType]] = {"topic": StringType, "retain": BooleanType}
    for name, kind in required.items():
        if name in schema.names and not isinstance(schema[name].dataType, kind):
            raise BadOption(f"column {name} is {schema[name].dataType.simpleString()}, not {kind.typeName()}")


def _parse_json(text: str, number: int) -> object:
    try:
        raw = text.strip().encode()
        strict_json.check(raw)
    except (Malformed, UnicodeEncodeError) as exc:
        raise NotPublished(f"row {number} of its partition: data is {exc}; use to_json() to encode a column") from exc
    return Json(raw).value()


async def _publish_all(peer: Peer, publications: Iterable[Publication], max_seconds: float) -> None:
    """Publish in order, wait for all confirmations, and raise the first failure."""
    deadline = time.monotonic() + max_seconds
    tasks = [asyncio.create_task(_publish_one(peer, publication, deadline)) for publication in publications]
    await asyncio.wait(tasks)
    for task in tasks:
        await task


async def _publish_one(peer: Peer, publication: Publication, deadline: float) -> None:
    while True:
        try:
            await peer.publish(publication.topic, publication.data, retain=publication.retain)
        except CallError as exc:
            # An overloaded hub says when to retry, and has certainly not published the row.
            left = deadline - time.monotonic()
            if isinstance(exc, NotExecuted) and exc.retry_after is not None and exc.retry_after < left:
                await asyncio.sleep(exc.retry_after)
                continue
            raise _publish_error(publication, exc) from exc
        except FivewaysError as exc:
            raise _publish_error(publication, exc) from exc
        else:
            return


def _publish_error(publication: Publication, cause: FivewaysError) -> NotPublished:
    return NotPublished(
        f"row {publication.number} of its partition, on {publication.topic}, was not published: {cause}"
    )


async def _close_nothing() -> None:
    """Do nothing; there is no connection to close."""


class TopicWriter(DataSourceWriter):
    """Publisher of a batch."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        self._publisher = Publisher(options, schema, overwrite)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Publish one partition."""
        return self._publisher.publish(iterator)


class TopicStreamWriter(DataSourceStreamWriter):
    """Publisher of a stream, one micro-batch at a time."""

    def __init__(self, options: DataSourceOptions, schema: StructType, overwrite: bool) -> None:
        self._publisher = Publisher(options, schema, overwrite)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Publish one partition of a micro-batch."""
        return self._publisher.publish(iterator)
