"""From pages of the tape to a batch of records, column by column."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute

from fiveways.journal.arrow_columns import (
    column_from_offsets,
    concatenated_column,
    constant_column,
    number_column,
    text_column,
    true_indices,
)
from fiveways.journal.frame_buffer import OP_SEPARATOR, FrameBatch, StreamInfo
from fiveways.journal.redaction import ATTACHMENT, Redactor
from fiveways.journal.schema import SCHEMA
from fiveways.journal.writer_messages import UNLIMITED

_STREAM_COLUMNS: Final = ("session", "peer", "protocol", "transport", "direction", "kind")
_OP_SEPARATOR: Final = OP_SEPARATOR.encode()


class RecordBatchBuilder:
    """Makes the batches of one run."""

    def __init__(self, node: str, run: str, most: int = UNLIMITED, redaction: Redactor = Redactor()) -> None:  # noqa: B008  has no state
        """Make it; of each payload `most` bytes are written down, after what is secret was taken out."""
        self._node = node
        self._run = run
        self._max_payload_bytes = most
        self._redaction = redaction

    def build(self, pages: Sequence[FrameBatch]) -> pa.RecordBatch:
        """Return records for the entries of pages, in their order."""
        lengths = np.concatenate([_records_per_entry(page) for page in pages])
        known, of_entries = _merge_streams(pages)
        codes = np.repeat(of_entries, lengths)
        count = len(codes)
        columns = {name: _encoded_column([getattr(way, name) for way in known], codes) for name in _STREAM_COLUMNS}
        columns["channel"] = _encoded_column([self._redaction.clean_text(way.channel) for way in known], codes)
        columns["op"] = _op_column(pages)
        is_out = np.array([way.direction == "out" for way in known])[codes]
        unrouted = ~is_out
        unrouted[true_indices(compute.is_valid(columns["op"]))] = False
        columns |= self._payload_columns(pages, known, codes, columns["channel"], unrouted)
        columns["seq"] = number_column(
            np.concatenate([np.arange(page.first_seq, page.first_seq + len(page)) for page in pages])
        )
        columns["at"] = number_column(np.repeat(_concatenate((page.times for page in pages), np.int64), lengths))
        columns["node"] = constant_column(self._node.encode() or None, count)
        columns["run"] = constant_column(self._run.encode(), count)
        columns["queued_ns"] = number_column(np.repeat(np.concatenate(list(map(_queue_times, pages))), lengths), is_out)
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _payload_columns(
        self,
        pages: Sequence[FrameBatch],
        known: list[StreamInfo],
        codes: np.ndarray,
        channel: pa.Array,
        unrouted: np.ndarray,
    ) -> dict[str, pa.Array]:
        """Return the columns that a frame and a mark fill in different ways."""
        count = len(codes)
        lengths = _concatenate((page.payload_lengths for page in pages), np.int32)
        starts = np.cumsum([0, *map(len, pages)])
        notes = {
            start + at: note
            for page, start in zip(pages, starts, strict=False)
            for at, note in page.no_payloads.items()
        }
        is_frame = np.ones(count, bool)
        is_frame[list(notes)] = False
        said = concatenated_column(pa.binary(), (page.payloads for page in pages), lengths, is_frame)
        payload, why = self._redaction.apply(said, list(map(_payload_protocol, known)), codes, unrouted)
        size, reason = number_column(lengths), pa.nulls(count, pa.string())
        if notes or payload is not said:
            found = list(map(notes.get, range(count)))
            sizes = np.array([-1 if note is None or note.size is None else note.size for note in found], np.int32)
            # Who finds less than this knows that it was cut; what is left out as a whole is as long as it was.
            size = compute.coalesce(
                compute.binary_length(payload), compute.binary_length(said), number_column(sizes, sizes >= 0)
            )
            clean = self._redaction.clean_text
            reasons = [why.get(at) if note is None else clean(note.reason) for at, note in enumerate(found)]
            reason = text_column(pa.string(), [text.encode() if text else None for text in reasons])
            own = text_column(pa.string(), [clean(note.channel).encode() or None if note else None for note in found])
            channel = compute.coalesce(own, channel)
        if self._max_payload_bytes != UNLIMITED:
            payload = (
                compute.binary_slice(payload, 0, self._max_payload_bytes)
                if self._max_payload_bytes
                else pa.nulls(count, pa.binary())
            )
        return {"payload": payload, "size": size, "reason": reason, "channel": channel}


def _merge_streams(pages: Sequence[FrameBatch]) -> tuple[list[StreamInfo], np.ndarray]:
    """Return the ways of all pages, and for each entry which of them it went."""
    known: dict[tuple[object, ...], int] = {}
    codes = []
    for page in pages:
        numbers_here = [known.setdefault(msgspec.structs.astuple(way), len(known)) for way in page.streams]
        codes.append(np.array(numbers_here, np.int32)[np.frombuffer(page.stream_indexes, np.int32)])
    return [StreamInfo(*each) for each in known], np.concatenate(codes)  # type: ignore[arg-type]  # it was one


def _records_per_entry(page: FrameBatch) -> np.ndarray:
    """Return how many records each entry of a page is."""
    lengths = np.ones(len(page.times) // 8, np.int64)
    lengths[np.frombuffer(page.multi_record_entries, np.int32)] = np.frombuffer(page.multi_record_lengths, np.int32)
    return lengths


def _queue_times(page: FrameBatch) -> np.ndarray:
    """Return how long each entry of a page had waited."""
    queued = np.zeros(len(page.times) // 8, np.int64)
    if page.queue_times:
        queued[list(page.queue_times)] = list(page.queue_times.values())
    return queued


def _op_column(pages: Sequence[FrameBatch]) -> pa.Array:
    """Return the column of operations."""
    data = _OP_SEPARATOR.join([page.ops for page in pages])
    between = np.flatnonzero(np.frombuffer(data, np.uint8) == _OP_SEPARATOR[0])
    ends = np.zeros(len(between) + 2, np.int32)
    # What stands between them is left out, and so is not counted.
    ends[1:-1] = between - np.arange(len(between))
    ends[-1] = len(data) - len(between)
    return column_from_offsets(pa.string(), data.replace(_OP_SEPARATOR, b""), ends, ends[1:] > ends[:-1])


def _concatenate(columns: Iterable[bytes], kind: type) -> np.ndarray:
    return np.concatenate([np.frombuffer(column, kind) for column in columns])


def _payload_protocol(way: StreamInfo) -> str:
    """Return the protocol by which a payload is read."""
    return ATTACHMENT if way.kind == "binary" and way.protocol.startswith("umq") else way.protocol


def _encoded_column(known: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Return a column in which each record has one of a few texts; an empty one is null."""
    if len(set(known)) == 1:
        return constant_column(known[0].encode() or None, len(codes))
    return text_column(pa.string(), [text.encode() or None for text in known]).take(number_column(codes))
