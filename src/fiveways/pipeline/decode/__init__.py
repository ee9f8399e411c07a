"""From the journal's records to what each message says."""

import pyarrow as pa

from fiveways.pipeline.decode.batches import DecodedTables, as_batches, concat_decoded
from fiveways.pipeline.decode.fastpath import decode_batch

__all__ = ["DecodedTables", "decode"]


def decode(records: pa.RecordBatch | pa.Table) -> DecodedTables:
    """Return the messages of the frames, the frames that could not be read, and the marks.

    The columns are those of `schemas.MESSAGES`, `schemas.QUARANTINE` and `schemas.MARKS`; texts of which there are few
    different ones are held by number.
    """
    return concat_decoded([decode_batch(batch) for batch in as_batches(records)])
