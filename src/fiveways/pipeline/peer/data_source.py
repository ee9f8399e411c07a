"""The format `fiveways` for Spark's data source API."""

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

from fiveways.pipeline.peer.options import BadOption, DataSourceOptions
from fiveways.pipeline.peer.rows import SCHEMA
from fiveways.pipeline.peer.topic_reader import TopicReader, TopicStreamReader
from fiveways.pipeline.peer.topic_writer import TopicStreamWriter, TopicWriter

# ruff: noqa: N802  names of Spark's API

_ROW_FIELDS: Final = tuple(tuple(column.split()) for column in SCHEMA.split(", "))


class FivewaysDataSource(DataSource):
    """Topics of a hub as rows, and rows as publications: `spark.dataSource.register(FivewaysDataSource)`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options_given = DataSourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `.format(...)`."""
        return "fiveways"

    def schema(self) -> str:
        """Return the columns of the rows that are read."""
        self._options_given.topic_pattern()
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        _check_schema(schema)
        reader = TopicReader(self._options_given)
        self._options_given.check_hub()
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        _check_schema(schema)
        return TopicStreamReader(self._options_given)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the publisher of a batch."""
        writer = TopicWriter(self._options_given, schema, overwrite)
        self._options_given.check_hub()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the publisher of a stream."""
        writer = TopicStreamWriter(self._options_given, schema, overwrite)
        self._options_given.check_hub()
        return writer


def _check_schema(schema: StructType) -> None:
    """Reject a schema of the user; the payload is in column `data`, to be parsed with from_json."""
    if tuple((field.name, field.dataType.simpleString().replace("bigint", "long")) for field in schema) != _ROW_FIELDS:
        raise BadOption(f"the columns are fixed ({SCHEMA}); remove .schema(...) and use from_json(data, ...)")
