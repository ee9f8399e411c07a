"""The quick way in front of the plain one: whole columns at a time, and only where it is sure."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fiveways.journal import record
from fiveways.pipeline.decode import scan_cbor, scan_lrpm, scan_mqtt, scan_nq, scan_umq
from fiveways.pipeline.decode.batches import (
    HELD_MESSAGES,
    TOLD,
    Decoded,
    Found,
    laid_out,
    marks,
    prepared,
    read_plainly,
)
from fiveways.pipeline.decode.batches import texts as as_texts
from fiveways.pipeline.decode.plain import OUT, PUBLICATION
from fiveways.pipeline.decode.rows import Message
from fiveways.pipeline.decode.slab import Flags, Numbers, Places, Slab
from fiveways.pipeline.decode.told import Told, Vocabulary
from fiveways.wire.packet import NO_OP

LEAST: Final = 64
"""Frames of a protocol for which the quick way is one."""


class Batch:
    """A prepared batch, and what is asked of it more than once."""

    def __init__(self, known: pa.RecordBatch) -> None:
        self.known = known
        payload, size = known["payload"], known["size"]
        self.is_mark = _equal(known["kind"], *record.MARKS)
        self.is_text = _equal(known["kind"], "text")
        self.is_frame = _equal(known["kind"], *record.FRAMES)
        self.from_hub = _equal(known["direction"], OUT)
        held = pc.fill_null(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
        told = pc.fill_null(size, 0).to_numpy(zero_copy_only=False)
        self.sizes = np.where(_present(size), told, held)
        self.is_whole = _present(payload) & (held >= told)
        self.is_publication, self.has_plain_op = _ops(known["op"])


def _equal(column: pa.Array, *texts: str) -> Flags:
    """Tell where a column that is held by number says one of these."""
    words = column.dictionary.to_pylist()
    table = np.array([*(word in texts for word in words), False], np.bool_)
    return table[_indices(column)]


def _indices(column: pa.Array) -> Numbers:
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(len(column.dictionary))
    numbers: Numbers = indices.to_numpy()
    return numbers


def _present(column: pa.Array) -> Flags:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    present: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _ops(op: pa.Array) -> tuple[Flags, Flags]:
    """Tell which operations are publications, and which stand as they are for a frame of one message."""
    if op.null_count == len(op):
        return np.zeros(len(op), np.bool_), np.ones(len(op), np.bool_)
    first = pc.fill_null(pc.starts_with(op, PUBLICATION), False).to_numpy(zero_copy_only=False)
    octets = np.frombuffer(op.buffers()[2] or b"", np.uint8)
    plain = pc.fill_null(pc.not_equal(op, ""), True)
    if ((octets == ord(" ")) | (octets == ord(NO_OP))).any():
        odd = pc.or_(pc.match_substring(op, " "), pc.equal(op, NO_OP))
        plain = pc.and_(plain, pc.invert(pc.fill_null(odd, False)))
    return first, plain.to_numpy(zero_copy_only=False)


Scanner = Callable[["Batch", Places, Slab, Vocabulary], Told]


class Group(NamedTuple):
    """Frames that one scanner looks at."""

    protocol: str
    is_text: bool | None
    is_publication: bool
    scan: Scanner


def _attachments(batch: Batch, rows: Places, slab: Slab, words: Vocabulary) -> Told:
    told = Told(slab, words)
    told.tell(np.arange(slab.count), "attachment")
    told.body_size[:] = batch.sizes[rows]
    told.ids.given = told.targets.given = pa.nulls(slab.count, pa.string())
    return told


def _publications(batch: Batch, rows: Places, slab: Slab, words: Vocabulary) -> Told:
    channels = batch.known["channel"].take(pa.array(rows))
    return scan_mqtt.publications(slab, channels, batch.from_hub[rows], batch.sizes[rows], words)


def _requests(batch: Batch, rows: Places, slab: Slab, words: Vocabulary) -> Told:
    return scan_mqtt.scan(slab, batch.known["channel"].take(pa.array(rows)), words)


def _by(scan: Callable[[Slab, Flags, Vocabulary], Told]) -> Scanner:
    return lambda batch, rows, slab, words: scan(slab, batch.from_hub[rows], words)


_GROUPS: Final = (
    Group("umq", True, False, _by(scan_umq.scan)),
    Group("umq36", True, False, _by(scan_umq.scan36)),
    Group("lrpm-json", True, False, _by(scan_lrpm.scan)),
    Group("lrpm-cbor", False, False, _by(scan_cbor.scan)),
    Group("nq", True, False, _by(scan_nq.scan)),
    Group("mqtt-rpc", False, False, _requests),
    Group("mqtt-rpc", None, True, _publications),
    Group("umq", False, False, _attachments),
    Group("umq36", False, False, _attachments),
)


def decode_batch(records: pa.RecordBatch, least: int = LEAST) -> Decoded:
    """Read a batch, the plain way where the quick one is not sure."""
    known = prepared(records)
    batch = Batch(known)
    words = Vocabulary()
    scanned = _scanned(batch, words, least)
    todo = ~batch.is_mark
    for rows, told in scanned:
        todo[rows[told.sure]] = False
    found = read_plainly(known, np.flatnonzero(todo))
    messages = _messages(known, scanned, found, words)
    return Decoded(messages, found.quarantine(known), marks(known, np.flatnonzero(batch.is_mark)))


def _scanned(batch: Batch, words: Vocabulary, least: int) -> list[tuple[Places, Told]]:
    able = batch.is_frame & batch.is_whole & batch.has_plain_op
    protocols = batch.known["protocol"]
    names, numbers = protocols.dictionary.to_pylist(), _indices(protocols)
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
            payloads = batch.known["payload"]
            slab = Slab(payloads.take(pa.array(rows)) if len(rows) < len(payloads) else payloads)
            found.append((rows, group.scan(batch, rows, slab, words)))
    return found


def _messages(known: pa.RecordBatch, scanned: list[tuple[Places, Told]], found: Found, words: Vocabulary) -> pa.Table:
    """Lay all that was found out in the order of the records."""
    sure = [(rows[told.sure], told, np.flatnonzero(told.sure)) for rows, told in scanned]
    sources = np.concatenate([*(rows for rows, _, _ in sure), np.asarray(found.sources, np.int64)])
    parts = np.zeros(len(sources), np.int32)
    first_plain = len(sources) - len(found.sources)
    parts[first_plain:] = found.parts
    order = _order(sources, parts, known.num_rows)
    columns = _told_columns(sure, found, words, order)
    sources = sources if order is None else sources[order]
    if found.sources:
        ops = _ops_of(known, found, sources, first_plain, order)
        columns["op"] = ops
    columns["part"] = pa.array(parts if order is None else parts[order])
    return laid_out(known, sources, columns, HELD_MESSAGES)


def _order(sources: Places, parts: Numbers, records: int) -> Places | None:
    """Return which of them comes when; None if they are in order already."""
    if (np.diff(sources) >= 0).all():
        return None
    counts = np.bincount(sources, minlength=records)
    places = (np.cumsum(counts) - counts)[sources] + parts
    order = np.empty(len(sources), np.int64)
    order[places] = np.arange(len(sources))
    return order


def _told_columns(
    sure: list[tuple[Places, Told, Places]], found: Found, words: Vocabulary, order: Places | None
) -> dict[str, pa.Array]:
    """Return what the messages tell, those of the plain way behind the others, in that order."""
    columns: dict[str, pa.Array] = {}
    plainly = dict(zip(Message._fields, zip(*found.told, strict=True), strict=True)) if found.told else {}
    for name in TOLD:
        known = getattr(words, name)
        numbers = [getattr(told, name)[rows] for _, told, rows in sure]
        numbers.append(np.array([known.number(each) for each in plainly.get(name, ())], np.int32))
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


def _ops_of(known: pa.RecordBatch, found: Found, sources: Places, first_plain: int, order: Places | None) -> pa.Array:
    """Return the operation of each message: a record's own, but of those that the plain way read, the message's."""
    own = known["op"].take(pa.array(sources))
    place = np.arange(len(sources)) if order is None else order
    plain = place >= first_plain
    given = as_texts(found.ops)
    taken = np.where(plain, place - first_plain + len(own), np.arange(len(own)))
    return pa.concat_arrays([own, given]).take(pa.array(taken))
