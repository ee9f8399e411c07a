"""Notes on docs/matrix.md: how messages change between protocols, and why some cannot be converted."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Note:
    """A documented change, or the rule that makes a feature impossible."""

    text: str
    clause: str = ""
    """The rules that are the reason; an impossible feature must have one."""


NOTES: Final[dict[str, Note]] = {
    "failure-umq": Note(
        "An application error is a text in UMQ: its name, data, code and `retry_after` are lost.",
        "UMQ1-09, UMQ36-13",
    ),
    "failure-lrpm": Note(
        "LRPM has no field for a code. The error's uri, text, data and `retry_after` arrive.",
        "LRPM-11",
    ),
    "failure-nq": Note(
        "NQ has no field for a code or for `retry_after`. `err`, text and data arrive.",
        "NQ-08",
    ),
    "cancel-umq36": Note(
        "UMQ36 has no message to cancel a call; a caller that disconnects cancels its calls.",
        "UMQ36-03",
    ),
    "cancel-umq": Note(
        "UMQ has no message to cancel a call; a caller that disconnects cancels its calls.",
        "UMQ1-04",
    ),
    "cancel-mqtt-rpc": Note(
        "RPC over MQTT has no message to cancel a call; a caller that stops waiting drops the late response.",
        "MQRPC-01",
    ),
    "untold": Note(
        "The callee's protocol has no message for a cancellation: the callee keeps working, and the hub drops its "
        "late result.",
        "UMQ1-04, UMQ36-03, MQRPC-01",
    ),
    "timeout-nq": Note(
        "A request in NQ has no deadline: once accepted it stays open until it is answered.",
        "NQ-a07",
    ),
    "direct-timeout": Note(
        "No hub is between the two. The Request's `timeout` tells the callee the deadline, and the caller times "
        "out by itself; here it waited, and got its result.",
        "MQRPC-a10",
    ),
    "dies-mqtt": Note(
        "A broker does not report that a service is gone: the call ends at its deadline as a timeout, which also "
        "means that the method may have run.",
        "MQRPC-02",
    ),
    "dies-nq": Note(
        "A peer of NQ may reconnect and answer, so a lost connection fails no call: it ends at its deadline as a "
        "timeout, which also means that the method may have run.",
        "NQ-12",
    ),
    "dies-waits": Note(
        "A request in NQ is not lost: it waits for the next callee of the method, or for the callee to reconnect. "
        "The method may run more than once, and the caller gets one answer.",
        "NQ-a07",
    ),
    "direct-dies": Note(
        "No hub is between the two: the caller receives nothing and times out by itself.",
        "MQRPC-a10",
    ),
    "caller-nq": Note(
        "A peer of NQ may reconnect: nothing is cancelled, and its answer is stored. Here it reconnected and got "
        "the answer.",
        "NQ-12, NQ-a08",
    ),
    "caller-mqtt": Note(
        "A broker does not report that a caller is gone: the callee keeps working, and nobody receives its response.",
        "MQRPC-02",
    ),
    "stream-caller": Note(
        "The caller's protocol has one response to a call: it gets all elements as one array.",
        "UMQ1-08, UMQ36-12",
    ),
    "stream-callee": Note(
        "The callee's protocol has one response to a call: it returns all elements as one array. A caller behind "
        "a broker, which waits for a stream, gets them one by one; other callers get the array.",
        "UMQ1-08, UMQ36-12",
    ),
    "request-caller": Note(
        "The caller's protocol has one request for a call: its argument is an array of all elements. A service "
        "behind a broker that takes a stream gets them one by one; other callees get the array.",
        "UMQ1-08, UMQ36-11, LRPM-11",
    ),
    "request-callee": Note(
        "The callee's protocol has one request for a call: it gets all elements as one array.",
        "UMQ1-08, UMQ36-11, LRPM-11",
    ),
    "retained-mqtt": Note(
        "A broker marks a message as retained only for later subscribers. The first retained message of a "
        "publisher at the broker is therefore an event for the hub, until the hub subscribes again. `publish` on "
        "`/hub` with `retain`, as here, retains it in both places.",
        "MQTT-3.3.1-9",
    ),
    "variable-mqtt": Note(
        "Variables belong to a session, and peers behind a broker have none of their own: `set` on `/hub` is an "
        "unknown method. They can read variables of other peers.",
        "MQRPC-02",
    ),
    "bytes-mark": Note(
        "NQ marks bytes with `$base91`, JSON and UMQ with `$base64`. Bodies between these protocols are not "
        "rewritten without need, so the sender's marker arrives; both are accepted everywhere.",
        "NQ-a12",
    ),
    "bytes-mqtt": Note(
        "Protobuf's JSON mapping writes bytes as base64 without a marker, so the other protocols get a text. "
        "Bytes that they send with their own marker arrive as bytes.",
        "MQRPC-03",
    ),
    "numbers-mqtt": Note(
        "By protobuf's JSON mapping 64-bit integers are texts in the other protocols, and are accepted as texts "
        "and as numbers. Protobuf has no integer for 2^64, which becomes a `double`. -0.0 is unchanged.",
        "MQRPC-03",
    ),
    "nesting-mqtt": Note(
        "A body is a protobuf message, and protobuf parsers accept at most 100 nested messages; a "
        "`google.protobuf.Value` takes three for a map and two for an array. Up to there (40 levels here, map and "
        "array in turn) it arrives unchanged. A deeper body is refused as bad arguments, and the method does not "
        "run.",
        "MQRPC-03",
    ),
}
"""By key, in the order of the page."""
