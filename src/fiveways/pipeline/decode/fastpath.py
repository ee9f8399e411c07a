"""Fast path of decoding: common frames by whole columns; the other frames take the general path."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.journal import schema
from fiveways.pipeline.arrays import BoolArray, Int32Array, Int64Array
from fiveways.pipeline.decode import fastpath_lrpm_cbor, fastpath_lrpm_json, fastpath_mqtt, fastpath_nq, fastpath_umq
from fiveways.pipeline.decode.batches import (
    MESSAGE_DICTIONARY_COLUMNS,
    MESSAGES_SCHEMA,
    DecodedTables,
    GeneralPathResult,
    build_table,
    marks_table,
    normalize_batch,
    read_general,
)
from fiveways.pipeline.decode.batches import text_array as as_texts
from fiveways.pipeline.decode.decoded_columns import DecodedColumns, StringTables
from fiveways.pipeline.decode.general_path import OUTBOUND, PUBLICATION_PREFIX
from fiveways.pipeline.decode.message_row import MessageRow
from fiveways.pipeline.decode.payload_buffer import PayloadBuffer
from fiveways.wire.packet import NO_OPERATION

MIN_FRAMES: Final = 64
"""Minimum frames of a protocol in a batch; below it the fast path is not faster."""


class PreparedBatch:
    """Normalized batch with columns that are used more than once."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self.records = records
        payload, size = records["payload"], records["size"]
        self.is_mark = _equals_any(records["kind"], *schema.MARKER_KINDS)
        self.is_text = _equals_any(records["kind"], "text")
        self.is_frame = _equals_any(records["kind"], *schema.FRAME_KINDS)
        self.from_hub = _equals_any(records["direction"], OUTBOUND)
        held = pc.fill_null(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
        declared = pc.fill_null(size, 0).to_numpy(zero_copy_only=False)
        self.sizes = np.where(_is_present(size), declared, held)
        self.is_complete = _is_present(payload) & (held >= declared)
        self.is_publication, self.has_single_op = _classify_ops(records["op"])


def _equals_any(column: pa.Array, *texts: str) -> BoolArray:
    """Return where a dictionary-encoded column has one of these texts."""
    distinct = column.dictionary.to_pylist()
    table = np.array([*(text in texts for text in distinct), False], np.bool_)
    return table[_dictionary_indices(column)]


def _dictionary_indices(column: pa.Array) -> Int32Array:
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(column.dictionary))
    codes: Int32Array = indices.to_numpy()
    return codes


def _is_present(column: pa.Array) -> BoolArray:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    present: BoolArray = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _classify_ops(op: pa.Array) -> tuple[BoolArray, BoolArray]:
    """Return which operations are publications, and which are a single operation id or null."""
    if op.null_count == len(op):
        return np.zeros(len(op), np.bool_), np.ones(len(op), np.bool_)
    is_publication = pc.fill_null(pc.starts_with(op, PUBLICATION_PREFIX), False).to_numpy(zero_copy_only=False)
    octets = np.frombuffer(op.buffers()[2] or b"", np.uint8)
    is_single = pc.fill_null(pc.not_equal(op, ""), True)
    if ((octets == ord(" ")) | (octets == ord(NO_OPERATION))).any():
        is_list = pc.or_(pc.match_substring(op, " "), pc.equal(op, NO_OPERATION))
        is_single = pc.and_(is_single, pc.invert(pc.fill_null(is_list, False)))
    return is_publication, is_single.to_numpy(zero_copy_only=False)


Scanner = Callable[["PreparedBatch", Int64Array, PayloadBuffer, StringTables], DecodedColumns]


class FrameGroup(NamedTuple):
    """Frames that one scanner decodes."""

    protocol: str
    is_text: bool | None
    is_publication: bool
    scan: Scanner


