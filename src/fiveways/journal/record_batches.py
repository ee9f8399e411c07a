"""Conversion of frame batches to a record batch, column by column."""

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
    """Builder of the record batches of one run."""

    def __init__(
        self,
        node: str,
        run: str,
        max_payload_bytes: int = UNLIMITED,
        redactor: Redactor = Redactor(),  # noqa: B008  stateless
    ) -> None:
        """Create a builder; secrets are redacted first, then payloads are cut to `max_payload_bytes`."""
        self._node = node
        self._run = run
        self._max_payload_bytes = max_payload_bytes
        self._redactor = redactor

    def build(self, batches: Sequence[FrameBatch]) -> pa.RecordBatch:
        """Return the records of frame batches, in their order."""
        lengths = np.concatenate([_records_per_entry(batch) for batch in batches])
        streams, entry_streams = _merge_streams(batches)
        codes = np.repeat(entry_streams, lengths)
        count = len(codes)
        columns = {
            name: _encoded_column([getattr(stream, name) for stream in streams], codes) for name in _STREAM_COLUMNS
        }
        columns["channel"] = _encoded_column([self._redactor.clean_text(stream.channel) for stream in streams], codes)
        columns["op"] = _op_column(batches)
        is_out = np.array([stream.direction == "out" for stream in streams])[codes]
        unrouted = ~is_out
        unrouted[true_indices(compute.is_valid(columns["op"]))] = False
        columns |= self._payload_columns(batches, streams, codes, columns["channel"], unrouted)
        columns["seq"] = number_column(
            np.concatenate([np.arange(batch.first_seq, batch.first_seq + len(batch)) for batch in batches])
        )
        columns["at"] = number_column(np.repeat(_concatenate((batch.times for batch in batches), np.int64), lengths))
        columns["node"] = constant_column(self._node.encode() or None, count)
        columns["run"] = constant_column(self._run.encode(), count)
        columns["queued_ns"] = number_column(
            np.repeat(np.concatenate(list(map(_queue_times, batches))), lengths), is_out
        )
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _payload_columns(
        self,
        batches: Sequence[FrameBatch],
        streams: list[StreamInfo],
        codes: np.ndarray,
        channel: pa.Array,
        unrouted: np.ndarray,
    ) -> dict[str, pa.Array]:
        """Return the columns that differ between frames and markers."""
        count = len(codes)
        lengths = _concatenate((batch.payload_lengths for batch in batches), np.int32)
        starts = np.cumsum([0, *map(len, batches)])
        no_payloads = {
            start + index: no_payload
            for batch, start in zip(batches, starts, strict=False)
            for index, no_payload in batch.no_payloads.items()
        }
        is_frame = np.ones(count, bool)
        is_frame[list(no_payloads)] = False
        original = concatenated_column(pa.binary(), (batch.payloads for batch in batches), lengths, is_frame)
        payload, redaction_reasons = self._redactor.apply(
            original, list(map(_payload_protocol, streams)), codes, unrouted
        )
        size, reason = number_column(lengths), pa.nulls(count, pa.string())
        if no_payloads or payload is not original:
            by_record = list(map(no_payloads.get, range(count)))
            sizes = np.array(
                [-1 if no_payload is None or no_payload.size is None else no_payload.size for no_payload in by_record],
                np.int32,
            )
            # A payload shorter than this was truncated. An omitted payload keeps its original size.
            size = compute.coalesce(
                compute.binary_length(payload), compute.binary_length(original), number_column(sizes, sizes >= 0)
            )
            clean_text = self._redactor.clean_text
            reasons = [
                redaction_reasons.get(index) if no_payload is None else clean_text(no_payload.reason)
                for index, no_payload in enumerate(by_record)
            ]
            reason = text_column(pa.string(), [text.encode() if text else None for text in reasons])
            marker_channel = text_column(
                pa.string(),
                [clean_text(no_payload.channel).encode() or None if no_payload else None for no_payload in by_record],
            )
            channel = compute.coalesce(marker_channel, channel)
        if self._max_payload_bytes != UNLIMITED:
            payload = (
                compute.binary_slice(payload, 0, self._max_payload_bytes)
                if self._max_payload_bytes
                else pa.nulls(count, pa.binary())
            )
        return {"payload": payload, "size": size, "reason": reason, "channel": channel}


def _merge_streams(batches: Sequence[FrameBatch]) -> tuple[list[StreamInfo], np.ndarray]:
    """Return the distinct streams of all batches, and the index of the stream for each entry."""
    indices: dict[tuple[object, ...], int] = {}
    codes = []
    for batch in batches:
        stream_indices = [indices.setdefault(msgspec.structs.astuple(stream), len(indices)) for stream in batch.streams]
        codes.append(np.array(stream_indices, np.int32)[np.frombuffer(batch.stream_indexes, np.int32)])
    return [StreamInfo(*fields) for fields in indices], np.concatenate(codes)  # type: ignore[arg-type]  # built from the fields of one


def _records_per_entry(batch: FrameBatch) -> np.ndarray:
    """Return the number of records of each entry."""
    lengths = np.ones(len(batch.times) // 8, np.int64)
    lengths[np.frombuffer(batch.multi_record_entries, np.int32)] = np.frombuffer(batch.multi_record_lengths, np.int32)
    return lengths


def _queue_times(batch: FrameBatch) -> np.ndarray:
    """Return the queue time of each entry."""
    times = np.zeros(len(batch.times) // 8, np.int64)
    if batch.queue_times:
        times[list(batch.queue_times)] = list(batch.queue_times.values())
    return times


def _op_column(batches: Sequence[FrameBatch]) -> pa.Array:
    data = _OP_SEPARATOR.join([batch.ops for batch in batches])
    separators = np.flatnonzero(np.frombuffer(data, np.uint8) == _OP_SEPARATOR[0])
    offsets = np.zeros(len(separators) + 2, np.int32)
    # Separators are removed, so the offsets do not count them.
    offsets[1:-1] = separators - np.arange(len(separators))
    offsets[-1] = len(data) - len(separators)
    return column_from_offsets(pa.string(), data.replace(_OP_SEPARATOR, b""), offsets, offsets[1:] > offsets[:-1])


def _concatenate(columns: Iterable[bytes], kind: type) -> np.ndarray:
    return np.concatenate([np.frombuffer(column, kind) for column in columns])


def _payload_protocol(stream: StreamInfo) -> str:
    """Return the protocol for the redaction of payloads."""
    return ATTACHMENT if stream.kind == "binary" and stream.protocol.startswith("umq") else stream.protocol


def _encoded_column(values: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Return a column from indices into a few strings; an empty string becomes null."""
    if len(set(values)) == 1:
        return constant_column(values[0].encode() or None, len(codes))
    return text_column(pa.string(), [text.encode() or None for text in values]).take(number_column(codes))
