"""Conversion between packets and frames: JSON objects with one-letter keys, alone or in arrays (NQ-02 to NQ-04)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from fiveways.errors import Fault, Malformed, RemoteProtocolError
from fiveways.protocols.base import packet_content
from fiveways.protocols.nq import errors
from fiveways.protocols.nq.errors import ErrorObject
from fiveways.wire import strict_json
from fiveways.wire.limits import Limits
from fiveways.wire.packet import Packet, join_operations

MAX_NUMBER: Final = 1 << 53
"""Larger numbers may be rounded in other languages (NQ-a03)."""
VERSION: Final = b"1"
MAX_CACHED_LENGTH: Final = 255
"""Limit for the names in the cache, so that peers cannot fill the memory with them."""

T = TypeVar("T")


class Frame(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The keys of an object that NQ 1 assigns."""

    t: str | UnsetType = UNSET
    r: str | int | UnsetType = UNSET
    p: str | int | UnsetType = UNSET
    a: str | int | UnsetType = UNSET
    i: str | int | list[str | int] | UnsetType = UNSET
    d: Raw | UnsetType = UNSET
    e: Raw | UnsetType = UNSET
    n: int | UnsetType = UNSET
    f: int | UnsetType = UNSET
    o: int | list[int] | UnsetType = UNSET
    v: bool | str | UnsetType = UNSET
    s: str | UnsetType = UNSET


class FreeFrame(Frame):
    """A frame with the free keys that the hub uses."""

    topic: Raw | UnsetType = UNSET
    missed: Raw | UnsetType = UNSET
    attachments: Raw | UnsetType = UNSET
    traceparent: Raw | UnsetType = UNSET
    redelivered: Raw | UnsetType = UNSET


FreeKeys = dict[str, str]
"""Keys that NQ does not assign, with their JSON text."""

_HUB_FREE_KEYS: Final = ("topic", "missed", "attachments", "traceparent", "redelivered")

_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode_frame: Final = msgspec.json.Decoder(Frame).decode
_decode_batch: Final = msgspec.json.Decoder(list[Frame]).decode
_decode_free_frame: Final = msgspec.json.Decoder(FreeFrame).decode
_decode_free_batch: Final = msgspec.json.Decoder(list[FreeFrame]).decode
_decode_keys: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raw: Final = msgspec.json.Decoder(Raw).decode
_decode_raw_list: Final = msgspec.json.Decoder(list[Raw]).decode


