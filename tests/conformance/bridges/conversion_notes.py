"""What the page says of everything that crosses changed, or not at all."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Note:
    """One documented change, or one clause that forbids."""

    text: str
    clause: str = ""
    """The rules that are the reason: what is impossible must have one."""


NOTES: Final[dict[str, Note]] = {
    "failure-umq": Note(
        "A method's own error is a text in UMQ: its name, data, code and `retry_after` have no place there.",
        "UMQ1-09, UMQ36-13",
    ),
    "failure-lrpm": Note(
        "LRPM has no place for a code. The error's uri, text, data and `retry_after` arrive.",
        "LRPM-11",
    ),
    "failure-nq": Note(
        "NQ has no place for a code nor for `retry_after`. `err`, text and data arrive.",
        "NQ-08",
    ),
    "cancel-umq36": Note(
        "UMQ36 has no message that takes a call back; a caller that is gone has cancelled its calls.",
        "UMQ36-03",
    ),
    "cancel-umq": Note(
        "UMQ has no message that takes a call back; a caller that is gone has cancelled its calls.",
        "UMQ1-04",
    ),
    "cancel-mqtt-rpc": Note(
        "RPC over MQTT has no message that takes a call back; who stops waiting drops the late answer.",
        "MQRPC-01",
    ),
    "untold": Note(
        "The callee's protocol has no message for it, and nobody tells it: it works on, and the hub drops its "
        "late answer.",
        "UMQ1-04, UMQ36-03, MQRPC-01",
    ),
    "timeout-nq": Note(
        "A request in NQ has no deadline: once accepted it waits, and is answered however late that is.",
        "NQ-a07",
    ),
    "direct-timeout": Note(
        "No hub is between the two. The Request's `timeout` tells the callee how long it has, and the caller "
        "gives up by itself; here it waited, and got its answer.",
        "MQRPC-a10",
    ),
    "dies-mqtt": Note(
        "A broker does not tell that a service is gone: the call ends with its time, as a timeout, which also "
        "says that it may have run.",
        "MQRPC-02",
    ),
    "dies-nq": Note(
        "A peer of NQ may come back and answer yet, so that a lost link loses no call: it ends with its time, as "
        "a timeout, which also says that it may have run.",
        "NQ-12",
    ),
    "dies-waits": Note(
        "A request in NQ is not lost but waits, and the next one who offers the method gets it, or the callee "
        "that comes back: it may so run more than once, and is answered once.",
        "NQ-a07",
    ),
    "direct-dies": Note(
        "No hub is between the two: the caller hears nothing, and gives up by itself.",
        "MQRPC-a10",
    ),
    "caller-nq": Note(
        "A peer of NQ may come back: nothing is cancelled, and the answer is kept for it. It came back here, and "
        "got it.",
        "NQ-12, NQ-a08",
    ),
    "caller-mqtt": Note(
        "A broker does not tell that a caller is gone: the callee works on, and its answer is heard by nobody.",
        "MQRPC-02",
    ),
    "stream-caller": Note(
        "The caller's protocol has one answer to a call: it gets all elements as one array.",
        "UMQ1-08, UMQ36-12",
    ),
    "stream-callee": Note(
        "The callee's protocol has one answer to a call: it gives all elements as one array. A caller by way of a "
        "broker, which waits for a stream, gets them one by one, everybody else the array.",
        "UMQ1-08, UMQ36-12",
    ),
    "request-caller": Note(
        "The caller's protocol has one request to a call: its argument is an array of all elements. A service "
        "behind a broker that takes a stream gets them one by one, everybody else the array.",
        "UMQ1-08, UMQ36-11, LRPM-11",
    ),
    "request-callee": Note(
        "The callee's protocol has one request to a call: it gets all elements as one array.",
        "UMQ1-08, UMQ36-11, LRPM-11",
    ),
    "retained-mqtt": Note(
        "Who publishes at the broker is not understood so at once: a broker tells that a message is retained only "
        "to those who subscribe later, so that the first one of a topic is an event for the hub until it comes to "
        "the broker anew. `publish` on `/hub` with `retain`, as here, keeps it in both places.",
        "MQTT-3.3.1-9",
    ),
    "variable-mqtt": Note(
        "Variables belong to a session, and those behind a broker have none of their own: `set` on `/hub` is no "
        "such method. They can read those of others.",
        "MQRPC-02",
    ),
    "bytes-mark": Note(
        "NQ marks bytes with `$base91`, JSON and UMQ with `$base64`. Between these nothing is rewritten that need not "
        "be, so that the sender's mark arrives; both are read everywhere.",
        "NQ-a12",
    ),
    "bytes-mqtt": Note(
        "Protobuf's JSON mapping writes bytes as base64 without a marker, so that the other protocols get a text. "
        "What they send with their own marker arrives as bytes.",
        "MQRPC-03",
    ),
    "numbers-mqtt": Note(
        "By protobuf's JSON mapping 64-bit integers are texts in the other protocols, and are read from texts and "
        "numbers alike. Protobuf has no integer for 2^64, which goes as a `double`. -0.0 stays what it is.",
        "MQRPC-03",
    ),
    "nesting-mqtt": Note(
        "A body is a protobuf message, and protobuf's parsers read no more than 100 of them within each other; a "
        "`google.protobuf.Value` takes three for a map and two for an array. Up to there (40 levels here, map and "
        "array in turn) it arrives as it was said; what is deeper is refused as bad arguments, and was not run.",
        "MQRPC-03",
    ),
}
"""By their keys, in the order of the page."""
