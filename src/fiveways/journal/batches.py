"""From pages of the tape to a batch of records, column by column."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute

from fiveways.journal.columns import end_to_end, numbers, repeated, texts, where, with_ends
from fiveways.journal.messages import ALL
from fiveways.journal.record import SCHEMA
from fiveways.journal.redaction import ATTACHMENT, Redaction
from fiveways.journal.tape import OP_END, Page, Way

_OF_A_WAY: Final = ("session", "peer", "protocol", "transport", "direction", "kind")
_OP_END: Final = OP_END.encode()


class Batches:
    """Makes the batches of one run."""

    def __init__(self, node: str, run: str, most: int = ALL, redaction: Redaction = Redaction()) -> None:  # noqa: B008  has no state
        """Make it; of each payload `most` bytes are written down, after what is secret was taken out."""
        self._node = node
        self._run = run
        self._most = most
        self._redaction = redaction

    def batch(self, pages: Sequence[Page]) -> pa.RecordBatch:
        """Return records for the entries of pages, in their order."""
        lengths = np.concatenate([_lengths(page) for page in pages])
        known, of_entries = _ways(pages)
        codes = np.repeat(of_entries, lengths)
        count = len(codes)
        columns = {name: _spread([getattr(way, name) for way in known], codes) for name in _OF_A_WAY}
        columns["channel"] = _spread([self._redaction.text(way.channel) for way in known], codes)
        columns["op"] = _ops(pages)
        is_out = np.array([way.direction == "out" for way in known])[codes]
        unrouted = ~is_out
        unrouted[where(compute.is_valid(columns["op"]))] = False
        columns |= self._contents(pages, known, codes, columns["channel"], unrouted)
        columns["seq"] = numbers(np.concatenate([np.arange(page.first, page.first + len(page)) for page in pages]))
        columns["at"] = numbers(np.repeat(_joined((page.at for page in pages), np.int64), lengths))
        columns["node"] = repeated(self._node.encode() or None, count)
        columns["run"] = repeated(self._run.encode(), count)
        columns["queued_ns"] = numbers(np.repeat(np.concatenate(list(map(_queued, pages))), lengths), is_out)
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _contents(
        self, pages: Sequence[Page], known: list[Way], codes: np.ndarray, channel: pa.Array, unrouted: np.ndarray
    ) -> dict[str, pa.Array]:
        """Return the columns that a frame and a mark fill in different ways."""
        count = len(codes)
        lengths = _joined((page.payload_lengths for page in pages), np.int32)
        starts = np.cumsum([0, *map(len, pages)])
        notes = {
            start + at: note for page, start in zip(pages, starts, strict=False) for at, note in page.notes.items()
        }
        is_frame = np.ones(count, bool)
        is_frame[list(notes)] = False
        said = end_to_end(pa.binary(), (page.payloads for page in pages), lengths, is_frame)
        payload, why = self._redaction.apply(said, list(map(_speech, known)), codes, unrouted)
        size, reason = numbers(lengths), pa.nulls(count, pa.string())
        if notes or payload is not said:
            found = list(map(notes.get, range(count)))
            sizes = np.array([-1 if note is None or note.size is None else note.size for note in found], np.int32)
            # Who finds less than this knows that it was cut; what is left out as a whole is as long as it was.
            size = compute.coalesce(
                compute.binary_length(payload), compute.binary_length(said), numbers(sizes, sizes >= 0)
            )
            clean = self._redaction.text
            reasons = [why.get(at) if note is None else clean(note.reason) for at, note in enumerate(found)]
            reason = texts(pa.string(), [text.encode() if text else None for text in reasons])
            own = texts(pa.string(), [clean(note.channel).encode() or None if note else None for note in found])
            channel = compute.coalesce(own, channel)
        if self._most != ALL:
            payload = compute.binary_slice(payload, 0, self._most) if self._most else pa.nulls(count, pa.binary())
        return {"payload": payload, "size": size, "reason": reason, "channel": channel}


def _ways(pages: Sequence[Page]) -> tuple[list[Way], np.ndarray]:
    """Return the ways of all pages, and for each entry which of them it went."""
    known: dict[tuple[object, ...], int] = {}
    codes = []
    for page in pages:
        numbers_here = [known.setdefault(msgspec.structs.astuple(way), len(known)) for way in page.ways]
        codes.append(np.array(numbers_here, np.int32)[np.frombuffer(page.way, np.int32)])
    return [Way(*each) for each in known], np.concatenate(codes)  # type: ignore[arg-type]  # it was one


def _lengths(page: Page) -> np.ndarray:
    """Return how many records each entry of a page is."""
    lengths = np.ones(len(page.at) // 8, np.int64)
    lengths[np.frombuffer(page.several, np.int32)] = np.frombuffer(page.several_lengths, np.int32)
    return lengths


def _queued(page: Page) -> np.ndarray:
    """Return how long each entry of a page had waited."""
    queued = np.zeros(len(page.at) // 8, np.int64)
    if page.queued:
        queued[list(page.queued)] = list(page.queued.values())
    return queued


def _ops(pages: Sequence[Page]) -> pa.Array:
    """Return the column of operations."""
    data = _OP_END.join([page.ops for page in pages])
    between = np.flatnonzero(np.frombuffer(data, np.uint8) == _OP_END[0])
    ends = np.zeros(len(between) + 2, np.int32)
    # What stands between them is left out, and so is not counted.
    ends[1:-1] = between - np.arange(len(between))
    ends[-1] = len(data) - len(between)
    return with_ends(pa.string(), data.replace(_OP_END, b""), ends, ends[1:] > ends[:-1])


def _joined(columns: Iterable[bytes], kind: type) -> np.ndarray:
    return np.concatenate([np.frombuffer(column, kind) for column in columns])


def _speech(way: Way) -> str:
    """Return the protocol by which a payload is read."""
    return ATTACHMENT if way.kind == "binary" and way.protocol.startswith("umq") else way.protocol


def _spread(known: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Return a column in which each record has one of a few texts; an empty one is null."""
    if len(set(known)) == 1:
        return repeated(known[0].encode() or None, len(codes))
    return texts(pa.string(), [text.encode() or None for text in known]).take(numbers(codes))
