"""From pages of the tape to a batch of records, column by column."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from fiveways.journal.columns import end_to_end, numbers, texts
from fiveways.journal.messages import ALL
from fiveways.journal.record import SCHEMA
from fiveways.journal.redaction import ATTACHMENT, Redaction
from fiveways.journal.tape import Page, Way

_OF_A_WAY: Final = ("session", "peer", "protocol", "transport", "direction", "kind", "channel")


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
        known = [way for page in pages for way in page.ways]
        firsts = np.cumsum([0, *(len(page.ways) for page in pages)], dtype=np.int32)
        codes = np.concatenate(
            [np.frombuffer(page.way, np.int32) + at for page, at in zip(pages, firsts, strict=False)]
        )
        count = len(codes)
        columns = {name: _spread([getattr(way, name) for way in known], codes) for name in _OF_A_WAY}
        columns |= self._contents(pages, known, codes, columns["channel"])
        is_out = np.array([way.direction == "out" for way in known])[codes]
        columns["seq"] = numbers(np.concatenate([np.arange(page.first, page.first + len(page)) for page in pages]))
        columns["at"] = numbers(_joined(page.at for page in pages))
        columns["node"] = _spread([self._node], np.zeros(count, np.int32))
        columns["run"] = _spread([self._run], np.zeros(count, np.int32))
        lengths = _joined((page.op_lengths for page in pages), np.int32)
        columns["op"] = end_to_end(pa.string(), (page.ops for page in pages), lengths, lengths > 0)
        columns["queued_ns"] = numbers(_joined(page.queued for page in pages), is_out)
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _contents(
        self, pages: Sequence[Page], known: list[Way], codes: np.ndarray, channel: pa.Array
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
        size, reason = pa.nulls(count, pa.int32()), pa.nulls(count, pa.string())
        if notes:
            found = list(map(notes.get, range(count)))
            sizes = [-1 if note is None or note.size is None else note.size for note in found]
            size = numbers(np.array(sizes, np.int32), np.array(sizes) >= 0)
            reason = texts(pa.string(), [note.reason.encode() or None if note else None for note in found])
            own = texts(pa.string(), [note.channel.encode() or None if note else None for note in found])
            channel = compute.coalesce(own, channel)
        payload = self._redaction.apply(said, list(map(_speech, known)), codes)
        # Who finds less than this knows that it was cut; what is left out as a whole is as long as it was.
        size = compute.coalesce(compute.binary_length(payload), compute.binary_length(said), size)
        if self._most != ALL:
            payload = compute.binary_slice(payload, 0, self._most) if self._most else pa.nulls(count, pa.binary())
        return {"payload": payload, "size": size, "reason": reason, "channel": channel}


def _joined(columns: Iterable[bytes], kind: type = np.int64) -> np.ndarray:
    return np.concatenate([np.frombuffer(column, kind) for column in columns])


def _speech(way: Way) -> str:
    """Return the protocol by which a payload is read."""
    return ATTACHMENT if way.kind == "binary" and way.protocol.startswith("umq") else way.protocol


def _spread(known: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Return a column in which each record has one of a few texts; an empty one is null."""
    return texts(pa.string(), [text.encode() or None for text in known]).take(numbers(codes))
