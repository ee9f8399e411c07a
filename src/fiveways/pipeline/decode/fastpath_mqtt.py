"""Plain Requests and Responses of RPC over MQTT, and publications on bridged topics, many at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import mqtt_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.message_row import CALLBACK_PREFIX, METHODS_WITH_TOPIC, MessageRow, canonical_topic
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer
from fiveways.wire.packet import Packet

_ID_TAG, _BODY_TAG, _TYPE_TAG, _VALUE_TAG = 0x08, 0x12, 0x0A, 0x12
_MAX_VARINT_LENGTH: Final = 10
_MAX_CHANNEL_LENGTH: Final = 255
_CACHE_SIZE: Final = 1 << 16
_VARINT_TAGS: Final = frozenset({0x18, 0x20, 0x28, 0x30})
"""The fields behind the body that are numbers."""
_ERROR_TAG: Final = 0x1A
_TYPED: Final = b"\x08\x01\x12\x03\x0a\x01x"
_UNTYPED: Final = b"\x08\x01\x12\x00"
_REQUEST, _ANSWER = 1, 0


def scan(slab: PayloadBuffer, channels: pa.Array, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of RPC over MQTT on these topics."""
    told = DecodedColumns(slab, vocabulary)
    walk = Cursor(told, rows=np.arange(slab.count), at=slab.starts, ends=slab.ends)
    _skip_tag(walk, _ID_TAG)
    _read_varint(walk, "id", _MAX_VARINT_LENGTH)
    _read_optional_bytes(walk, _BODY_TAG, "body", walk["ends"])
    walk["behind"] = walk["at"]
    walk["at"] = walk["body from"]
    _read_optional_bytes(walk, _TYPE_TAG, "type", walk["behind"])
    _read_optional_bytes(walk, _VALUE_TAG, "value", walk["behind"])
    walk.select(walk["at"] == walk["behind"])
    numbers = np.zeros(slab.count, np.uint64)
    numbers[walk["rows"]] = walk["id"].view(np.uint64)
    told.ids.values = pa.array(numbers).cast(pa.string())
    told.targets.values = pa.nulls(slab.count, pa.string())
    told.body_size[walk["rows"]] = walk["value to"] - walk["value from"]
    is_typed = walk["type to"] > walk["type from"]
    ends = slab.slices(walk["at"], walk["ends"])
    typed = map_distinct(ends, partial(_tail_codes, vocabulary, True), 5)
    untyped = map_distinct(ends, partial(_tail_codes, vocabulary, False), 5)
    walk["what"], kind, status, reason, code = (
        np.where(is_typed, one, other) for one, other in zip(typed, untyped, strict=True)
    )
    rows = walk["rows"]
    told.is_decoded[rows] = walk["what"] >= 0
    told.kind[rows], told.status[rows], told.reason[rows], told.code[rows] = kind, status, reason, code
    walk.select(walk["what"] != NONE)
    _set_methods(walk, channels)
    return told


def _skip_tag(walk: Cursor, tag: int) -> None:
    walk.select((walk["at"] < walk["ends"]) & (walk.buffer.bytes_at(walk["at"]) == tag))
    walk["at"] = walk["at"] + 1


def _read_varint(walk: Cursor, name: str, longest: int) -> None:
    """Step over a number and remember it."""
    slab, at = walk.buffer, walk["at"]
    value = np.zeros(len(at), np.uint64)
    size = np.zeros(len(at), np.int64)
    on = np.arange(len(at))
    for step in range(longest):
        octet = slab.bytes_at(at[on] + step)
        value[on] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        last = octet < 0x80
        # Of a tenth byte but one bit has room.
        size[on[last & ((step < _MAX_VARINT_LENGTH - 1) | (octet <= 1))]] = step + 1
        on = on[~last]
        if not len(on):
            break
    walk[name] = value.view(np.int64)
    walk["at"] = at + size
    walk.select((size > 0) & (walk["at"] <= walk["ends"]))


def _read_optional_bytes(walk: Cursor, tag: int, name: str, room: Int64Array) -> None:
    """Step over a field of bytes, if it is there, within this room, and remember it as a span."""
    slab, at = walk.buffer, walk["at"]
    there = (at < room) & (slab.bytes_at(at) == tag)
    size, more = slab.bytes_at(at + 1).astype(np.int64), slab.bytes_at(at + 2).astype(np.int64)
    longer = size >= 0x80
    size = np.where(longer, (size & 0x7F) | more << 7, size)
    begins = at + 2 + longer
    walk[f"{name} from"] = np.where(there, begins, at)
    walk[f"{name} to"] = walk["at"] = np.where(there, begins + size, at)
    walk.select(~there | (~longer | (more < 0x80)) & (walk["at"] <= room))


