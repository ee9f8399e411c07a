"""Plain calls, results, failures, publications and events of LRPM in CBOR, many at once.

All frames step from item to item together. What is neither a short item, nor an array or map of a known, small number
of items, is left to the plain way.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from fiveways.errors import RemoteProtocolError
from fiveways.model import topics
from fiveways.pipeline.decode import lrpm_rows
from fiveways.pipeline.decode.rows import LIMITS, STATUS, topic_of
from fiveways.pipeline.decode.scan_umq import read_name
from fiveways.pipeline.decode.slab import Flags, Places, Slab
from fiveways.pipeline.decode.told import NONE, Told, Vocabulary, distinct
from fiveways.pipeline.decode.walk import Walk
from fiveways.protocols.lrpm import messages as lrpm
from fiveways.wire.cborscan import WIDTH
from fiveways.wire.packet import Packet

_MOST_STEPS: Final = 64
"""Items of a body; there are few containers among so few of them."""
_WIDTHS: Final = np.array(WIDTH, np.int64)
_SAID_BEFORE: Final = b"\x84\x18\x29\x00\xf6"
_REMEMBERED: Final = 1 << 16
_EMPTY: Final = b"\xa0"


def scan(slab: Slab, from_hub: Flags, vocabulary: Vocabulary) -> Told:
    """Look at frames of LRPM in CBOR."""
    told = Told(slab, vocabulary)
    told.ids.given = told.targets.given = pa.nulls(slab.count, pa.string())
    found = _Numbers(slab.count)
    starts = slab.starts
    long = slab.ends - starts > 5
    array, kind, number = slab.at(starts), slab.at(starts + 1), slab.at(starts + 2)
    for items, code, tell in _TELLERS:
        rows = np.flatnonzero(long & (array == 0x80 + items) & (kind == 0x18) & (number == code))
        if len(rows):
            tell(_Steps(told, rows=rows, at=starts[rows] + 3, ends=slab.ends[rows], hub=from_hub[rows]), found)
    # The kind of the request that failed is in a byte of its own, and any will do.
    rows = np.flatnonzero(long & (array == 0x86) & (kind == 0x14) & (number == 0x18))
    if len(rows):
        _error(_Steps(told, rows=rows, at=starts[rows] + 4, ends=slab.ends[rows], hub=from_hub[rows]), found)
    told.ids.given, told.targets.given = found.ids(), found.texts(slab)
    return told


class _Numbers:
    """The ids and targets of all rows: numbers, or in a target's place a span."""

    def __init__(self, count: int) -> None:
        self.id = np.zeros(count, np.uint64)
        self.has_id = np.zeros(count, np.bool_)
        self.target = np.zeros(count, np.uint64)
        self.has_target = np.zeros(count, np.bool_)
        self.starts = np.full(count, NONE, np.int64)
        self.ends = np.full(count, NONE, np.int64)

    def ids(self) -> pa.Array:
        """Return the ids, written down."""
        return pa.array(self.id, mask=~self.has_id).cast(pa.string())

    def texts(self, slab: Slab) -> pa.Array:
        """Return the targets."""
        spans = self.starts >= 0
        written = slab.cut(self.starts[spans], self.ends[spans]).view(pa.string())
        numbers = pa.array(self.target[self.has_target]).cast(pa.string())
        places = np.where(spans, np.cumsum(spans) - 1, len(written) + np.cumsum(self.has_target) - 1)
        return pa.concat_arrays([written, numbers]).take(pa.array(places, mask=~(spans | self.has_target)))