def _scan_attachments(
    batch: PreparedBatch, rows: Int64Array, buffer: PayloadBuffer, strings: StringTables
) -> DecodedColumns:
    decoded = DecodedColumns.without_ids(buffer, strings)
    decoded.set_kind(np.arange(buffer.count), "attachment")
    decoded.body_size[:] = batch.sizes[rows]
    return decoded


def _scan_publications(
    batch: PreparedBatch, rows: Int64Array, buffer: PayloadBuffer, strings: StringTables
) -> DecodedColumns:
    channels = batch.records["channel"].take(pa.array(rows))
    return fastpath_mqtt.publications(buffer, channels, batch.from_hub[rows], batch.sizes[rows], strings)


def _scan_mqtt_requests(
    batch: PreparedBatch, rows: Int64Array, buffer: PayloadBuffer, strings: StringTables
) -> DecodedColumns:
    return fastpath_mqtt.scan(buffer, batch.records["channel"].take(pa.array(rows)), strings)


def _with_direction(scan: Callable[[PayloadBuffer, BoolArray, StringTables], DecodedColumns]) -> Scanner:
    return lambda batch, rows, buffer, strings: scan(buffer, batch.from_hub[rows], strings)


_GROUPS: Final = (
    FrameGroup("umq", is_text=True, is_publication=False, scan=_with_direction(fastpath_umq.scan)),
    FrameGroup("umq36", is_text=True, is_publication=False, scan=_with_direction(fastpath_umq.scan36)),
    FrameGroup("lrpm-json", is_text=True, is_publication=False, scan=_with_direction(fastpath_lrpm_json.scan)),
    FrameGroup("lrpm-cbor", is_text=False, is_publication=False, scan=_with_direction(fastpath_lrpm_cbor.scan)),
    FrameGroup("nq", is_text=True, is_publication=False, scan=_with_direction(fastpath_nq.scan)),
    FrameGroup("mqtt-rpc", is_text=False, is_publication=False, scan=_scan_mqtt_requests),
    FrameGroup("mqtt-rpc", is_text=None, is_publication=True, scan=_scan_publications),
    FrameGroup("umq", is_text=False, is_publication=False, scan=_scan_attachments),
    FrameGroup("umq36", is_text=False, is_publication=False, scan=_scan_attachments),
)


def decode_batch(records: pa.RecordBatch, min_frames: int = MIN_FRAMES) -> DecodedTables:
    """Decode a batch on the fast path, and the frames that it does not handle on the general path."""
    normalized = normalize_batch(records)
    batch = PreparedBatch(normalized)
    strings = StringTables()
    scanned = _scan_groups(batch, strings, min_frames)
    remaining = ~batch.is_mark
    for rows, decoded in scanned:
        remaining[rows[decoded.is_decoded]] = False
    general = read_general(normalized, np.flatnonzero(remaining))
    messages = _build_messages(normalized, scanned, general, strings)
    return DecodedTables(
        messages, general.quarantine_table(normalized), marks_table(normalized, np.flatnonzero(batch.is_mark))
    )


def _scan_groups(
    batch: PreparedBatch, strings: StringTables, min_frames: int
) -> list[tuple[Int64Array, DecodedColumns]]:
    eligible = batch.is_frame & batch.is_complete & batch.has_single_op
    protocols = batch.records["protocol"]
    names, codes = protocols.dictionary.to_pylist(), _dictionary_indices(protocols)
    scanned = []
    for group in _GROUPS:
        if group.protocol not in names:
            continue
        in_group = eligible & (codes == names.index(group.protocol))
        if group.protocol == "mqtt-rpc":
            in_group &= batch.is_publication == group.is_publication
        if group.is_text is not None:
            in_group &= batch.is_text == group.is_text
        rows = np.flatnonzero(in_group)
        if len(rows) >= max(min_frames, 1):
            payloads = batch.records["payload"]
            buffer = PayloadBuffer(payloads.take(pa.array(rows)) if len(rows) < len(payloads) else payloads)
            scanned.append((rows, group.scan(batch, rows, buffer, strings)))
    return scanned


