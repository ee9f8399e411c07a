"""The format `fiveways`, as Spark sees it."""

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from fiveways.pipeline.peer.options import BadOption, Options
from fiveways.pipeline.peer.publishing import TopicStreamWriter, TopicWriter
from fiveways.pipeline.peer.reading import TopicReader, TopicStreamReader
from fiveways.pipeline.peer.rows import SCHEMA

# ruff: noqa: N802  Spark gives the names

_FIELDS: Final = tuple(tuple(column.split()) for column in SCHEMA.split(", "))


class FivewaysDataSource(DataSource):
    """Topics of a hub as rows, and rows as publications; `spark.dataSource.register(FivewaysDataSource)`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._said = Options.read(options)

    @classmethod
    def name(cls) -> str:
        """Return what stands in `.format(...)`."""
        return "fiveways"

    def schema(self) -> str:
        """Return the columns of what is read."""
        self._said.pattern()
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return who reads a batch."""
        _check(schema)
        reader = TopicReader(self._said)
        self._said.check_hub()
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return who reads a stream."""
        _check(schema)
        return TopicStreamReader(self._said)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return who publishes a batch."""
        writer = TopicWriter(self._said, schema, overwrite)
        self._said.check_hub()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return who publishes a stream."""
        writer = TopicStreamWriter(self._said, schema, overwrite)
        self._said.check_hub()
        return writer


def _check(schema: StructType) -> None:
    """Refuse columns of the user's own: what a topic carries is in `data`, for from_json to take apart."""
    if tuple((field.name, field.dataType.simpleString().replace("bigint", "long")) for field in schema) != _FIELDS:
        raise BadOption(
            f"the format has its own columns ({SCHEMA}): leave .schema(...) out, and use from_json(data, ...)"
        )
