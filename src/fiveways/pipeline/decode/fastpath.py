"""The quick way in front of the plain one: whole columns at a time, and only where it is sure."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.journal import schema
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
from fiveways.pipeline.decode.payload_buffer import BoolArray, Int32Array, Int64Array, PayloadBuffer
from fiveways.wire.packet import NO_OPERATION

MIN_FRAMES: Final = 64
"""Frames of a protocol for which the quick way is one."""


class PreparedBatch:
    """A prepared batch, and what is asked of it more than once."""

    def __init__(self, known: pa.RecordBatch) -> None:
        self.records = known
        payload, size = known["payload"], known["size"]
        self.is_mark = _equals_any(known["kind"], *schema.MARKER_KINDS)
        self.is_text = _equals_any(known["kind"], "text")
        self.is_frame = _equals_any(known["kind"], *schema.FRAME_KINDS)
        self.from_hub = _equals_any(known["direction"], OUTBOUND)
        held = pc.fill_null(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
        told = pc.fill_null(size, 0).to_numpy(zero_copy_only=False)
        self.sizes = np.where(_is_present(size), told, held)
        self.is_complete = _is_present(payload) & (held >= told)
        self.is_publication, self.has_single_op = _classify_ops(known["op"])


def _equals_any(column: pa.Array, *texts: str) -> BoolArray:
    """Tell where a column that is held by number says one of these."""
    words = column.dictionary.to_pylist()
    table = np.array([*(word in texts for word in words), False], np.bool_)
    return table[_dictionary_indices(column)]


def _dictionary_indices(column: pa.Array) -> Int32Array:
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(column.dictionary))
    numbers: Int32Array = indices.to_numpy()
    return numbers


def _is_present(column: pa.Array) -> BoolArray:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    present: BoolArray = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _classify_ops(op: pa.Array) -> tuple[BoolArray, BoolArray]:
    """Tell which operations are publications, and which stand as they are for a frame of one message."""
    if op.null_count == len(op):
        return np.zeros(len(op), np.bool_), np.ones(len(op), np.bool_)
    first = pc.fill_null(pc.starts_with(op, PUBLICATION_PREFIX), False).to_numpy(zero_copy_only=False)
    octets = np.frombuffer(op.buffers()[2] or b"", np.uint8)
    plain = pc.fill_null(pc.not_equal(op, ""), True)
    if ((octets == ord(" ")) | (octets == ord(NO_OPERATION))).any():
        odd = pc.or_(pc.match_substring(op, " "), pc.equal(op, NO_OPERATION))
        plain = pc.and_(plain, pc.invert(pc.fill_null(odd, False)))
    return first, plain.to_numpy(zero_copy_only=False)


Scanner = Callable[["PreparedBatch", Int64Array, PayloadBuffer, StringTables], DecodedColumns]


class FrameGroup(NamedTuple):
    """Frames that one scanner looks at."""

    protocol: str
    is_text: bool | None
    is_publication: bool
    scan: Scanner


def _scan_attachments(
    batch: PreparedBatch, rows: Int64Array, slab: PayloadBuffer, words: StringTables
) -> DecodedColumns:
    told = DecodedColumns(slab, words)
    told.set_kind(np.arange(slab.count), "attachment")
    told.body_size[:] = batch.sizes[rows]
    told.ids.values = told.targets.values = pa.nulls(slab.count, pa.string())
    return told


def _scan_publications(
    batch: PreparedBatch, rows: Int64Array, slab: PayloadBuffer, words: StringTables
) -> DecodedColumns:
    channels = batch.records["channel"].take(pa.array(rows))
    return fastpath_mqtt.publications(slab, channels, batch.from_hub[rows], batch.sizes[rows], words)


def _scan_mqtt_requests(
    batch: PreparedBatch, rows: Int64Array, slab: PayloadBuffer, words: StringTables
) -> DecodedColumns:
    return fastpath_mqtt.scan(slab, batch.records["channel"].take(pa.array(rows)), words)


def _with_direction(scan: Callable[[PayloadBuffer, BoolArray, StringTables], DecodedColumns]) -> Scanner:
    return lambda batch, rows, slab, words: scan(slab, batch.from_hub[rows], words)


_GROUPS: Final = (
    FrameGroup("umq", True, False, _with_direction(fastpath_umq.scan)),
    FrameGroup("umq36", True, False, _with_direction(fastpath_umq.scan36)),
    FrameGroup("lrpm-json", True, False, _with_direction(fastpath_lrpm_json.scan)),
    FrameGroup("lrpm-cbor", False, False, _with_direction(fastpath_lrpm_cbor.scan)),
    FrameGroup("nq", True, False, _with_direction(fastpath_nq.scan)),
    FrameGroup("mqtt-rpc", False, False, _scan_mqtt_requests),
    FrameGroup("mqtt-rpc", None, True, _scan_publications),
    FrameGroup("umq", False, False, _scan_attachments),
    FrameGroup("umq36", False, False, _scan_attachments),
)


def decode_batch(records: pa.RecordBatch, least: int = MIN_FRAMES) -> DecodedTables:
    """Read a batch, the plain way where the quick one is not sure."""
    known = normalize_batch(records)
    batch = PreparedBatch(known)
    words = StringTables()
    scanned = _scan_groups(batch, words, least)
    todo = ~batch.is_mark
    for rows, told in scanned:
        todo[rows[told.is_decoded]] = False
    found = read_general(known, np.flatnonzero(todo))
    messages = _build_messages(known, scanned, found, words)
    return DecodedTables(messages, found.quarantine_table(known), marks_table(known, np.flatnonzero(batch.is_mark)))


def _scan_groups(batch: PreparedBatch, words: StringTables, least: int) -> list[tuple[Int64Array, DecodedColumns]]:
    able = batch.is_frame & batch.is_complete & batch.has_single_op
    protocols = batch.records["protocol"]
    names, numbers = protocols.dictionary.to_pylist(), _dictionary_indices(protocols)
    found = []
    for group in _GROUPS:
        if group.protocol not in names:
            continue
        wanted = able & (numbers == names.index(group.protocol))
        if group.protocol == "mqtt-rpc":
            wanted &= batch.is_publication == group.is_publication
        if group.is_text is not None:
            wanted &= batch.is_text == group.is_text
        rows = np.flatnonzero(wanted)
        if len(rows) >= max(least, 1):
            payloads = batch.records["payload"]
            slab = PayloadBuffer(payloads.take(pa.array(rows)) if len(rows) < len(payloads) else payloads)
            found.append((rows, group.scan(batch, rows, slab, words)))
    return found


def _build_messages(
    known: pa.RecordBatch,
    scanned: list[tuple[Int64Array, DecodedColumns]],
    found: GeneralPathResult,
    words: StringTables,
) -> pa.Table:
    """Lay all that was found out in the order of the records."""
    sure = [(rows[told.is_decoded], told, np.flatnonzero(told.is_decoded)) for rows, told in scanned]
    sources = np.concatenate([*(rows for rows, _, _ in sure), np.asarray(found.record_indexes, np.int64)])
    parts = np.zeros(len(sources), np.int32)
    first_plain = len(sources) - len(found.record_indexes)
    parts[first_plain:] = found.parts
    order = _record_order(sources, parts, known.num_rows)
    columns = _build_columns(sure, found, words, order)
    sources = sources if order is None else sources[order]
    if found.record_indexes:
        ops = _build_op_column(known, found, sources, first_plain, order)
        columns["op"] = ops
    columns["part"] = pa.array(parts if order is None else parts[order])
    return build_table(known, sources, columns, MESSAGES_SCHEMA)


def _record_order(sources: Int64Array, parts: Int32Array, records: int) -> Int64Array | None:
    """Return which of them comes when; None if they are in order already."""
    if (np.diff(sources) >= 0).all():
        return None
    counts = np.bincount(sources, minlength=records)
    places = (np.cumsum(counts) - counts)[sources] + parts
    order = np.empty(len(sources), np.int64)
    order[places] = np.arange(len(sources))
    return order


def _build_columns(
    sure: list[tuple[Int64Array, DecodedColumns, Int64Array]],
    found: GeneralPathResult,
    words: StringTables,
    order: Int64Array | None,
) -> dict[str, pa.Array]:
    """Return what the messages tell, those of the plain way behind the others, in that order."""
    columns: dict[str, pa.Array] = {}
    plainly = (
        dict(zip(MessageRow._fields, zip(*found.message_rows, strict=True), strict=True)) if found.message_rows else {}
    )
    for name in MESSAGE_DICTIONARY_COLUMNS:
        known = getattr(words, name)
        numbers = [getattr(told, name)[rows] for _, told, rows in sure]
        numbers.append(np.array([known.code(each) for each in plainly.get(name, ())], np.int32))
        joined = np.concatenate(numbers)
        columns[name] = known.column(joined if order is None else joined[order])
    for name, attribute in (("id", "ids"), ("target", "targets")):
        texts = [getattr(told, attribute).column(rows) for _, told, rows in sure]
        joined_texts = pa.concat_arrays([*texts, as_texts(plainly.get(name, ()))])
        columns[name] = joined_texts if order is None else joined_texts.take(pa.array(order))
    sizes = [pa.array(told.body_size[rows]) for _, told, rows in sure]
    joined_sizes = pa.concat_arrays([*sizes, pa.array(plainly.get("body_size", ()), pa.int32())])
    columns["body_size"] = joined_sizes if order is None else joined_sizes.take(pa.array(order))
    return columns


def _build_op_column(
    known: pa.RecordBatch, found: GeneralPathResult, sources: Int64Array, first_plain: int, order: Int64Array | None
) -> pa.Array:
    """Return the operation of each message: a record's own, but of those that the plain way read, the message's."""
    own = known["op"].take(pa.array(sources))
    place = np.arange(len(sources)) if order is None else order
    plain = place >= first_plain
    given = as_texts(found.ops)
    taken = np.where(plain, place - first_plain + len(own), np.arange(len(own)))
    return pa.concat_arrays([own, given]).take(pa.array(taken))
