"""Fast path for RPC over MQTT: common Requests and Responses, and publications on bridged topics, many at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.arrays import BoolArray, Int64Array
from fiveways.pipeline.decode import mqtt_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.message_row import CALLBACK_PREFIX, METHODS_WITH_TOPIC, MessageRow, canonical_topic
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.wire.packet import Packet

_ID_TAG, _BODY_TAG, _TYPE_TAG, _VALUE_TAG = 0x08, 0x12, 0x0A, 0x12
_MAX_VARINT_LENGTH: Final = 10
_MAX_CHANNEL_LENGTH: Final = 255
_CACHE_SIZE: Final = 1 << 16
_VARINT_TAGS: Final = frozenset({0x18, 0x20, 0x28, 0x30})
"""Tags of the integer fields behind the body."""
_ERROR_TAG: Final = 0x1A
_TYPED_HEAD: Final = b"\x08\x01\x12\x03\x0a\x01x"
_UNTYPED_HEAD: Final = b"\x08\x01\x12\x00"
_REQUEST, _ANSWER = 1, 0


def scan(buffer: PayloadBuffer, channels: pa.Array, strings: StringTables) -> DecodedColumns:
    """Decode frames of RPC over MQTT on these topics."""
    decoded = DecodedColumns(buffer, strings)
    cursor = Cursor(decoded, rows=np.arange(buffer.count), at=buffer.starts, ends=buffer.ends)
    _skip_tag(cursor, _ID_TAG)
    _read_varint(cursor, "id", _MAX_VARINT_LENGTH)
    _read_optional_bytes(cursor, _BODY_TAG, "body", cursor["ends"])
    cursor["behind"] = cursor["at"]
    cursor["at"] = cursor["body from"]
    _read_optional_bytes(cursor, _TYPE_TAG, "type", cursor["behind"])
    _read_optional_bytes(cursor, _VALUE_TAG, "value", cursor["behind"])
    cursor.select(cursor["at"] == cursor["behind"])
    numbers = np.zeros(buffer.count, np.uint64)
    numbers[cursor["rows"]] = cursor["id"].view(np.uint64)
    decoded.ids.values = pa.array(numbers).cast(pa.string())
    decoded.targets.values = pa.nulls(buffer.count, pa.string())
    decoded.body_size[cursor["rows"]] = cursor["value to"] - cursor["value from"]
    is_typed = cursor["type to"] > cursor["type from"]
    ends = buffer.slices(cursor["at"], cursor["ends"])
    typed = map_distinct(ends, partial(_tail_codes, strings, True), 5)
    untyped = map_distinct(ends, partial(_tail_codes, strings, False), 5)
    cursor["role"], kind, status, reason, code = (
        np.where(is_typed, typed_codes, untyped_codes)
        for typed_codes, untyped_codes in zip(typed, untyped, strict=True)
    )
    rows = cursor["rows"]
    decoded.is_decoded[rows] = cursor["role"] >= 0
    decoded.kind[rows], decoded.status[rows], decoded.reason[rows], decoded.code[rows] = kind, status, reason, code
    cursor.select(cursor["role"] != NONE)
    _set_methods(cursor, channels)
    return decoded


def _skip_tag(cursor: Cursor, tag: int) -> None:
    cursor.select((cursor["at"] < cursor["ends"]) & (cursor.buffer.bytes_at(cursor["at"]) == tag))
    cursor["at"] = cursor["at"] + 1


def _read_varint(cursor: Cursor, name: str, max_length: int) -> None:
    """Keep rows with a varint here; store it and step over it."""
    buffer, at = cursor.buffer, cursor["at"]
    value = np.zeros(len(at), np.uint64)
    size = np.zeros(len(at), np.int64)
    open_rows = np.arange(len(at))
    for step in range(max_length):
        octet = buffer.bytes_at(at[open_rows] + step)
        value[open_rows] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        last = octet < 0x80
        # Only one bit of a tenth byte fits into 64 bits.
        size[open_rows[last & ((step < _MAX_VARINT_LENGTH - 1) | (octet <= 1))]] = step + 1
        open_rows = open_rows[~last]
        if not len(open_rows):
            break
    cursor[name] = value.view(np.int64)
    cursor["at"] = at + size
    cursor.select((size > 0) & (cursor["at"] <= cursor["ends"]))


def _read_optional_bytes(cursor: Cursor, tag: int, name: str, limits: Int64Array) -> None:
    """Step over an optional bytes field that ends before `limits`, and store its span; an absent one is empty."""
    buffer, at = cursor.buffer, cursor["at"]
    present = (at < limits) & (buffer.bytes_at(at) == tag)
    size, more = buffer.bytes_at(at + 1).astype(np.int64), buffer.bytes_at(at + 2).astype(np.int64)
    longer = size >= 0x80
    size = np.where(longer, (size & 0x7F) | more << 7, size)
    begins = at + 2 + longer
    cursor[f"{name} from"] = np.where(present, begins, at)
    cursor[f"{name} to"] = cursor["at"] = np.where(present, begins + size, at)
    cursor.select(~present | (~longer | (more < 0x80)) & (cursor["at"] <= limits))


def _tail_codes(strings: StringTables, is_typed: bool, end: bytes) -> tuple[int, int, int, int, int]:
    row = (_interpret_tail if len(end) <= 255 else _interpret_tail.__wrapped__)(is_typed, end)
    if row is None:
        return NONE, NONE, NONE, NONE, NONE
    role = _REQUEST if row.kind == "call" else _ANSWER
    kind, status = strings.kind.code(row.kind), strings.status.code(row.status)
    return role, kind, status, strings.reason.code(row.reason), strings.code.code(row.code)


@lru_cache(_CACHE_SIZE)
def _interpret_tail(is_typed: bool, end: bytes) -> MessageRow | None:
    """Return the row of a message with these fields behind its body, with or without a type; None if invalid."""
    if not _is_known_tail(end):
        return None
    try:
        (row,) = mqtt_rows.read_frame(Packet((_TYPED_HEAD if is_typed else _UNTYPED_HEAD) + end, False, "/x"))
    except RemoteProtocolError:
        return None
    return row


def _is_known_tail(end: bytes) -> bool:
    """Return True if the fields are neither an id nor a body; a second one would replace the first."""
    at = 0
    while at < len(end):
        tag = end[at]
        at += 1
        if tag in _VARINT_TAGS:
            while at < len(end) and end[at] >= 0x80:
                at += 1
            at += 1
        elif tag == _ERROR_TAG and at < len(end) and end[at] < 0x80:
            at += 1 + end[at]
        else:
            return False
    return at == len(end)


def _set_methods(cursor: Cursor, channels: pa.Array) -> None:
    """Set the methods of Requests; leave rows without a readable name, or on a too long topic, to the general path."""
    decoded, rows = cursor.decoded, cursor["rows"]
    is_request = cursor["role"] == _REQUEST
    types = cursor.buffer.slices(*cursor.span("type")).dictionary_encode()
    channel_column = channels.take(pa.array(rows))
    channel_codes = channel_column.indices.fill_null(len(channel_column.dictionary)).to_numpy().astype(np.int64)
    pairs, index = np.unique(channel_codes * len(types.dictionary) + types.indices.to_numpy(), return_inverse=True)
    distinct_channels = [*channel_column.dictionary.to_pylist(), ""]
    distinct_types = types.dictionary.to_pylist()
    width = len(distinct_types)
    methods = [
        _resolve_method(distinct_channels[pair // width], distinct_types[pair % width]) for pair in pairs.tolist()
    ]
    strings = decoded.strings
    good = np.array([resolved is not None for resolved in methods], np.bool_)[index]
    simple = np.array([resolved is not None and resolved[2] for resolved in methods], np.bool_)[index]
    codes = [strings.method.code(resolved[1] if resolved else None) for resolved in methods]
    decoded.is_decoded[rows] = good & (simple | ~is_request)
    decoded.method[rows] = np.where(is_request, np.array(codes, np.int32)[index], NONE)
    targets = pa.array([resolved[0] if resolved else None for resolved in methods], pa.string())
    numbers = np.zeros(cursor.buffer.count, np.int64)
    numbers[rows] = index
    absent = np.ones(cursor.buffer.count, np.bool_)
    absent[rows] = ~is_request
    decoded.targets.values = targets.take(pa.array(numbers, mask=absent))


def _resolve_method(channel: str, type_url: bytes) -> tuple[str, str | None, bool] | None:
    """Return a call's target, its method, and False if the general path must read it; None if it may be invalid."""
    if not type_url.isascii() or len(channel) > _MAX_CHANNEL_LENGTH:
        return None
    target, method = mqtt_rows.request_method(channel, type_url.decode())
    return target, method, method is None or not (method in METHODS_WITH_TOPIC or method.startswith(CALLBACK_PREFIX))


def publications(
    buffer: PayloadBuffer, channels: pa.Array, from_hub: BoolArray, sizes: Int64Array, strings: StringTables
) -> DecodedColumns:
    """Decode messages on bridged topics; their payloads need not be read."""
    decoded = DecodedColumns(buffer, strings)
    decoded.is_decoded[:] = True
    kinds = strings.kind
    decoded.kind[:] = np.where(from_hub, kinds.code("event"), kinds.code("publish"))
    decoded.body_size[:] = sizes
    decoded.ids.values = pa.nulls(buffer.count, pa.string())
    decoded.targets.values = channels.cast(pa.string())
    names = [
        None if channel is None else canonical_topic(channel, topics.MQTT)
        for channel in channels.dictionary.to_pylist()
    ]
    table = np.array([*(strings.topic.code(name) for name in names), NONE], np.int32)
    decoded.topic[:] = table[channels.indices.fill_null(len(names)).to_numpy()]
    return decoded
