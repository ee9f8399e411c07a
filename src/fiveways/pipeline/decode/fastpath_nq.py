"""Plain requests, answers, failures and acknowledgements of NQ, one to a frame, many frames at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.pipeline.decode import nq_rows
from fiveways.pipeline.decode.cursor import Cursor
from fiveways.pipeline.decode.decoded_columns import NONE, DecodedColumns, StringTables, map_distinct
from fiveways.pipeline.decode.fastpath_umq import method_codes
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int64Array, PayloadBuffer
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.frames import is_name
from fiveways.wire.packet import Packet

_MIN_FRAME_LENGTH: Final = len('{"i":"x"}')
_TOPIC_KEY: Final = b',"topic":"'
_CACHE_SIZE: Final = 4096
_MAX_CACHED_LENGTH: Final = 255
_REQUEST_HEADS: Final = (b'{"t":"x","r":"y","d":0', b'{"t":"y","r":"x","d":10')
_ANSWER_HEADS: Final = (b'{"a":"x","i":"y"', b'{"a":"y","i":"x"')
"""Two beginnings each: what an end makes of both of them does not depend on how a message begins."""


def scan(slab: PayloadBuffer, from_hub: BoolArray, vocabulary: StringTables) -> DecodedColumns:
    """Look at frames of NQ."""
    told = DecodedColumns(slab, vocabulary)
    starts, ends = slab.starts, slab.ends
    good = slab.valid_utf8() & (ends - starts >= _MIN_FRAME_LENGTH)
    good &= (
        slab.matches(starts, b'{"') & (slab.bytes_at(starts + 3) == ord('"')) & (slab.bytes_at(starts + 4) == ord(":"))
    )
    good &= slab.bytes_at(ends - 1) == ord("}")
    key = slab.bytes_at(starts + 2)
    for letter, tell in ((ord("t"), _request), (ord("a"), _answer), (ord("i"), _acknowledgement)):
        rows = np.flatnonzero(good & (key == letter))
        if len(rows):
            tell(Cursor(told, rows=rows, at=starts[rows] + 5, ends=ends[rows] - 1, hub=from_hub[rows]))
    return told


def _request(walk: Cursor) -> None:
    walk.read_text("target")
    walk.skip_literal(b',"r":')
    walk.read_text("id")
    walk.skip_literal(b',"d":')
    walk.select_unescaped("id")
    _event(walk)
    walk.read_body()
    told, rows = walk.decoded, walk["rows"]
    read = partial(_target_codes, told.strings)
    kind, method = map_distinct(walk.buffer.slices(*walk.span("target")), read, 2)
    # Of what the hub says to the target of a topic's end, the plain way knows more.
    closing = walk["hub"] & (kind == _TOPIC_CLOSED_CODE)
    told.is_decoded[rows] = (kind != NONE) & ~closing
    kind = np.where(kind == _TOPIC_CLOSED_CODE, told.strings.kind.code("call"), kind)
    told.kind[rows], told.method[rows] = kind, method
    told.ids.set_spans(rows, *walk.span("id"))
    told.targets.set_spans(rows, *walk.span("target"))


_TOPIC_CLOSED_CODE: Final = -2


def _target_codes(words: StringTables, written: bytes) -> tuple[int, int]:
    target = written.decode()
    if not is_name(target):
        return NONE, NONE
    kind, method = method_codes(words, nq_rows.fold_target, True, written)
    return (_TOPIC_CLOSED_CODE if target == bridge.CLOSED_TARGET else kind), method


def _event(walk: Cursor) -> None:
    """Tell of requests of the hub whose key `topic`, behind the body, makes them events; go on with the others."""
    rows = np.flatnonzero(walk["hub"])
    if not len(rows):
        return
    slab = walk.buffer
    behind = np.full(len(walk), NONE, np.int64)
    behind[rows] = slab.find(_TOPIC_KEY, walk["at"][rows], walk["ends"][rows], near=1 << 20)
    is_event = behind >= 0
    if not is_event.any():
        return
    events = walk.subset(is_event)
    events["whole"], events["ends"] = events["ends"] + 1, behind[is_event]
    events.select_unescaped("target")
    events.read_body()
    told = walk.decoded
    read = partial(_tail_codes, told.strings, _REQUEST_HEADS, True)
    kind, topic, *_ = map_distinct(slab.slices(events["ends"], events["whole"]), read, 6)
    targets = map_distinct(slab.slices(*events.span("target")), lambda each: (is_name(each.decode()) or NONE,), 1)[0]
    found = events["rows"]
    told.is_decoded[found] = (kind == told.strings.kind.code("event")) & (targets > 0)
    told.kind[found], told.topic[found] = kind, topic
    told.ids.set_spans(found, *events.span("id"))
    told.targets.set_spans(found, *events.span("target"))
    walk.select(~is_event)


def _answer(walk: Cursor) -> None:
    walk.read_text("target")
    walk.skip_literal(b',"i":')
    walk.read_text("id")
    walk.select_unescaped("target")
    walk.select_unescaped("id")
    told, slab = walk.decoded, walk.buffer
    accepted = walk["at"] == walk["ends"]
    rows = walk["rows"]
    told.ids.set_spans(rows, *walk.span("id"))
    told.targets.set_spans(rows, *walk.span("target"))
    told.set_kind(rows[accepted], "accepted")
    walk.select(~accepted)
    failed = (walk["ends"] - walk["at"] > 5) & slab.matches(walk["at"], b',"e":')
    _failures(told, walk["rows"][failed], walk["at"][failed], walk["ends"][failed] + 1)
    walk.select(~failed)
    walk.skip_literal(b',"d":')
    walk.read_body()
    told.set_kind(walk["rows"], "result", "result")


def _failures(told: DecodedColumns, rows: Int64Array, starts: Int64Array, ends: Int64Array) -> None:
    if len(rows):
        read = partial(_tail_codes, told.strings, _ANSWER_HEADS, False)
        kind, _, status, reason, code, size = map_distinct(told.buffer.slices(starts, ends), read, 6)
        told.is_decoded[rows] = kind != NONE
        told.kind[rows], told.status[rows], told.reason[rows], told.code[rows] = kind, status, reason, code
        told.body_size[rows] = size


def _tail_codes(
    words: StringTables, beginnings: tuple[bytes, bytes], from_hub: bool, end: bytes
) -> tuple[int, int, int, int, int, int]:
    """Return what a message tells that ends so, by number."""
    told = (_interpret_tail_cached if len(end) <= _MAX_CACHED_LENGTH else _interpret_tail)(beginnings, from_hub, end)
    if told is None:
        return NONE, NONE, NONE, NONE, NONE, NONE
    return (
        words.kind.code(told.kind),
        words.topic.code(told.topic),
        words.status.code(told.status),
        words.reason.code(told.reason),
        words.code.code(told.code),
        told.body_size or 0,
    )


def _interpret_tail(beginnings: tuple[bytes, bytes], from_hub: bool, end: bytes) -> MessageRow | None:
    one, other = (_read_single(beginning + end, from_hub) for beginning in beginnings)
    if one is None or other is None or (one.target, one.id, other.target, other.id) != ("x", "y", "y", "x"):
        return None
    # The bodies of the two requests differ in length, and those of the answers are in their ends.
    grows = (other.body_size or 0) - (one.body_size or 0)
    return one if grows == (beginnings is _REQUEST_HEADS) else None


_interpret_tail_cached: Final = lru_cache(_CACHE_SIZE)(_interpret_tail)


def _read_single(payload: bytes, from_hub: bool) -> MessageRow | None:
    try:
        messages = nq_rows.read(Packet(payload))
    except RemoteProtocolError:
        return None
    told = nq_rows.to_rows(messages[0], from_hub=from_hub) if len(messages) == 1 else []
    return told[0] if len(told) == 1 else None


def _acknowledgement(walk: Cursor) -> None:
    walk.read_text("target")
    walk.select(walk["at"] == walk["ends"])
    walk.select_unescaped("target")
    walk.decoded.set_kind(walk["rows"], "ack")
    walk.decoded.targets.set_spans(walk["rows"], *walk.span("target"))
