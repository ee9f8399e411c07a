"""Plain calls, results, failures, publications and events of LRPM in JSON, many at once.

A frame is sure if it is a beginning that is known byte by byte, a body that is one JSON value, and an end that the
protocol's own reader takes behind another body.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.rows import LIMITS, STATUS, topic_of
from fiveways.pipeline.decode.scan_umq import read_name
from fiveways.pipeline.decode.slab import Flags, Places, Slab
from fiveways.pipeline.decode.told import NONE, Told, Vocabulary, distinct
from fiveways.pipeline.decode.walk import Walk
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.packet import Packet

_EMPTY_META: Final = b",{}]"
_HEAD: Final = len("[40,")
_SHORTEST: Final = len("[41,0,0,{}]")
_SAID_BEFORE: Final = b"[41,0,0"
_LONGEST_META: Final = 128
_REMEMBERED: Final = 1 << 16


def scan(slab: Slab, from_hub: Flags, vocabulary: Vocabulary) -> Told:
    """Look at frames of LRPM in JSON."""
    told = Told(slab, vocabulary)
    starts = slab.starts
    good = slab.are_text() & (slab.ends - starts >= _SHORTEST)
    good &= (slab.at(starts) == ord("[")) & (slab.at(starts + 3) == ord(","))
    tails, result, event, topic = _tails(told, good)
    good &= tails >= 0
    tens, ones = slab.at(starts + 1), slab.at(starts + 2)
    for kind, tell in _TELLERS.items():
        rows = np.flatnonzero(good & (tens == kind[0]) & (ones == kind[1]))
        if len(rows):
            known = {"result": result[rows], "event": event[rows], "topic": topic[rows], "hub": from_hub[rows]}
            tell(Walk(told, rows=rows, at=starts[rows] + _HEAD, ends=tails[rows], **known))
    return told


def _tails(told: Told, good: Flags) -> tuple[Places, ...]:
    """Return where the comma before each meta stands, NONE if that is not known, and what the meta makes of a frame."""
    slab, words = told.slab, told.words
    meanings = [np.full(slab.count, each, np.int64) for each in (NONE, *_numbers(words, _EMPTY_META)[1:])]
    tails = meanings[0]
    empty = good & slab.has(slab.ends - len(_EMPTY_META), _EMPTY_META)
    tails[empty] = slab.ends[empty] - len(_EMPTY_META)
    rows = np.flatnonzero(good & ~empty)
    if len(rows):
        comma = _last_braces(slab, rows) - 1
        inside = comma > slab.starts[rows] + _HEAD
        rows, comma = rows[inside], comma[inside]
        found = distinct(slab.cut(comma, slab.ends[rows]), partial(_numbers, words), 4)
        known = found[0] >= 0
        tails[rows[known]] = comma[known]
        for meaning, column in zip(meanings[1:], found[1:], strict=True):
            meaning[rows[known]] = column[known]
    return tuple(meanings)


def _last_braces(slab: Slab, rows: Places) -> Places:
    """Return where the last opening brace stands in these rows, 0 if it is not near their ends."""
    starts = np.maximum(slab.starts[rows], slab.ends[rows] - _LONGEST_META)
    near = Slab(slab.cut(starts, slab.ends[rows]))
    braces = np.concatenate([[NONE], np.flatnonzero(near.data == ord("{"))])
    last = braces[np.searchsorted(braces, near.ends) - 1]
    return np.where(last >= near.starts, last - near.starts + starts, 0)


def _numbers(words: Vocabulary, tail: bytes) -> tuple[int, int, int, int]:
    meaning = _meaning(tail)
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, words.kind.number(result), words.kind.number(event), words.topic.number(topic)


@lru_cache(_REMEMBERED)
def _meaning(tail: bytes) -> tuple[str, str, str | None] | None:
    """Return what a RESULT and an EVENT are that end so, and the topic that they name; None if nothing ends so."""
    try:
        message = lrpm.JSON_CODEC.decode(Packet(_SAID_BEFORE + tail), LIMITS)
    except RemoteProtocolError:
        return None
    if not tail.startswith(b",{") or not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.kind_of_result(message.meta), *lrpm_rows.event_of(message.meta)


def _call(walk: Walk) -> None:
    walk.number("id")
    walk.skip(b",")
    walk.text("target")
    walk.skip(b",")
    walk.body()
    told = walk.told
    read = partial(read_name, told.words, lrpm_rows.method_of, True)
    kind, method = distinct(walk.slab.cut(*walk.span("target")), read, 2)
    rows = walk["rows"]
    told.sure[rows] = kind != NONE
    told.kind[rows], told.method[rows] = kind, method
    told.ids.set(rows, *walk.span("id"))
    told.targets.set(rows, *walk.span("target"))


def _result(walk: Walk) -> None:
    walk.number("id")
    walk.skip(b",")
    walk.body()
    told, rows = walk.told, walk["rows"]
    told.sure[rows] = True
    told.kind[rows] = walk["result"]
    is_end = walk["result"] == told.words.kind.number("result")
    told.status[rows] = np.where(is_end, told.words.status.number("result"), NONE)
    told.ids.set(rows, *walk.span("id"))


def _error(walk: Walk) -> None:
    slab, at = walk.slab, walk["at"]
    # The kind of the request, of two digits as all kinds of requests are.
    tens, ones = slab.at(at) - np.uint8(ord("0")), slab.at(at + 1) - np.uint8(ord("0"))
    walk.keep((tens > 0) & (tens < 10) & (ones < 10))
    walk["at"] = walk["at"] + 2
    walk.skip(b",")
    walk.number("id")
    walk.skip(b",")
    walk.text("uri")
    walk.skip(b",")
    walk.body()
    uris = walk.plain("uri")
    told, rows = walk.told, walk["rows"]
    told.tell(rows, "failure")
    told.ids.set(rows, *walk.span("id"))

    def read(uri: bytes) -> tuple[int, int, int, int, int]:
        words, written = told.words, uri.decode()
        numbers = [words.code.number(written)]
        for hub in (False, True):
            reason = lrpm_rows.reason_of(written, from_hub=hub)
            numbers += words.status.number(STATUS[reason]), words.reason.number(reason.name.lower())
        code, status, why, hub_status, hub_why = numbers
        return code, status, why, hub_status, hub_why

    code, status, why, hub_status, hub_why = distinct(uris, read, 5)
    told.code[rows] = code
    told.status[rows] = np.where(walk["hub"], hub_status, status)
    told.reason[rows] = np.where(walk["hub"], hub_why, why)


def _event(walk: Walk) -> None:
    walk.number("publication")
    walk.skip(b",")
    walk.number("target")
    walk.skip(b",")
    walk.body()
    told, rows = walk.told, walk["rows"]
    told.sure[rows] = True
    told.kind[rows], told.topic[rows] = walk["event"], walk["topic"]
    told.targets.set(rows, *walk.span("target"))


def _publish(walk: Walk) -> None:
    walk.number("id")
    walk.skip(b",")
    walk.text("target")
    walk.skip(b",")
    walk.body()
    written = walk.plain("target")
    told, rows = walk.told, walk["rows"]
    told.tell(rows, "publish")
    told.ids.set(rows, *walk.span("id"))
    told.targets.set(rows, *walk.span("target"))
    number = told.words.topic.number
    (told.topic[rows],) = distinct(written, lambda each: (number(topic_of(each.decode(), topics.LRPM)),), 1)


def _published(walk: Walk) -> None:
    walk.number("id")
    walk.skip(b",")
    walk.number("target")
    walk.keep(walk["at"] == walk["ends"])
    told, rows = walk.told, walk["rows"]
    told.tell(rows, "result", "result")
    told.ids.set(rows, *walk.span("id"))
    told.targets.set(rows, *walk.span("target"))


_TELLERS: Final[dict[bytes, Callable[[Walk], None]]] = {
    b"40": _call,
    b"41": _result,
    b"20": _error,
    b"60": _event,
    b"61": _publish,
    b"62": _published,
}
