"""The tables between the journal and its answers: their columns, and what one row is.

The gold tables have theirs beside the functions that make them. Nobody needs Spark to know of these.
"""

from typing import Final

import pyarrow as pa


def _columns(text: str) -> pa.Schema:
    """Return the columns that a text names: `name` is a string, `name:long` and `name:int` are numbers."""
    kinds = {"": pa.string(), "long": pa.int64(), "int": pa.int32()}
    fields = (each.partition(":") for each in text.split())
    return pa.schema([(name, kinds[kind]) for name, _, kind in fields])


# One row per message of a protocol: a frame has one, or several.
MESSAGES: Final = _columns(
    "run seq:long part:int at:long node session peer protocol transport direction channel op kind id target method"
    " topic status reason code size:int body_size:int queued_ns:long"
)
# One row per frame that cannot be read, with the first bytes of it in `payload` as hexadecimal digits.
QUARANTINE: Final = _columns(
    "run seq:long at:long session peer protocol transport direction channel op reason size:int payload"
)
# One row per record that is no frame.
MARKS: Final = _columns(
    "run seq:long at:long node session peer protocol transport direction kind channel op size:int reason"
)
# One row per operation; where no operation is known, one per request and its answer on one leg.
CALLS: Final = _columns(
    "date run op method caller_session caller_peer caller_protocol callee_session callee_peer callee_protocol"
    " requested_at:long accepted_at:long forwarded_at:long returned_at:long answered_at:long cancelled_at:long"
    " outcome reason code attempts:int answers:int forwards:int returns:int parts:int progress:int useless:int"
    " request_size:int answer_size:int latency_ns:long callee_ns:long hub_ns:long"
    " negative_durations:int"
)
# One row per answer without a request.
ORPHANS: Final = _columns(
    "date run seq:long part:int at:long session peer protocol transport direction op id target status"
)
# One row per publication and subscriber.
DELIVERIES: Final = _columns(
    "date run op topic publisher_session publisher_protocol published_at:long published_seq:long subscriber_session"
    " subscriber_peer subscriber_protocol first_at:long first_seq:long copies:int dropped:int outcome latency_ns:long"
    " queued_ns:long size:int negative_durations:int"
)
# One row per link.
SESSIONS: Final = _columns(
    "date run node session peer protocol transport opened_at:long closed_at:long duration_ns:long close_reason"
    " frames_in:long frames_out:long bytes_in:long bytes_out:long messages_in:long messages_out:long errors:long"
    " drops:long denials:long negative_durations:int"
)
# One row per record that came when the stream had closed its time.
LATE: Final = _columns(
    "seq:long at:long node run session peer protocol transport direction kind channel op size:int reason watermark:long"
)
