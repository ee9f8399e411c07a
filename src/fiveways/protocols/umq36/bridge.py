"""Conversion between UMQ36 messages and hub messages: calls, topic ids and failures."""

from functools import lru_cache
from typing import Final

import msgspec

from fiveways.errors import Execution, Fault, LocalProtocolError, Malformed, Reason
from fiveways.model import names, topics
from fiveways.protocols.builtin_methods import BadArguments, Styles
from fiveways.protocols.umq_family.fastpath import fastpath_name_folder
from fiveways.wire import base36, strict_json
from fiveways.wire.packet import Packet
from fiveways.wire.payload import NULL, Json, Payload

CODES: Final = {
    Reason.NO_SUCH_CALLBACK: 2,
    Reason.RAISED: 6,
    Reason.NO_SUCH_METHOD: 7,
    Reason.UNAVAILABLE: 8,
    Reason.TIMEOUT: 9,
    Reason.LOST: 10,
    Reason.DENIED: 12,
    Reason.BAD_ARGUMENTS: 13,
    Reason.OVERLOADED: 14,
    Reason.TOO_LARGE: 15,
    Reason.CANCELLED: 16,
}
NOT_RUN: Final = {reason: code for reason, code in CODES.items() if reason.execution is Execution.NO}
"""The codes for `!`; existing peers send other codes with it too."""

FAULTS: Final = {
    Fault.MALFORMED: "3 Protocol error",
    Fault.UNEXPECTED: "3 Protocol error",
    Fault.STRAY_ATTACHMENT: "3 Protocol error",
    Fault.UNKNOWN_KIND: "4 Unsupported command",
    Fault.VERSION: "5 Unsupported version",
    Fault.TOO_LARGE: "15 Too large",
}


class _TwoElementCall(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """`["m", x]`, the most common call."""

    method: str
    body: msgspec.Raw


decode_two_element_call: Final = msgspec.json.Decoder(_TwoElementCall).decode
_ITEMS_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NAME_DECODER: Final = msgspec.json.Decoder(str)
_OPENING_BRACKET: Final = ord("[")


def read_call(payload: str, max_depth: int = strict_json.MAX_DEPTH) -> tuple[str, Payload] | None:
    """Parse `["m", x, ...]` as method and body; None for any other payload.

    Raises:
        BadArguments: the array is nested too deeply or contains a number that is too large.
    """
    if payload[:1] != "[" or payload[-1:] != "]":
        return None
    try:
        return _read_call(payload, max_depth)
    except RecursionError:
        raise BadArguments(f"not JSON: nested deeper than {max_depth}") from None
    except Malformed as exc:
        raise BadArguments(str(exc)) from exc
    except (msgspec.DecodeError, ValueError):
        return None


def _read_call(payload: str, max_depth: int) -> tuple[str, Payload]:
    try:
        call = decode_two_element_call(payload)
    except msgspec.ValidationError:
        return _read_arguments(payload, max_depth)
    raw = bytes(call.body)
    strict_json.check_numbers_and_depth(raw, max_depth)
    return call.method, Json(raw)


def _read_arguments(payload: str, max_depth: int) -> tuple[str, Payload]:
    """Parse no argument or several. As a body they are one level deeper, which counts for the depth limit."""
    name, *arguments = _ITEMS_DECODER.decode(payload)
    method = _NAME_DECODER.decode(name)
    raw = b"[%s]" % b",".join(map(bytes, arguments))
    strict_json.check_numbers_and_depth(raw, max_depth)
    return method, Json(raw) if arguments else NULL


def write_call(method: str, body: Payload) -> str:
    """Return the payload of a call. An array of two or more elements becomes separate arguments."""
    return write_call_frame("", method, body).payload[2:].decode()


def write_call_frame(number: str, method: str, body: Payload) -> Packet:
    """Return the frame of a call without attachments."""
    raw, name = body.json(), _quote(method)
    if raw[0] in b"[n":
        if raw == b"null":
            return Packet(b"C%b:[%b]" % (number.encode(), name))
        if raw[0] == _OPENING_BRACKET and len(_ITEMS_DECODER.decode(raw)) > 1:
            return Packet(b"C%b:[%b,%b" % (number.encode(), name, raw[1:]))
    return Packet(b"C%b:[%b,%b]" % (number.encode(), name, raw))


@lru_cache(maxsize=1024)
def _quote(name: str) -> bytes:
    return strict_json.write(name)


def token_to_hub(spelling: str) -> str:
    """Return a callback token as the hub knows it: lower case, while UMQ36 has only upper-case digits."""
    return spelling.lower()


def token_for_peer(text: str) -> str:
    """Return the response to `hub.callback` in upper case, so that UMQ36 peers can use the token."""
    return text.upper()


def token_from_hub(token: str) -> str:
    """Return a callback token for the wire; LocalProtocolError if it is not a base36 number."""
    try:
        # upper() converts some non-ASCII letters to ASCII.
        return base36.write(base36.parse(token.upper() if token.isascii() else token))
    except Malformed as exc:
        raise LocalProtocolError(f"callback {token!r}: {exc}") from exc


def is_fiveways_welcome(welcome: str) -> bool:
    """Return whether a welcome has a session id as Fiveways sends it; the spec leaves the payload free (UMQ36-08)."""
    try:
        value = strict_json.parse_text(welcome)
    except Malformed:
        return False
    return isinstance(value, dict) and "session" in value


def topic_id(chosen: object, _spelling: str) -> str:
    """Return the topic id, which the subscriber must choose: updates contain nothing else."""
    if not isinstance(chosen, str):
        raise BadArguments("needs id as a string of base36 digits")
    try:
        return base36.write(base36.parse(chosen))
    except Malformed as exc:
        raise BadArguments(f"id: {exc}") from exc


STYLES: Final = Styles(names.UMQ36, topics.UMQ, topic_id)
fold_fastpath_name: Final = fastpath_name_folder(names.UMQ36)