def _tail_codes(words: StringTables, is_typed: bool, end: bytes) -> tuple[int, int, int, int, int]:
    told = (_interpret_tail if len(end) <= 255 else _interpret_tail.__wrapped__)(is_typed, end)
    if told is None:
        return NONE, NONE, NONE, NONE, NONE
    what = _REQUEST if told.kind == "call" else _ANSWER
    kind, status = words.kind.code(told.kind), words.status.code(told.status)
    return what, kind, status, words.reason.code(told.reason), words.code.code(told.code)


@lru_cache(_CACHE_SIZE)
def _interpret_tail(is_typed: bool, end: bytes) -> MessageRow | None:
    """Return what a message tells that ends so behind its body, with a type in it or without; None if nothing does."""
    if not _is_known_tail(end):
        return None
    try:
        (told,) = mqtt_rows.read_frame(Packet((_TYPED if is_typed else _UNTYPED) + end, False, "/x"))
    except RemoteProtocolError:
        return None
    return told


def _is_known_tail(end: bytes) -> bool:
    """Whether these are fields that say nothing of the id and the body, which may stand there twice."""
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


def _set_methods(walk: Cursor, channels: pa.Array) -> None:
    """Say what Requests call; leave those alone that have no plain name, or are on a topic that is too long."""
    told, rows = walk.decoded, walk["rows"]
    is_request = walk["what"] == _REQUEST
    types = walk.buffer.slices(*walk.span("type")).dictionary_encode()
    topics_by_number = channels.take(pa.array(rows))
    numbers = topics_by_number.indices.fill_null(len(topics_by_number.dictionary)).to_numpy().astype(np.int64)
    pairs, place = np.unique(numbers * len(types.dictionary) + types.indices.to_numpy(), return_inverse=True)
    known = [*topics_by_number.dictionary.to_pylist(), ""]
    written = types.dictionary.to_pylist()
    names = [_resolve_method(known[pair // len(written)], written[pair % len(written)]) for pair in pairs.tolist()]
    words = told.strings
    good = np.array([each is not None for each in names], np.bool_)[place]
    usual = np.array([each is not None and each[2] for each in names], np.bool_)[place]
    method = np.array([words.method.code(each[1] if each else None) for each in names], np.int32)[place]
    told.is_decoded[rows] = good & (usual | ~is_request)
    told.method[rows] = np.where(is_request, method, NONE)
    targets = pa.array([each[0] if each else None for each in names], pa.string())
    numbers = np.zeros(walk.buffer.count, np.int64)
    numbers[rows] = place
    absent = np.ones(walk.buffer.count, np.bool_)
    absent[rows] = ~is_request
    told.targets.values = targets.take(pa.array(numbers, mask=absent))


def _resolve_method(channel: str, type_url: bytes) -> tuple[str, str | None, bool] | None:
    """Return a call's target, its method, and whether nothing more need be known of it; None if it may be refused."""
    if not type_url.isascii() or len(channel) > _MAX_CHANNEL_LENGTH:
        return None
    target, method = mqtt_rows.request_method(channel, type_url.decode())
    return target, method, method is None or not (method in METHODS_WITH_TOPIC or method.startswith(CALLBACK_PREFIX))


def publications(
    slab: PayloadBuffer, channels: pa.Array, from_hub: BoolArray, sizes: Int64Array, vocabulary: StringTables
) -> DecodedColumns:
    """Tell of messages on topics that are the hub's as well; what they hold need not be looked at."""
    told = DecodedColumns(slab, vocabulary)
    told.is_decoded[:] = True
    kinds = vocabulary.kind
    told.kind[:] = np.where(from_hub, kinds.code("event"), kinds.code("publish"))
    told.body_size[:] = sizes
    told.ids.values = pa.nulls(slab.count, pa.string())
    told.targets.values = channels.cast(pa.string())
    number = vocabulary.topic.code
    names = [None if each is None else canonical_topic(each, topics.MQTT) for each in channels.dictionary.to_pylist()]
    table = np.array([*(number(name) for name in names), NONE], np.int32)
    told.topic[:] = table[channels.indices.fill_null(len(names)).to_numpy()]
    return told