class _Steps(Walk):
    """The same steps in another encoding."""

    def uint(self, name: str) -> None:
        """Step over an unsigned integer, and remember it."""
        slab, at = self.slab, self["at"]
        code = slab.at(at)
        value = code.astype(np.uint64)
        width = np.zeros(len(at), np.int64)
        for low, size in ((0x18, 1), (0x19, 2), (0x1A, 4), (0x1B, 8)):
            rows = np.flatnonzero(code == low)
            width[rows] = size
            number = np.zeros(len(rows), np.uint64)
            for step in range(1, size + 1):
                number = number << np.uint64(8) | slab.at(at[rows] + step)
            value[rows] = number
        self[name] = value.view(np.int64)
        self["at"] = at + 1 + width
        self.keep((code <= 0x1B) & (self["at"] < self["ends"]))

    def string(self, name: str) -> None:
        """Step over a short text, and remember it as a span; it may still not be UTF-8."""
        slab, at = self.slab, self["at"]
        code = slab.at(at).astype(np.int64)
        longer = code == 0x78
        begins = at + 1 + longer
        size = np.where(longer, slab.at(at + 1), code - 0x60)
        self._remember(name, begins, begins + size)
        self["at"] = begins + size
        self.keep(((code >= 0x60) & (code < 0x78) | longer) & (self["at"] < self["ends"]))

    def item(self) -> None:
        """Step over the body, item by item, and read the meta behind it by number."""
        begins = self["at"]
        self["at"] = _behind(self.slab, begins, self["ends"])
        self["body"] = self["at"] - begins
        self.keep(self["at"] >= 0)
        words = self.told.words
        only_empty = (self["ends"] - self["at"] == 1) & (self.slab.at(self["at"]) == _EMPTY[0])
        result, event, topic = (np.full(len(self), each, np.int64) for each in _numbers(words, _EMPTY)[1:])
        good = only_empty.copy()
        rest = np.flatnonzero(~only_empty)
        if len(rest):
            metas = self.slab.cut(self["at"][rest], self["ends"][rest])
            known, result[rest], event[rest], topic[rest] = distinct(metas, partial(_numbers, words), 4)
            good[rest] = known >= 0
        self["result"], self["event"], self["topic"] = result, event, topic
        self.keep(good)
        self.told.body_size[self["rows"]] = self["body"]


def _behind(slab: Slab, at: Places, ends: Places) -> Places:
    """Return the places behind items that are found well-formed; -1 where that takes a closer look."""
    found = np.full(len(at), NONE, np.int64)
    rows = np.arange(len(at))
    todo = np.ones(len(at), np.int64)
    for _ in range(_MOST_STEPS):
        if not len(rows):
            break
        code = slab.at(at)
        width = _WIDTHS[code]
        low = (code & 0x1F).astype(np.int64)
        is_array, is_map = (code >= 0x80) & (code < 0x98), (code >= 0xA0) & (code < 0xB8)
        is_longer = code == 0x78
        text = (width < 0) | is_longer
        step = np.abs(width)
        step[is_array | is_map] = 1
        if is_longer.any():
            step[is_longer] = 2 + slab.at(at[is_longer] + 1)
        good = (step > 0) & (at + step <= ends)
        good[good & text] = _are_utf8(slab, (at + 1 + is_longer)[good & text], (at + step)[good & text])
        todo = todo - 1 + low * is_array + 2 * low * is_map
        at = at + step
        done = good & (todo == 0)
        found[rows[done]] = at[done]
        on = good & ~done
        rows, at, ends, todo = rows[on], at[on], ends[on], todo[on]
    return found


def _are_utf8(slab: Slab, starts: Places, ends: Places) -> Flags:
    texts = slab.cut(starts, ends)
    octets = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not len(octets) or octets.max() < 0x80:
        return np.ones(len(starts), np.bool_)
    return Slab(texts).are_text()


def _numbers(words: Vocabulary, meta: bytes) -> tuple[int, int, int, int]:
    meaning = _meaning(meta) if len(meta) <= 255 else None
    if meaning is None:
        return NONE, NONE, NONE, NONE
    result, event, topic = meaning
    return 0, words.kind.number(result), words.kind.number(event), words.topic.number(topic)


@lru_cache(_REMEMBERED)
def _meaning(meta: bytes) -> tuple[str, str, str | None] | None:
    """Return what a RESULT and an EVENT are with this meta, and the topic that they name; None if it is none."""
    try:
        message = lrpm.CBOR_CODEC.decode(Packet(_SAID_BEFORE + meta, is_text=False), LIMITS)
    except RemoteProtocolError:
        return None
    if not isinstance(message, lrpm.Result):
        return None
    return lrpm_rows.kind_of_result(message.meta), *lrpm_rows.event_of(message.meta)


