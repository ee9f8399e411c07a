"""From the journal's records to what each message says."""

import pyarrow as pa

from fiveways.pipeline.decode.batches import Decoded, batches_of, joined
from fiveways.pipeline.decode.scan import decode_batch

__all__ = ["Decoded", "decode"]


def decode(records: pa.RecordBatch | pa.Table) -> Decoded:
    """Return the messages of the frames, the frames that could not be read, and the marks.

    The columns are those of `schemas.MESSAGES`, `schemas.QUARANTINE` and `schemas.MARKS`; texts of which there are few
    different ones are held by number.
    """
    return joined([decode_batch(batch) for batch in batches_of(records)])
