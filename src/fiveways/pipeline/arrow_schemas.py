"""Arrow schemas of the bronze and silver tables; this module does not import Spark.

The schema of each gold table is defined by its function in `fiveways.pipeline.gold`.
"""

from typing import Final

import pyarrow as pa


def _columns(text: str) -> pa.Schema:
    """Parse a column list: `name` is a string, `name:long` a 64-bit and `name:int` a 32-bit integer."""
    kinds = {"": pa.string(), "long": pa.int64(), "int": pa.int32()}
    fields = (column.partition(":") for column in text.split())
    return pa.schema([(name, kinds[kind]) for name, _, kind in fields])


# One row per protocol message; a frame contains one or several.
MESSAGES: Final = _columns(
    "run seq:long part:int at:long node session peer protocol transport direction channel op kind id target method"
    " topic status reason code size:int body_size:int queued_ns:long"
)
# One row per frame that cannot be decoded; `payload` is its first bytes in hexadecimal.
QUARANTINE: Final = _columns(
    "run seq:long at:long session peer protocol transport direction channel op reason size:int payload"
)
# One row per record that is not a frame.
MARKS: Final = _columns(
    "run seq:long at:long node session peer protocol transport direction kind channel op size:int reason"
)
# One row per operation; without an operation id, one per request and response of one session.
CALLS: Final = _columns(
    "date run op method caller_session caller_peer caller_protocol callee_session callee_peer callee_protocol"
    " requested_at:long accepted_at:long forwarded_at:long returned_at:long answered_at:long cancelled_at:long"
    " outcome reason code attempts:int answers:int forwards:int returns:int parts:int progress:int useless:int"
    " request_size:int answer_size:int latency_ns:long callee_ns:long hub_ns:long"
    " negative_durations:int"
)
# One row per response without a request.
ORPHANS: Final = _columns(
    "date run seq:long part:int at:long session peer protocol transport direction op id target status"
)
# One row per publication and subscriber.
DELIVERIES: Final = _columns(
    "date run op topic publisher_session publisher_protocol published_at:long published_seq:long subscriber_session"
    " subscriber_peer subscriber_protocol first_at:long first_seq:long copies:int dropped:int outcome latency_ns:long"
    " queued_ns:long size:int negative_durations:int"
)
# One row per session; in NQ, one per connection of a session.
SESSIONS: Final = _columns(
    "date run node session peer protocol transport opened_at:long closed_at:long duration_ns:long close_reason"
    " frames_in:long frames_out:long bytes_in:long bytes_out:long messages_in:long messages_out:long errors:long"
    " drops:long denials:long negative_durations:int"
)
# One row per record that arrived behind the watermark of the stream.
LATE: Final = _columns(
    "seq:long at:long node run session peer protocol transport direction kind channel op size:int reason watermark:long"
)
