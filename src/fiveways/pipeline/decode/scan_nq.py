"""Plain requests, answers, failures and acknowledgements of NQ, one to a frame, many frames at once."""

from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.pipeline.decode import nq_rows
from fiveways.pipeline.decode.rows import Message
from fiveways.pipeline.decode.scan_umq import read_name
from fiveways.pipeline.decode.slab import Flags, Places, Slab
from fiveways.pipeline.decode.told import NONE, Told, Vocabulary, distinct
from fiveways.pipeline.decode.walk import Walk
from fiveways.protocols.nq import bridge
from fiveways.protocols.nq.frames import is_name
from fiveways.wire.packet import Packet

_SHORTEST: Final = len('{"i":"x"}')
_TOPIC: Final = b',"topic":"'
_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 255
_REQUESTS: Final = (b'{"t":"x","r":"y","d":0', b'{"t":"y","r":"x","d":10')
_ANSWERS: Final = (b'{"a":"x","i":"y"', b'{"a":"y","i":"x"')
"""Two beginnings each: what an end makes of both of them does not depend on how a message begins."""


def scan(slab: Slab, from_hub: Flags, vocabulary: Vocabulary) -> Told:
    """Look at frames of NQ."""
    told = Told(slab, vocabulary)
    starts, ends = slab.starts, slab.ends
    good = slab.are_text() & (ends - starts >= _SHORTEST)
    good &= slab.has(starts, b'{"') & (slab.at(starts + 3) == ord('"')) & (slab.at(starts + 4) == ord(":"))
    good &= slab.at(ends - 1) == ord("}")
    key = slab.at(starts + 2)
    for letter, tell in ((ord("t"), _request), (ord("a"), _answer), (ord("i"), _acknowledgement)):
        rows = np.flatnonzero(good & (key == letter))
        if len(rows):
            tell(Walk(told, rows=rows, at=starts[rows] + 5, ends=ends[rows] - 1, hub=from_hub[rows]))
    return told


def _request(walk: Walk) -> None:
    walk.text("target")
    walk.skip(b',"r":')
    walk.text("id")
    walk.skip(b',"d":')
    walk.plain("id")
    _event(walk)
    walk.body()
    told, rows = walk.told, walk["rows"]
    read = partial(_read_target, told.words)
    kind, method = distinct(walk.slab.cut(*walk.span("target")), read, 2)
    # Of what the hub says to the target of a topic's end, the plain way knows more.
    closing = walk["hub"] & (kind == _CLOSED)
    told.sure[rows] = (kind != NONE) & ~closing
    kind = np.where(kind == _CLOSED, told.words.kind.number("call"), kind)
    told.kind[rows], told.method[rows] = kind, method
    told.ids.set(rows, *walk.span("id"))
    told.targets.set(rows, *walk.span("target"))


_CLOSED: Final = -2


def _read_target(words: Vocabulary, written: bytes) -> tuple[int, int]:
    target = written.decode()
    if not is_name(target):
        return NONE, NONE
    kind, method = read_name(words, nq_rows.method_of, True, written)
    return (_CLOSED if target == bridge.CLOSED else kind), method


def _event(walk: Walk) -> None:
    """Tell of requests of the hub whose key `topic`, behind the body, makes them events; go on with the others."""
    rows = np.flatnonzero(walk["hub"])
    if not len(rows):
        return
    slab = walk.slab
    behind = np.full(len(walk), NONE, np.int64)
    behind[rows] = slab.find(_TOPIC, walk["at"][rows], walk["ends"][rows], near=1 << 20)
    is_event = behind >= 0
    if not is_event.any():
        return
    events = walk.fork(is_event)
    events["whole"], events["ends"] = events["ends"] + 1, behind[is_event]
    events.plain("target")
    events.body()
    told = walk.told
    read = partial(_read_end, told.words, _REQUESTS, True)
    kind, topic, *_ = distinct(slab.cut(events["ends"], events["whole"]), read, 6)
    targets = distinct(slab.cut(*events.span("target")), lambda each: (is_name(each.decode()) or NONE,), 1)[0]
    found = events["rows"]
    told.sure[found] = (kind == told.words.kind.number("event")) & (targets > 0)
    told.kind[found], told.topic[found] = kind, topic
    told.ids.set(found, *events.span("id"))
    told.targets.set(found, *events.span("target"))
    walk.keep(~is_event)


def _answer(walk: Walk) -> None:
    walk.text("target")
    walk.skip(b',"i":')
    walk.text("id")
    walk.plain("target")
    walk.plain("id")
    told, slab = walk.told, walk.slab
    accepted = walk["at"] == walk["ends"]
    rows = walk["rows"]
    told.ids.set(rows, *walk.span("id"))
    told.targets.set(rows, *walk.span("target"))
    told.tell(rows[accepted], "accepted")
    walk.keep(~accepted)
    failed = (walk["ends"] - walk["at"] > 5) & slab.has(walk["at"], b',"e":')
    _failures(told, walk["rows"][failed], walk["at"][failed], walk["ends"][failed] + 1)
    walk.keep(~failed)
    walk.skip(b',"d":')
    walk.body()
    told.tell(walk["rows"], "result", "result")


def _failures(told: Told, rows: Places, starts: Places, ends: Places) -> None:
    if len(rows):
        read = partial(_read_end, told.words, _ANSWERS, False)
        kind, _, status, reason, code, size = distinct(told.slab.cut(starts, ends), read, 6)
        told.sure[rows] = kind != NONE
        told.kind[rows], told.status[rows], told.reason[rows], told.code[rows] = kind, status, reason, code
        told.body_size[rows] = size


def _read_end(
    words: Vocabulary, beginnings: tuple[bytes, bytes], from_hub: bool, end: bytes
) -> tuple[int, int, int, int, int, int]:
    """Return what a message tells that ends so, by number."""
    told = (_told if len(end) <= _LONGEST_REMEMBERED else _look)(beginnings, from_hub, end)
    if told is None:
        return NONE, NONE, NONE, NONE, NONE, NONE
    return (
        words.kind.number(told.kind),
        words.topic.number(told.topic),
        words.status.number(told.status),
        words.reason.number(told.reason),
        words.code.number(told.code),
        told.body_size or 0,
    )


def _look(beginnings: tuple[bytes, bytes], from_hub: bool, end: bytes) -> Message | None:
    one, other = (_alone(beginning + end, from_hub) for beginning in beginnings)
    if one is None or other is None or (one.target, one.id, other.target, other.id) != ("x", "y", "y", "x"):
        return None
    # The bodies of the two requests differ in length, and those of the answers are in their ends.
    grows = (other.body_size or 0) - (one.body_size or 0)
    return one if grows == (beginnings is _REQUESTS) else None


_told: Final = lru_cache(_REMEMBERED)(_look)


def _alone(payload: bytes, from_hub: bool) -> Message | None:
    try:
        messages = nq_rows.read(Packet(payload))
    except RemoteProtocolError:
        return None
    told = nq_rows.tell(messages[0], from_hub=from_hub) if len(messages) == 1 else []
    return told[0] if len(told) == 1 else None


def _acknowledgement(walk: Walk) -> None:
    walk.text("target")
    walk.keep(walk["at"] == walk["ends"])
    walk.plain("target")
    walk.told.tell(walk["rows"], "ack")
    walk.told.targets.set(walk["rows"], *walk.span("target"))
