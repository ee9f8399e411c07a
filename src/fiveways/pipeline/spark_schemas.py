"""The schemas of `arrow_schemas` as Spark types."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from fiveways.pipeline import arrow_schemas

_KINDS: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.int32(): IntegerType(),
}


def _to_spark(table: pa.Schema) -> StructType:
    return StructType([StructField(field.name, _KINDS[field.type]) for field in table])


MESSAGES: Final = _to_spark(arrow_schemas.MESSAGES)
QUARANTINE: Final = _to_spark(arrow_schemas.QUARANTINE)
MARKS: Final = _to_spark(arrow_schemas.MARKS)
CALLS: Final = _to_spark(arrow_schemas.CALLS)
ORPHANS: Final = _to_spark(arrow_schemas.ORPHANS)
DELIVERIES: Final = _to_spark(arrow_schemas.DELIVERIES)
SESSIONS: Final = _to_spark(arrow_schemas.SESSIONS)
LATE: Final = _to_spark(arrow_schemas.LATE)


def to_arrow(table: StructType) -> pa.Schema:
    """Convert a schema back to pyarrow."""
    kinds = {spark_type: arrow_type for arrow_type, spark_type in _KINDS.items()}
    return pa.schema([(field.name, kinds[field.dataType]) for field in table.fields])