class BadElement(Exception):
    """An error in one object of a batch. The other objects are not affected (NQ-a10)."""

    def __init__(self, text: str, rule: str, fault: Fault = Fault.MALFORMED, code: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.rule = rule
        self.fault = fault
        self.code = code or ("toolarge" if fault is Fault.TOO_LARGE else "malformed")


def parse_frame(payload: bytes) -> Frame | None:
    """Parse the object of a checked packet; None if it needs the general path.

    Raises:
        RemoteProtocolError: it is not JSON.
    """
    try:
        return _decode_frame(payload)
    except msgspec.ValidationError:
        pass
    except _NOT_JSON as exc:
        raise _not_json_error(exc) from exc
    return _decode_or_none(_decode_free_frame, payload)


def parse_batch(payload: bytes, limits: Limits) -> Sequence[Frame] | None:
    """Parse the objects of a checked packet that is an array, as `parse_frame` does."""
    frames: Sequence[Frame] | None
    try:
        frames = _decode_batch(payload)
    except msgspec.ValidationError:
        frames = _decode_or_none(_decode_free_batch, payload)
    except _NOT_JSON as exc:
        raise _not_json_error(exc) from exc
    if frames is not None and len(frames) > limits.max_batch:
        _check_batch(frames, limits)
    return frames


def _decode_or_none(decode: Callable[[bytes], T], payload: bytes) -> T | None:
    try:
        return decode(payload)
    except msgspec.ValidationError:
        return None
    except _NOT_JSON as exc:
        raise _not_json_error(exc) from exc


def split_elements(payload: bytes, limits: Limits) -> list[bytes]:
    """Return the elements of a checked packet as JSON texts."""
    try:
        elements = _decode_raw_list(payload) if payload[:1] == b"[" else [_decode_raw(payload)]
    except _NOT_JSON as exc:
        raise _not_json_error(exc) from exc
    _check_batch(elements, limits)
    return [bytes(element) for element in elements]


def _check_batch(elements: Sequence[object], limits: Limits) -> None:
    if len(elements) > limits.max_batch:
        raise RemoteProtocolError(Fault.TOO_LARGE, f"a batch of {len(elements)} messages", "NQ-a10")


def check_packet(packet: Packet, limits: Limits) -> bytes:
    """Return the JSON of a packet without surrounding blanks. The size is checked first."""
    payload = packet.payload
    if len(payload) > limits.max_text or packet.blob is not None:
        payload = packet_content(packet, limits, "packet", "NQ-02")
    if not packet.is_text:
        raise RemoteProtocolError(Fault.MALFORMED, "a binary packet", "NQ-02")
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(Fault.MALFORMED, "not UTF-8", "NQ-02") from None
    if payload[:1] not in (b"{", b"["):
        payload = payload.strip(b" \t\r\n")
        if payload[:1] not in (b"{", b"["):
            raise RemoteProtocolError(Fault.MALFORMED, "neither an object nor an array", "NQ-02")
    return payload


def _not_json_error(exc: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(Fault.MALFORMED, f"not JSON: {exc}", "NQ-02")


def serialize_frame(elements: list[bytes], ops: Sequence[str] = ()) -> Packet:
    """Return the packet for one object, or for an array of any other number of objects (NQ-a10).

    `ops` begins with the operations of the elements.
    """
    raw = elements[0] if len(elements) == 1 else b"[%b]" % b",".join(elements)
    return Packet(raw, op=join_operations(ops[: len(elements)]))


def read_free_keys(frame: Frame, limits: Limits) -> FreeKeys | None:
    """Return the free keys of a frame."""
    values = ((key, getattr(frame, key, UNSET)) for key in _HUB_FREE_KEYS)
    return {key: check_raw(raw, limits).decode() for key, raw in values if raw is not UNSET} or None


def check_raw(raw: Raw, limits: Limits) -> bytes:
    """Return the bytes of a value that msgspec has skipped, after checking numbers and depth."""
    value = bytes(raw)
    try:
        strict_json.check_numbers_and_depth(value, limits.max_depth)
    except Malformed as exc:
        raise BadElement(str(exc), "NQ-05") from exc
    return value


def parse_element(raw: bytes, limits: Limits) -> tuple[Frame, FreeKeys | None]:
    """Parse an element on the general path; BadElement if it is invalid."""
    keys = read_keys(raw)
    if "c" in keys and bytes(keys["c"]) != VERSION:
        raise BadElement("only version 1 is supported", "NQ-a09", Fault.VERSION, "version")
    if "k" in keys:
        raise BadElement("keys are not supported", "NQ-a09", Fault.VERSION, "nokey")
    values: dict[str, object] = {}
    free: FreeKeys = {}
    for key, value in keys.items():
        if key in _READERS:
            values[key] = _READERS[key](value, key)
        elif key != "c":
            free[key] = check_raw(value, limits).decode()
    return Frame(**values), free or None  # type: ignore[arg-type]


def read_keys(raw: bytes) -> dict[str, Raw]:
    """Return the keys of an element with their undecoded values; BadElement if it is not an object."""
    try:
        return _decode_keys(raw)
    except msgspec.ValidationError:
        raise BadElement("a message must be an object", "NQ-02") from None
    except _NOT_JSON as exc:
        raise BadElement(f"not JSON: {exc}", "NQ-05") from None


def is_final_answer(raw: bytes) -> bool:
    """Return whether an invalid element would end its request: a fatal error, or data without an error."""
    try:
        keys = read_keys(raw)
        error = _parse_value(keys["e"]) if "e" in keys else None
    except BadElement:
        return False
    return error.get("fatal") is True if isinstance(error, dict) else "d" in keys


def _parse_value(raw: Raw) -> object:
    try:
        return strict_json.parse(bytes(raw))
    except Malformed as exc:
        raise BadElement(str(exc), "NQ-05") from exc


def _read_name(raw: Raw, key: str) -> object:
    value = _parse_value(raw)
    if not isinstance(value, str):
        raise BadElement(f"{key} is not a string", "NQ-06")
    return value


def _read_id(raw: Raw, key: str) -> object:
    value = _parse_value(raw)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise BadElement(f"{key} is neither a string nor an integer", "NQ-a03")
    return value


def _read_ids(raw: Raw, key: str) -> object:
    value = _parse_value(raw)
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise BadElement(f"{key} is neither a string nor an integer", "NQ-a03")
    return value


def _read_number(raw: Raw, key: str) -> object:
    value = _parse_value(raw)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadElement(f"{key} is not an integer", "NQ-a04")
    return value


def _read_numbers(raw: Raw, key: str) -> object:
    value = _parse_value(raw)
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, int) or isinstance(item, bool):
            raise BadElement(f"{key} is neither an integer nor an array of them", "NQ-a05")
    return value


def _read_verbose(raw: Raw, _key: str) -> object:
    """Return strings and booleans unchanged, for other values whether they are truthy (NQ-10)."""
    value = _parse_value(raw)
    return value if isinstance(value, str) else value not in (None, False, 0)


def _read_source(raw: Raw, _key: str) -> object:
    """Return a string, UNSET for other values: the hub overwrites this key (NQ-04)."""
    value = _parse_value(raw)
    return value if isinstance(value, str) else UNSET


def _keep_raw(raw: Raw, _key: str) -> object:
    return raw


_READERS: Final[dict[str, Callable[[Raw, str], object]]] = {
    "t": _read_name,
    "r": _read_id,
    "p": _read_id,
    "a": _read_id,
    "i": _read_ids,
    "d": _keep_raw,
    "e": _keep_raw,
    "n": _read_number,
    "f": _read_number,
    "o": _read_numbers,
    "v": _read_verbose,
    "s": _read_source,
}


def parse_id(value: str | int, limits: Limits, key: str) -> str:
    """Return an id as a string for comparison (NQ-a03)."""
    if type(value) is not str:
        if not value:
            raise BadElement(f"{key} is 0", "NQ-a03")
        if not -MAX_NUMBER <= int(value) <= MAX_NUMBER:
            raise BadElement(f"{key} is a number that may have been rounded", "NQ-a03")
        return str(value)
    if not value:
        raise BadElement(f"{key} is empty", "NQ-a03")
    if len(value) > limits.max_id:
        raise BadElement(f"{key} has {len(value)} characters", "NQ-05", Fault.TOO_LARGE)
    return value


def check_target(target: str, limits: Limits) -> str:
    """Return the name of a target; BadElement if it is invalid (NQ-06, NQ-a11)."""
    if len(target) > limits.max_name:
        raise BadElement(f"t has {len(target)} characters", "NQ-06", Fault.TOO_LARGE)
    if not is_name(target):
        raise BadElement("t is empty, or contains blanks or control characters", "NQ-a11")
    return target


def is_name(text: str) -> bool:
    """Return whether the text is valid as a target; more characters than in our own names are accepted (NQ-a11)."""
    return _is_cached_name(text) if len(text) <= MAX_CACHED_LENGTH else _is_name(text)


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text


_is_cached_name: Final = lru_cache(maxsize=1024)(_is_name)


def part_position(frame: Frame) -> tuple[int | None, int | None]:
    """Return n and f of a part; n is None if the message is not part of a stream (NQ-a04)."""
    n = 0 if frame.n is UNSET else frame.n
    f = None if frame.f is UNSET else frame.f
    if not 0 <= n <= MAX_NUMBER or (f is not None and not 0 <= f <= MAX_NUMBER):
        raise BadElement("n or f is out of range", "NQ-a04")
    has_body = frame.d is not UNSET
    if n == 0 and has_body:
        if f:
            raise BadElement("parts are counted from 1", "NQ-a04")
        return None, None
    if not has_body and f != 0:
        raise BadElement("only the last part of a stream may lack d", "NQ-a04")
    return n, f


def parse_ids(value: str | int | list[str | int], limits: Limits) -> tuple[str, ...]:
    """Return one or several ids as strings for comparison."""
    if type(value) is str and 0 < len(value) <= limits.max_id:
        return (value,)
    if not isinstance(value, list):
        return (parse_id(value, limits, "i"),)
    if not value:
        raise BadElement("i is an empty array", "NQ-a03")
    if len(value) > limits.max_batch:
        raise BadElement(f"i contains {len(value)} ids", "NQ-a10", Fault.TOO_LARGE)
    return tuple(parse_id(item, limits, "i") for item in value)


def parse_target(frame: Frame, limits: Limits) -> str:
    """Return t; empty if absent, which addresses the hub itself (NQ-a07)."""
    text = frame.t
    if isinstance(text, UnsetType):
        return ""
    return text if len(text) <= limits.max_name and is_name(text) else check_target(text, limits)


def parse_error(frame: Frame) -> ErrorObject:
    """Return the error object."""
    try:
        return errors.read(b"" if isinstance(frame.e, UnsetType) else bytes(frame.e))
    except Malformed as exc:
        raise BadElement(str(exc), "NQ-08") from exc
