"""Plain calls, results, failures and updates of both dialects of UMQ, many at once."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.model import names
from fiveways.model.failures import Reason
from fiveways.model.names import NameStyle
from fiveways.pipeline.decode import rows as told_rows
from fiveways.pipeline.decode import umq_rows
from fiveways.pipeline.decode.bodies import are_json
from fiveways.pipeline.decode.rows import STATUS
from fiveways.pipeline.decode.slab import Flags, Octets, Places, Slab
from fiveways.pipeline.decode.told import NONE, Told, Vocabulary, distinct

_LONGEST_ID: Final = 255
_FEW_DIGITS: Final = 12
"""Of base 36: too few to be beyond 64 bits."""
_CODE: Final = 10
"""Bytes in which a code and the blank behind it stand, if a text has one."""
_CONTROLS: Final = frozenset(range(0x20))
_BACKSLASH: Final = ord("\\")


def scan(slab: Slab, from_hub: Flags, vocabulary: Vocabulary) -> Told:
    """Look at frames of UMQ 1.0.0."""
    told = Told(slab, vocabulary)
    line = slab.find(b"\n", slab.starts, slab.ends)
    size = line - slab.starts
    plain = slab.are_text() & (size >= 2) & (size <= _LONGEST_ID + 1)
    letter = slab.at(slab.starts)
    calls = np.flatnonzero(plain & (letter == ord("M")))
    if len(calls):
        _tell_calls(told, calls, line[calls] + 1)
    _tell_others(told, letter, plain, line, from_hub, umq_rows.reason1)
    return told


def scan36(slab: Slab, from_hub: Flags, vocabulary: Vocabulary) -> Told:
    """Look at frames of UMQ36."""
    told = Told(slab, vocabulary)
    line = slab.find(b":", slab.starts, slab.ends)
    size = line - slab.starts
    plain = slab.are_text() & (size >= 2) & (size <= _FEW_DIGITS + 1)
    _drop_odd_numbers(slab, plain, line)
    letter = slab.at(slab.starts)
    calls = np.flatnonzero(plain & (letter == ord("C")))
    if len(calls):
        _tell_arrays(told, calls, line[calls])
    _tell_others(told, letter, plain, line, from_hub, umq_rows.reason36)
    return told


def _drop_odd_numbers(slab: Slab, plain: Flags, line: Places) -> None:
    """Leave what is not written in digits without a zero before them."""
    rows = np.flatnonzero(plain)
    numbers = slab.cut(slab.starts[rows] + 1, line[rows]).view(pa.string())
    digits = pc.and_(pc.ascii_is_alnum(numbers), pc.equal(numbers, pc.ascii_upper(numbers)))
    plain[rows] = digits.to_numpy(zero_copy_only=False) & (slab.at(slab.starts[rows] + 1) != ord("0"))


def _tell_calls(told: Told, rows: Places, names_at: Places) -> None:
    slab = told.slab
    ends = slab.ends[rows]
    line = slab.find(b"\n", names_at, ends)
    whole = line >= 0
    rows, names_at, line, ends = rows[whole], names_at[whole], line[whole], ends[whole]
    _name(told, rows, names_at, line, names.UMQ, quoted=False)
    told.ids.set(rows, slab.starts[rows] + 1, names_at - 1)
    told.body_size[rows] = ends - line - 1


def _tell_arrays(told: Told, rows: Places, colon: Places) -> None:
    """Tell of calls whose payload is an array of the method and its arguments."""
    slab = told.slab
    ends = slab.ends[rows]
    array = (ends - colon > len(':[""]')) & slab.has(colon + 1, b'["') & (slab.at(ends - 1) == ord("]"))
    rows, colon, ends = rows[array], colon[array], ends[array]
    quote = slab.find(b'"', colon + 3, ends)
    behind = slab.at(quote + 1)
    alone = (quote >= 0) & (quote + 2 == ends)
    several = (quote >= 0) & (behind == ord(",")) & (quote + 3 < ends)
    several[several] = are_json(slab, colon[several] + 1, ends[several]) & _are_bare(
        slab, quote[several] + 2, ends[several] - 1
    )
    good = alone | several
    rows, colon, ends, quote = rows[good], colon[good], ends[good], quote[good]
    _name(told, rows, colon + 3, quote, names.UMQ36, quoted=True)
    told.ids.set(rows, slab.starts[rows] + 1, colon)
    told.body_size[rows] = np.maximum(ends - quote - 3, 0)


def _are_bare(slab: Slab, starts: Places, ends: Places) -> Flags:
    """Tell which spans have no blank at either end."""
    return (slab.at(starts) > ord(" ")) & (slab.at(ends - 1) > ord(" "))


def _name(told: Told, rows: Places, starts: Places, ends: Places, style: NameStyle, *, quoted: bool) -> None:
    """Tell of calls by what they call."""
    written = told.slab.cut(starts, ends)
    read = partial(read_name, told.words, partial(told_rows.folded, style=style), quoted)
    kind, method = distinct(written, read, 2)
    sure = kind != NONE
    told.sure[rows] = sure
    told.kind[rows] = kind
    told.method[rows] = method
    told.targets.set(rows, starts, ends)


def read_name(words: Vocabulary, fold: Callable[[str], str | None], quoted: bool, written: bytes) -> tuple[int, int]:
    """Return the kind of a request and its method, by number; NONE for what takes a closer look."""
    if quoted and (_BACKSLASH in written or not _CONTROLS.isdisjoint(written)):
        return NONE, NONE
    method = fold(written.decode())
    if method in told_rows.TOPICAL:
        return NONE, NONE
    if method is not None and method.startswith(told_rows.CALLBACKS):
        return words.kind.number("callback"), NONE
    return words.kind.number("call"), words.method.number(method)


Reasons = Callable[..., tuple[Reason, str | None]]


def _tell_others(told: Told, letter: Octets, plain: Flags, line: Places, from_hub: Flags, reason_of: Reasons) -> None:
    slab = told.slab
    results = np.flatnonzero(plain & (letter == ord("R")))
    told.tell(results, "result", "result")
    events = np.flatnonzero(plain & (letter == ord("T")))
    told.tell(events, "event")
    told.targets.set(events, slab.starts[events] + 1, line[events])
    parts = [results, events]
    for sign in "E!":
        for hub in (False, True):
            rows = np.flatnonzero(plain & (letter == ord(sign)) & (from_hub == hub))
            if len(rows):
                _fail(told, rows, line[rows] + 1, partial(reason_of, letter=sign, from_hub=hub))
                told.ids.set(rows, slab.starts[rows] + 1, line[rows])
                parts.append(rows)
    told.ids.set(results, slab.starts[results] + 1, line[results])
    for rows in parts:
        told.body_size[rows] = slab.ends[rows] - line[rows] - 1


def _fail(told: Told, rows: Places, texts_at: Places, reason_of: Reasons) -> None:
    told.tell(rows, "failure")
    beginnings = told.slab.cut(texts_at, np.minimum(texts_at + _CODE, told.slab.ends[rows]))

    def read(beginning: bytes) -> tuple[int, int, int]:
        reason, code = reason_of(beginning.decode(errors="ignore"))
        words = told.words
        return words.status.number(STATUS[reason]), words.reason.number(reason.name.lower()), words.code.number(code)

    told.status[rows], told.reason[rows], told.code[rows] = distinct(beginnings, read, 3)
