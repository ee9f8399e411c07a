"""Conversion between UMQ 1.0.0 messages and hub messages: topic ids, descriptions and failures."""

from typing import Final

from fiveways.errors import Execution, Fault, Reason
from fiveways.model import names, topics
from fiveways.model.messages import Description, Failure
from fiveways.protocols.builtin_methods import BadArguments, Styles
from fiveways.protocols.umq.messages import check_one_line
from fiveways.protocols.umq_family.failures import failure_text, is_uncoded, method_text, parse_reason
from fiveways.protocols.umq_family.fastpath import fastpath_name_folder
from fiveways.protocols.umq_family.frames import write_text
from fiveways.wire.packet import Packet
from fiveways.wire.payload import Payload

CODES: Final = {
    Reason.RAISED: 6,
    Reason.NO_SUCH_METHOD: 7,
    Reason.NO_SUCH_CALLBACK: 8,
    Reason.TIMEOUT: 9,
    Reason.LOST: 10,
    Reason.UNAVAILABLE: 11,
    Reason.DENIED: 12,
    Reason.BAD_ARGUMENTS: 13,
    Reason.OVERLOADED: 14,
    Reason.TOO_LARGE: 15,
    Reason.CANCELLED: 16,
}
NOT_RUN: Final = {reason: code for reason, code in CODES.items() if reason.execution is Execution.NO}
"""Sent with `!`; other codes are sent with `E`."""
MAYBE_RUN: Final = {reason: code for reason, code in CODES.items() if reason.execution is not Execution.NO}

FAULTS: Final = {
    Fault.STRAY_ATTACHMENT: "1 Unexpected binary frame",
    Fault.MALFORMED: "2 Message parse error",
    Fault.UNKNOWN_KIND: "3 Unknown message type",
    Fault.UNEXPECTED: "4 Unexpected message",
    Fault.VERSION: "5 Unsupported version",
    Fault.TOO_LARGE: "15 Too large",
}


def topic_id(chosen: object, spelling: str) -> str:
    """Return the topic id: the subscriber's choice, else the topic."""
    if chosen is None:
        chosen = spelling
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        chosen = str(chosen)
    if not isinstance(chosen, str) or not chosen or "\n" in chosen:
        raise BadArguments("id must be a string of one line")
    return chosen


def write_call_frame(identifier: str, method: str, body: Payload) -> Packet:
    """Return the frame of a call without attachments."""
    name = method if "\n" not in method else check_one_line(method)
    return write_text(f"M{identifier}\n{name}\n{body.text()}")


def write_failure_text(failure: Failure) -> str:
    """Return the payload of `E` or `!`.

    A method's own text is unchanged, unless a reader of `E` would take it for a text of the hub.
    """
    text = method_text(failure)
    if is_uncoded(failure, text, CODES) and parse_reason(f"{text} ", MAYBE_RUN)[0] is None:
        return text
    return failure_text(failure, CODES)


STYLES: Final = Styles(names.UMQ, topics.UMQ, topic_id)
fold_fastpath_name: Final = fastpath_name_folder(names.UMQ)


def write_listing(message: Description) -> str:
    """Return the response to `?`: a documentation text, or one line for each method and route."""
    if message.doc is not None:
        return f"D{message.doc}"
    routes = (*message.routes, *message.namespaces)
    return "".join([*(f"M{name}\n" for name in message.methods), *(f"R{_route_line(name)}\n" for name in routes)])


def _route_line(name: str) -> str:
    """Return a route with its separator (UMQ1-a09), which the peer chose (UMQ1-19)."""
    return f"{name}:" if name[-1:].isalnum() or name[-1:] == "_" else name


def read_listing(call_id: str, text: str) -> Description | None:
    """Parse the response to `?`; None if it is not a description."""
    if text[:1] == "D":
        return Description(call_id, doc=text[1:])
    lines = [line for line in text.split("\n") if line]
    if any(line[0] not in "MR" for line in lines):
        return None
    methods, routes = ([line[1:] for line in lines if line[0] == letter] for letter in "MR")
    return Description(call_id, tuple(methods), tuple(routes))