def _build_messages(
    records: pa.RecordBatch,
    scanned: list[tuple[Int64Array, DecodedColumns]],
    general: GeneralPathResult,
    strings: StringTables,
) -> pa.Table:
    """Combine the messages of both paths in the order of the records."""
    decoded_groups = [
        (rows[decoded.is_decoded], decoded, np.flatnonzero(decoded.is_decoded)) for rows, decoded in scanned
    ]
    sources = np.concatenate([*(rows for rows, _, _ in decoded_groups), np.asarray(general.record_indexes, np.int64)])
    parts = np.zeros(len(sources), np.int32)
    first_general = len(sources) - len(general.record_indexes)
    parts[first_general:] = general.parts
    order = _record_order(sources, parts, records.num_rows)
    columns = _build_columns(decoded_groups, general, strings, order)
    sources = sources if order is None else sources[order]
    if general.record_indexes:
        ops = _build_op_column(records, general, sources, first_general, order)
        columns["op"] = ops
    columns["part"] = pa.array(parts if order is None else parts[order])
    return build_table(records, sources, columns, MESSAGES_SCHEMA)


def _record_order(sources: Int64Array, parts: Int32Array, records: int) -> Int64Array | None:
    """Return the permutation that sorts messages by record and part; None if they are sorted."""
    if (np.diff(sources) >= 0).all():
        return None
    counts = np.bincount(sources, minlength=records)
    positions = (np.cumsum(counts) - counts)[sources] + parts
    order = np.empty(len(sources), np.int64)
    order[positions] = np.arange(len(sources))
    return order


def _build_columns(
    decoded_groups: list[tuple[Int64Array, DecodedColumns, Int64Array]],
    general: GeneralPathResult,
    strings: StringTables,
    order: Int64Array | None,
) -> dict[str, pa.Array]:
    """Return the columns of all messages: those of the fast path, then those of the general path, put in order."""
    columns: dict[str, pa.Array] = {}
    general_columns = (
        dict(zip(MessageRow._fields, zip(*general.message_rows, strict=True), strict=True))
        if general.message_rows
        else {}
    )
    for name in MESSAGE_DICTIONARY_COLUMNS:
        table = getattr(strings, name)
        codes = [getattr(decoded, name)[rows] for _, decoded, rows in decoded_groups]
        codes.append(np.array([table.code(text) for text in general_columns.get(name, ())], np.int32))
        joined = np.concatenate(codes)
        columns[name] = table.column(joined if order is None else joined[order])
    for name, attribute in (("id", "ids"), ("target", "targets")):
        texts = [getattr(decoded, attribute).column(rows) for _, decoded, rows in decoded_groups]
        joined_texts = pa.concat_arrays([*texts, as_texts(general_columns.get(name, ()))])
        columns[name] = joined_texts if order is None else joined_texts.take(pa.array(order))
    sizes = [pa.array(decoded.body_size[rows]) for _, decoded, rows in decoded_groups]
    joined_sizes = pa.concat_arrays([*sizes, pa.array(general_columns.get("body_size", ()), pa.int32())])
    columns["body_size"] = joined_sizes if order is None else joined_sizes.take(pa.array(order))
    return columns


def _build_op_column(
    records: pa.RecordBatch,
    general: GeneralPathResult,
    sources: Int64Array,
    first_general: int,
    order: Int64Array | None,
) -> pa.Array:
    """Return the operation of each message: from the general path for its messages, else that of the record."""
    own = records["op"].take(pa.array(sources))
    position = np.arange(len(sources)) if order is None else order
    is_general = position >= first_general
    of_messages = as_texts(general.ops)
    taken = np.where(is_general, position - first_general + len(own), np.arange(len(own)))
    return pa.concat_arrays([own, of_messages]).take(pa.array(taken))