def _identify(steps: _Steps, found: _Numbers) -> Places:
    rows = steps["rows"]
    found.id[rows] = steps["id"].view(np.uint64)
    found.has_id[rows] = True
    return rows


def _call(steps: _Steps, found: _Numbers) -> None:
    steps.uint("id")
    steps.string("target")
    steps.item()
    told, rows = steps.told, _identify(steps, found)
    written = steps.slab.cut(*steps.span("target"))
    kind, method = distinct(written, partial(_read_uri, told.words), 2)
    told.sure[rows] = kind != NONE
    told.kind[rows], told.method[rows] = kind, method
    found.starts[rows], found.ends[rows] = steps.span("target")


def _read_uri(words: Vocabulary, uri: bytes) -> tuple[int, int]:
    return read_name(words, lrpm_rows.method_of, False, uri) if uri.isascii() else (NONE, NONE)


def _result(steps: _Steps, found: _Numbers) -> None:
    steps.uint("id")
    steps.item()
    told, rows = steps.told, _identify(steps, found)
    told.sure[rows] = True
    told.kind[rows] = steps["result"]
    is_end = steps["result"] == told.words.kind.number("result")
    told.status[rows] = np.where(is_end, told.words.status.number("result"), NONE)


def _error(steps: _Steps, found: _Numbers) -> None:
    steps.uint("id")
    steps.string("uri")
    steps.item()
    told, rows = steps.told, _identify(steps, found)
    hub = steps["hub"]

    def read(uri: bytes) -> tuple[int, ...]:
        words = told.words
        if not uri.isascii():
            return (NONE,) * 5
        numbers = [words.code.number(uri.decode() or None)]
        for from_hub in (False, True):
            reason = lrpm_rows.reason_of(uri.decode(), from_hub=from_hub)
            numbers += words.status.number(STATUS[reason]), words.reason.number(reason.name.lower())
        return tuple(numbers)

    code, status, why, hub_status, hub_why = distinct(steps.slab.cut(*steps.span("uri")), read, 5)
    told.tell(rows, "failure")
    told.sure[rows] = status != NONE
    told.code[rows] = code
    told.status[rows], told.reason[rows] = np.where(hub, hub_status, status), np.where(hub, hub_why, why)


def _event(steps: _Steps, found: _Numbers) -> None:
    steps.uint("publication")
    steps.uint("target")
    steps.item()
    told, rows = steps.told, steps["rows"]
    told.sure[rows] = True
    told.kind[rows], told.topic[rows] = steps["event"], steps["topic"]
    found.target[rows] = steps["target"].view(np.uint64)
    found.has_target[rows] = True


def _publish(steps: _Steps, found: _Numbers) -> None:
    steps.uint("id")
    steps.string("target")
    steps.item()
    told, rows = steps.told, _identify(steps, found)
    number = told.words.topic.number

    def read(topic: bytes) -> tuple[int, int]:
        return (0, number(topic_of(topic.decode(), topics.LRPM))) if topic.isascii() else (NONE, NONE)

    known, topic = distinct(steps.slab.cut(*steps.span("target")), read, 2)
    told.tell(rows, "publish")
    told.sure[rows] = known >= 0
    told.topic[rows] = topic
    found.starts[rows], found.ends[rows] = steps.span("target")


def _published(steps: _Steps, found: _Numbers) -> None:
    steps.uint("id")
    steps.uint("target")
    steps.keep((steps["ends"] - steps["at"] == 1) & (steps.slab.at(steps["at"]) == _EMPTY[0]))
    rows = _identify(steps, found)
    steps.told.tell(rows, "result", "result")
    found.target[rows] = steps["target"].view(np.uint64)
    found.has_target[rows] = True


_TELLERS: Final[tuple[tuple[int, int, Callable[[_Steps, _Numbers], None]], ...]] = (
    (5, 40, _call),
    (4, 41, _result),
    (5, 60, _event),
    (5, 61, _publish),
    (4, 62, _published),
)
"""The items of a frame, its kind, and who tells of it."""
