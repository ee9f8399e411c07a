"""Decoding of journal records into message rows."""

import pyarrow as pa

from fiveways.pipeline.decode.batches import DecodedTables, as_batches, concat_decoded
from fiveways.pipeline.decode.fastpath import decode_batch

__all__ = ["DecodedTables", "decode"]


def decode(records: pa.RecordBatch | pa.Table) -> DecodedTables:
    """Decode records into messages, unreadable frames and marks.

    The columns are those of `arrow_schemas.MESSAGES`, `QUARANTINE` and `MARKS`. Text columns with few distinct values
    are dictionary-encoded.
    """
    return concat_decoded([decode_batch(batch) for batch in as_batches(records)])
