"""Plain Requests and Responses of RPC over MQTT, and publications on bridged topics, many at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import mqtt_rows
from fiveways.pipeline.decode.rows import CALLBACKS, TOPICAL, Message, topic_of
from fiveways.pipeline.decode.slab import Flags, Places, Slab
from fiveways.pipeline.decode.told import NONE, Told, Vocabulary, distinct
from fiveways.pipeline.decode.walk import Walk
from fiveways.wire.packet import Packet

_ID, _BODY, _TYPE, _VALUE = 0x08, 0x12, 0x0A, 0x12
_LONGEST_NUMBER: Final = 10
_LONGEST_CHANNEL: Final = 255
_REMEMBERED: Final = 1 << 16
_BEHIND: Final = frozenset({0x18, 0x20, 0x28, 0x30})
"""The fields behind the body that are numbers."""
_ERROR: Final = 0x1A
_TYPED: Final = b"\x08\x01\x12\x03\x0a\x01x"
_UNTYPED: Final = b"\x08\x01\x12\x00"
_REQUEST, _ANSWER = 1, 0


def scan(slab: Slab, channels: pa.Array, vocabulary: Vocabulary) -> Told:
    """Look at frames of RPC over MQTT on these topics."""
    told = Told(slab, vocabulary)
    walk = Walk(told, rows=np.arange(slab.count), at=slab.starts, ends=slab.ends)
    _tag(walk, _ID)
    _varint(walk, "id", _LONGEST_NUMBER)
    _optional(walk, _BODY, "body", walk["ends"])
    walk["behind"] = walk["at"]
    walk["at"] = walk["body from"]
    _optional(walk, _TYPE, "type", walk["behind"])
    _optional(walk, _VALUE, "value", walk["behind"])
    walk.keep(walk["at"] == walk["behind"])
    numbers = np.zeros(slab.count, np.uint64)
    numbers[walk["rows"]] = walk["id"].view(np.uint64)
    told.ids.given = pa.array(numbers).cast(pa.string())
    told.targets.given = pa.nulls(slab.count, pa.string())
    told.body_size[walk["rows"]] = walk["value to"] - walk["value from"]
    is_typed = walk["type to"] > walk["type from"]
    ends = slab.cut(walk["at"], walk["ends"])
    typed = distinct(ends, partial(_numbers, vocabulary, True), 5)
    untyped = distinct(ends, partial(_numbers, vocabulary, False), 5)
    walk["what"], kind, status, reason, code = (
        np.where(is_typed, one, other) for one, other in zip(typed, untyped, strict=True)
    )
    rows = walk["rows"]
    told.sure[rows] = walk["what"] >= 0
    told.kind[rows], told.status[rows], told.reason[rows], told.code[rows] = kind, status, reason, code
    walk.keep(walk["what"] != NONE)
    _name(walk, channels)
    return told


def _tag(walk: Walk, tag: int) -> None:
    walk.keep((walk["at"] < walk["ends"]) & (walk.slab.at(walk["at"]) == tag))
    walk["at"] = walk["at"] + 1


def _varint(walk: Walk, name: str, longest: int) -> None:
    """Step over a number and remember it."""
    slab, at = walk.slab, walk["at"]
    value = np.zeros(len(at), np.uint64)
    size = np.zeros(len(at), np.int64)
    on = np.arange(len(at))
    for step in range(longest):
        octet = slab.at(at[on] + step)
        value[on] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        last = octet < 0x80
        # Of a tenth byte but one bit has room.
        size[on[last & ((step < _LONGEST_NUMBER - 1) | (octet <= 1))]] = step + 1
        on = on[~last]
        if not len(on):
            break
    walk[name] = value.view(np.int64)
    walk["at"] = at + size
    walk.keep((size > 0) & (walk["at"] <= walk["ends"]))


def _optional(walk: Walk, tag: int, name: str, room: Places) -> None:
    """Step over a field of bytes, if it is there, within this room, and remember it as a span."""
    slab, at = walk.slab, walk["at"]
    there = (at < room) & (slab.at(at) == tag)
    size, more = slab.at(at + 1).astype(np.int64), slab.at(at + 2).astype(np.int64)
    longer = size >= 0x80
    size = np.where(longer, (size & 0x7F) | more << 7, size)
    begins = at + 2 + longer
    walk[f"{name} from"] = np.where(there, begins, at)
    walk[f"{name} to"] = walk["at"] = np.where(there, begins + size, at)
    walk.keep(~there | (~longer | (more < 0x80)) & (walk["at"] <= room))


def _numbers(words: Vocabulary, is_typed: bool, end: bytes) -> tuple[int, int, int, int, int]:
    told = (_told if len(end) <= 255 else _told.__wrapped__)(is_typed, end)
    if told is None:
        return NONE, NONE, NONE, NONE, NONE
    what = _REQUEST if told.kind == "call" else _ANSWER
    kind, status = words.kind.number(told.kind), words.status.number(told.status)
    return what, kind, status, words.reason.number(told.reason), words.code.number(told.code)


@lru_cache(_REMEMBERED)
def _told(is_typed: bool, end: bytes) -> Message | None:
    """Return what a message tells that ends so behind its body, with a type in it or without; None if nothing does."""
    if not _is_end(end):
        return None
    try:
        (told,) = mqtt_rows.read(Packet((_TYPED if is_typed else _UNTYPED) + end, False, "/x"))
    except RemoteProtocolError:
        return None
    return told


def _is_end(end: bytes) -> bool:
    """Whether these are fields that say nothing of the id and the body, which may stand there twice."""
    at = 0
    while at < len(end):
        tag = end[at]
        at += 1
        if tag in _BEHIND:
            while at < len(end) and end[at] >= 0x80:
                at += 1
            at += 1
        elif tag == _ERROR and at < len(end) and end[at] < 0x80:
            at += 1 + end[at]
        else:
            return False
    return at == len(end)


def _name(walk: Walk, channels: pa.Array) -> None:
    """Say what Requests call; leave those alone that have no plain name, or are on a topic that is too long."""
    told, rows = walk.told, walk["rows"]
    is_request = walk["what"] == _REQUEST
    types = walk.slab.cut(*walk.span("type")).dictionary_encode()
    topics_by_number = channels.take(pa.array(rows))
    numbers = topics_by_number.indices.fill_null(len(topics_by_number.dictionary)).to_numpy().astype(np.int64)
    pairs, place = np.unique(numbers * len(types.dictionary) + types.indices.to_numpy(), return_inverse=True)
    known = [*topics_by_number.dictionary.to_pylist(), ""]
    written = types.dictionary.to_pylist()
    names = [_named(known[pair // len(written)], written[pair % len(written)]) for pair in pairs.tolist()]
    words = told.words
    good = np.array([each is not None for each in names], np.bool_)[place]
    usual = np.array([each is not None and each[2] for each in names], np.bool_)[place]
    method = np.array([words.method.number(each[1] if each else None) for each in names], np.int32)[place]
    told.sure[rows] = good & (usual | ~is_request)
    told.method[rows] = np.where(is_request, method, NONE)
    targets = pa.array([each[0] if each else None for each in names], pa.string())
    numbers = np.zeros(walk.slab.count, np.int64)
    numbers[rows] = place
    absent = np.ones(walk.slab.count, np.bool_)
    absent[rows] = ~is_request
    told.targets.given = targets.take(pa.array(numbers, mask=absent))


def _named(channel: str, type_url: bytes) -> tuple[str, str | None, bool] | None:
    """Return a call's target, its method, and whether nothing more need be known of it; None if it may be refused."""
    if not type_url.isascii() or len(channel) > _LONGEST_CHANNEL:
        return None
    target, method = mqtt_rows.named(channel, type_url.decode())
    return target, method, method is None or not (method in TOPICAL or method.startswith(CALLBACKS))


def publications(slab: Slab, channels: pa.Array, from_hub: Flags, sizes: Places, vocabulary: Vocabulary) -> Told:
    """Tell of messages on topics that are the hub's as well; what they hold need not be looked at."""
    told = Told(slab, vocabulary)
    told.sure[:] = True
    kinds = vocabulary.kind
    told.kind[:] = np.where(from_hub, kinds.number("event"), kinds.number("publish"))
    told.body_size[:] = sizes
    told.ids.given = pa.nulls(slab.count, pa.string())
    told.targets.given = channels.cast(pa.string())
    number = vocabulary.topic.number
    names = [None if each is None else topic_of(each, topics.MQTT) for each in channels.dictionary.to_pylist()]
    table = np.array([*(number(name) for name in names), NONE], np.int32)
    told.topic[:] = table[channels.indices.fill_null(len(names)).to_numpy()]
    return told
