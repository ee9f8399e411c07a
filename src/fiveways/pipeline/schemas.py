"""The columns of `columns.py`, as Spark knows them."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from fiveways.pipeline import columns

_KINDS: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.int32(): IntegerType(),
}


def _spark(table: pa.Schema) -> StructType:
    return StructType([StructField(field.name, _KINDS[field.type]) for field in table])


MESSAGES: Final = _spark(columns.MESSAGES)
QUARANTINE: Final = _spark(columns.QUARANTINE)
MARKS: Final = _spark(columns.MARKS)
CALLS: Final = _spark(columns.CALLS)
ORPHANS: Final = _spark(columns.ORPHANS)
DELIVERIES: Final = _spark(columns.DELIVERIES)
SESSIONS: Final = _spark(columns.SESSIONS)
LATE: Final = _spark(columns.LATE)


def arrow(table: StructType) -> pa.Schema:
    """Return the same columns for pyarrow."""
    kinds = {kind: known for known, kind in _KINDS.items()}
    return pa.schema([(field.name, kinds[field.dataType]) for field in table.fields])
